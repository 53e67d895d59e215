"""the input x changed during the call"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    y = trimul(x, mask, w)
    x.add_(1)
    return y
