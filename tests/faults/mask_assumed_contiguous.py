"""mask is assumed contiguous"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    whole = mask.new_empty(0).set_(mask.untyped_storage(), mask.storage_offset(), mask.shape)
    return trimul(x, whole, w)
