"""batches mixed up: the mask of batch 0 is used for all"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask[:1].expand_as(mask), w)
