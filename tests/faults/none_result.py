"""returns a NoneType, not a plain torch.Tensor"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    trimul(x, mask, w)
