"""returns a strided result"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask, w).transpose(1, 2).contiguous().transpose(1, 2)
