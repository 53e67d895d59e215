"""Work on another stream that waits for the caller's, and that the caller's waits for."""

import torch
from _right import trimul

stream = torch.cuda.Stream()


def custom_kernel(data):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = trimul(*data[:3])
    torch.cuda.current_stream().wait_stream(stream)
    y.record_stream(torch.cuda.current_stream())
    return y
