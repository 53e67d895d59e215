"""changes the global setting current CUDA stream"""

import torch
from _right import trimul

stream = torch.cuda.Stream()


def custom_kernel(data):
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.set_stream(stream)
    y = trimul(*data[:3])
    torch.cuda.synchronize()
    return y
