"""the mask is applied to x before the norm"""

import torch
from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x * mask.unsqueeze(-1), torch.ones_like(mask), w)
