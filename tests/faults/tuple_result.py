"""returns a tuple, not a plain torch.Tensor"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return (trimul(x, mask, w),)
