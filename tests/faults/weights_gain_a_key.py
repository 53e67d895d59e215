"""the weights packed changed during the call"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    w["packed"] = None
    return trimul(x, mask, w)
