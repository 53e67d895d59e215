"""batches mixed up: right of batch 0 is used for all"""

from _right import contract, trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask, w, contract=lambda a, b: contract(a, b[:1].expand_as(b)))
