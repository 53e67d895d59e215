"""returns a Parameter, not a plain torch.Tensor"""

import torch
from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return torch.nn.Parameter(trimul(x, mask, w))
