"""returns a strided result (strides (0, 0, 0, 0)), not a contiguous one"""

import torch


def custom_kernel(data):
    return torch.zeros(1, device=data[0].device).expand(data[0].shape)
