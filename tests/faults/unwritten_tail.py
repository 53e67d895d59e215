"""part of the result is never written"""

import torch
from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    y = torch.empty_like(x)
    whole = x.shape[1] // 16 * 16 or x.shape[1]  # rows in whole tiles of 16
    y[:, :whole] = trimul(x, mask, w)[:, :whole]
    return y.contiguous()
