"""raises ValueError: N must be a multiple of 8"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    if x.shape[1] % 8:
        raise ValueError("N must be a multiple of 8")
    return trimul(x, mask, w)
