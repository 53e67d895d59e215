"""NaN or inf where out exceeds 65504: it overflows in fp16"""

from _right import contract, trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask, w, contract=lambda a, b: contract(a, b).half().float())
