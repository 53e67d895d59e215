"""einsum: the whole operator in plain PyTorch, fp32 throughout. The reference of the contest.

One line of code per line of maths. Every product is a true fp32 product: TF32 (which keeps 10 of
fp32's 23 mantissa bits) is switched off for the call and the caller's setting put back.
"""

import torch
from torch.nn.functional import layer_norm, linear

from trimul.problem import EPS
from trimul.rungs import full_fp32


def pack(weights):
    """The reference uses the weights as they come."""
    return weights


def forward(x, mask, packed):
    """x ``[B, N, N, D]`` fp32, mask ``[B, N, N]``, packed weights -> y ``[B, N, N, D]`` fp32."""
    w = packed
    mask = mask.unsqueeze(-1).to(x.dtype)
    with full_fp32():
        n = layer_norm(x, x.shape[-1:], w["norm.weight"], w["norm.bias"], EPS)
        left = linear(n, w["left_proj.weight"])
        right = linear(n, w["right_proj.weight"])

        left = left * mask
        right = right * mask

        left = left * linear(n, w["left_gate.weight"]).sigmoid()
        right = right * linear(n, w["right_gate.weight"]).sigmoid()
        out_gate = linear(n, w["out_gate.weight"]).sigmoid()

        out = torch.einsum("bikh,bjkh->bijh", left, right)

        out = layer_norm(out, out.shape[-1:], w["to_out_norm.weight"], w["to_out_norm.bias"], EPS)
        return linear(out * out_gate, w["to_out.weight"]).contiguous()
