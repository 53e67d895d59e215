"""the right gate is missing"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x, mask, w, gates=("left_gate", "out_gate"))
