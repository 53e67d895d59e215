"""the weights left_proj.weight changed during the call"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    w["left_proj.weight"] = w["left_proj.weight"].contiguous().clone()
    return trimul(x, mask, w)
