"""loops: the contraction as five nested Python loops, the definition itself.

Everything around the contraction is PyTorch, as in ``einsum``. The loops take B * N^3 * H steps of
interpreted Python, 0.1 to 0.2 microseconds each, so N above 16 is refused.
"""

import torch
from torch.nn.functional import layer_norm, linear

from trimul.problem import EPS
from trimul.rungs import full_fp32

MAX_N = 16


def pack(weights):
    """The loops use the weights as they come."""
    return weights


def contract(left, right):
    """``out[b][i][j][h] = sum over k of left[b][i][k][h] * right[b][j][k][h]``, on nested lists.

    left and right: lists of shape ``[B][N][N][H]``; so is the result.
    """
    size_b, size_n, size_h = len(left), len(left[0]), len(left[0][0][0])
    out = [[[[0.0] * size_h for j in range(size_n)] for i in range(size_n)] for b in range(size_b)]
    for b in range(size_b):
        for i in range(size_n):
            for j in range(size_n):
                for k in range(size_n):
                    for h in range(size_h):
                        out[b][i][j][h] += left[b][i][k][h] * right[b][j][k][h]
    return out


def forward(x, mask, packed):
    """x ``[B, N, N, D]`` fp32, mask ``[B, N, N]``, packed weights -> y ``[B, N, N, D]`` fp32.

    Raises ValueError above N=16.
    """
    if x.shape[1] > MAX_N:
        raise ValueError(
            f"loops is limited to N <= {MAX_N} (five nested Python loops), got N={x.shape[1]}: "
            "use the rung einsum for anything larger"
        )
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

        out = torch.tensor(contract(left.tolist(), right.tolist()), device=x.device)

        out = layer_norm(out, out.shape[-1:], w["to_out_norm.weight"], w["to_out_norm.bias"], EPS)
        return linear(out * out_gate, w["to_out.weight"]).contiguous()
