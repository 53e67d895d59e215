"""returns shape [1, 49, 128], not [1, 7, 7, 128]"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask, w).flatten(1, 2)
