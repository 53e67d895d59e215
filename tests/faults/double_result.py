"""returns torch.float64, not torch.float32"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask, w).double()
