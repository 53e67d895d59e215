"""batches mixed up: wrong wherever there is more than one"""

from _right import contract, trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask, w, contract=lambda a, b: contract(a, b.roll(1, 0)))
