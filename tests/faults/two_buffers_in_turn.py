"""one buffer is returned twice"""

import torch
from _right import trimul

buffers = {}


def custom_kernel(data):
    x, mask, w, _ = data
    pair = buffers.setdefault(
        x.shape,
        [
            torch.empty_like(x, memory_format=torch.contiguous_format),
            torch.empty_like(x, memory_format=torch.contiguous_format),
        ],
    )
    pair.reverse()
    return pair[0].copy_(trimul(x, mask, w))
