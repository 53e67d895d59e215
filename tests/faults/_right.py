"""A right implementation with openings for one fault each. Not a submission."""

import torch
from torch.nn.functional import layer_norm, linear

GATES = ("left_gate", "right_gate", "out_gate")


def norm(x, w, name):
    return layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)


def contract(left, right):
    return torch.einsum("bikh,bjkh->bijh", left, right)


def trimul(x, mask, w, left_mask=None, right_mask=None, gates=GATES, contract=contract):
    """fp32 ``[B, N, N, D]``; the masks of left and right default to ``mask``."""
    n = norm(x, w, "norm")

    def gate(name):
        return linear(n, w[f"{name}.weight"]).sigmoid() if name in gates else 1.0

    def operand(side, own_mask):
        factor = (mask if own_mask is None else own_mask).unsqueeze(-1)
        return linear(n, w[f"{side}_proj.weight"]) * gate(f"{side}_gate") * factor

    out = contract(operand("left", left_mask), operand("right", right_mask))
    return linear(norm(out, w, "to_out_norm") * gate("out_gate"), w["to_out.weight"])
