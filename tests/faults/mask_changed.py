"""the input mask changed during the call"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    y = trimul(x, mask, w)
    mask[0, 0, 0] = 1 - mask[0, 0, 0].int()
    return y
