"""x is assumed contiguous"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    whole = x.new_empty(0).set_(x.untyped_storage(), 0, x.shape)
    return trimul(whole, mask, w)
