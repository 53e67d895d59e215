"""The formula as it stands, with the contest's own imports."""

#!POPCORN leaderboard trimul
from task import input_t, output_t
from torch import einsum
from torch.nn.functional import layer_norm, linear
from utils import DeterministicContext


def custom_kernel(data: input_t) -> output_t:
    x, mask, w, config = data
    with DeterministicContext():
        n = layer_norm(x, (config["dim"],), w["norm.weight"], w["norm.bias"])
        mask = mask.unsqueeze(-1)
        left = linear(n, w["left_proj.weight"]) * linear(n, w["left_gate.weight"]).sigmoid() * mask
        right = (
            linear(n, w["right_proj.weight"]) * linear(n, w["right_gate.weight"]).sigmoid() * mask
        )
        out = einsum("...ikd,...jkd->...ijd", left, right)
        width = (config["hidden_dim"],)
        out = layer_norm(out, width, w["to_out_norm.weight"], w["to_out_norm.bias"])
        return linear(out * linear(n, w["out_gate.weight"]).sigmoid(), w["to_out.weight"])
