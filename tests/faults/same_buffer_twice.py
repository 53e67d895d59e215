"""one buffer is returned twice"""

import torch
from _right import trimul

buffers = {}


def custom_kernel(data):
    x, mask, w, _ = data
    if x.shape not in buffers:
        buffers[x.shape] = torch.empty_like(x, memory_format=torch.contiguous_format)
    return buffers[x.shape].copy_(trimul(x, mask, w))
