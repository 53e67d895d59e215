"""work is left on another stream: the result changes after the call returned"""

import torch
from _right import trimul

stream = torch.cuda.Stream()


def custom_kernel(data):
    y = torch.zeros_like(data[0]).contiguous()
    right = trimul(*data[:3])
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)  # clock cycles, some milliseconds
        y.copy_(right)
        right.record_stream(stream)
    return y
