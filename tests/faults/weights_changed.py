"""the weights to_out.weight changed during the call"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    y = trimul(x, mask, w)
    w["to_out.weight"].data.mul_(1.0001)
    return y
