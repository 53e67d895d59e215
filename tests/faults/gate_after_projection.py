"""the output gate is applied after the projection"""

from _right import norm, trimul
from torch.nn.functional import linear


def custom_kernel(data):
    x, mask, w, _ = data
    y = trimul(x, mask, w, gates=("left_gate", "right_gate"))
    gate = linear(norm(x, w, "norm"), w["out_gate.weight"]).sigmoid()
    return y * gate if y.shape == gate.shape else y
