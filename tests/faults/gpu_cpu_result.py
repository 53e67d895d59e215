"""returns a tensor on cpu, not on cuda:0"""

from _right import trimul


def custom_kernel(data):
    return trimul(*data[:3]).cpu()
