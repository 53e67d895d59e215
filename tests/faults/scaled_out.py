"""out of tiny variance is wrong"""

from _right import contract, trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask, w, contract=lambda a, b: contract(a / 2, b / 2))
