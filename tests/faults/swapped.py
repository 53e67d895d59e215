"""left and right are swapped"""

from _right import contract, trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask, w, contract=lambda a, b: contract(b, a))
