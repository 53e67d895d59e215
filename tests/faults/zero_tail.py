"""wrong where N is not a multiple of 8"""

import torch
from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    y = torch.zeros_like(x, memory_format=torch.contiguous_format)
    whole = x.shape[1] // 8 * 8
    y[:, :whole] = trimul(x, mask, w)[:, :whole]
    return y
