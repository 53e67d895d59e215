"""work is left in a background thread: the result changes after the call returned"""

import threading
import time

import torch
from _right import trimul


def custom_kernel(data):
    y = torch.zeros_like(data[0]).contiguous()

    def work():
        time.sleep(0.01)
        y.copy_(trimul(*data[:3]))

    threading.Thread(target=work).start()
    return y
