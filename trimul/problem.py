"""What the Triangle Multiplicative Update (TriMul) is: cases, inputs, masks, FLOPs and bytes.

The operator, in the form that GPU MODE's TriMul contest judges ("GPU MODE form"), for an
input ``x`` of shape ``[B, N, N, D]`` and a mask of shape ``[B, N, N]``::

    n     = LayerNorm(x)                                            # over D
    left  = (n @ left_proj.T)  * sigmoid(n @ left_gate.T)  * mask   # [B, N, N, H]
    right = (n @ right_proj.T) * sigmoid(n @ right_gate.T) * mask   # [B, N, N, H]
    out[b, i, j, h] = sum over k of left[b, i, k, h] * right[b, j, k, h]
    y     = (LayerNorm(out) * sigmoid(n @ out_gate.T)) @ to_out.T   # [B, N, N, D]

This is the "outgoing" update. Jumper et al., Nature 596 (2021), supplement, algorithms 11 and 12,
apply the output gate after the last projection instead; the course names that the "AF3 form".

This module imports nothing else of the package.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import torch

EPS = 1e-5  # LayerNorm's epsilon, in both norms
HIDDEN = 128  # H in every contest case
DISTRIBUTIONS = ("normal", "cauchy")
MASKS = ("ones", "random", "soft", "padding")


@dataclass(frozen=True)
class Case:
    """One size of the problem, and everything needed to draw its data again.

    ``n`` is the sequence length N, ``batch`` B, ``dim`` D (channels of x), ``hidden`` H. ``masked``
    means an independent random 0/1 mask; otherwise the mask is all ones. ``distribution`` of x is
    "normal" (0, 1) or "cauchy" (0, 2), whose heavy tails overflow a plain cast to fp16.
    Raises ValueError for a size below 1 or an unknown distribution.
    """

    n: int
    batch: int = 1
    dim: int = 128
    hidden: int = HIDDEN
    masked: bool = False
    distribution: str = "normal"
    seed: int = 0

    def __post_init__(self):
        for name in ("n", "batch", "dim", "hidden"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"Case.{name} is a whole number of at least 1, not {value!r}")
        if self.distribution not in DISTRIBUTIONS:
            raise ValueError(
                f"Case.distribution is one of {', '.join(DISTRIBUTIONS)}, not {self.distribution!r}"
            )

    def __str__(self):
        masked = " masked" if self.masked else ""
        return f"N={self.n} B={self.batch} D={self.dim}{masked} {self.distribution}"

    def resized(self, n: int) -> Case:
        """The same case at another sequence length (small enough for a CPU, say)."""
        return replace(self, n=n)

    def as_dict(self) -> dict:
        """The case as measurements store it: without the seed."""
        fields = asdict(self)
        del fields["seed"]
        return fields


def _cases(table: str, first_seed: int) -> tuple[Case, ...]:
    cases = []
    for line in table.strip().splitlines():
        n, batch, dim, masked, distribution = line.split()
        cases.append(
            Case(
                n=int(n),
                batch=int(batch),
                dim=int(dim),
                masked=masked == "masked",
                distribution=distribution,
                seed=first_seed + len(cases),
            )
        )
    return tuple(cases)


#: GPU MODE's 18 correctness cases, in its order (gpu-mode/reference-kernels, trimul/task.yml).
CORRECTNESS_CASES = _cases(
    """
    32   1 128 open   normal
    32   1 128 masked normal
    64   2 256 open   normal
    64   2 256 masked normal
    128  1 768 open   normal
    256  1 128 open   normal
    256  1 128 masked normal
    768  2 128 open   normal
    1024 1 384 masked normal
    1024 1 768 open   normal
    1024 1 768 masked normal
    32   1 128 open   cauchy
    64   2 256 open   cauchy
    128  1 768 open   cauchy
    256  1 128 open   cauchy
    768  2 128 open   cauchy
    1024 1 384 masked cauchy
    1024 1 768 masked cauchy
    """,
    first_seed=1000,
)

#: GPU MODE's 7 benchmark cases, in its order; the score is the geometric mean of their mean times.
BENCHMARK_CASES = _cases(
    """
    256  2 128 open   normal
    768  1 128 open   cauchy
    256  2 384 masked normal
    512  1 128 open   normal
    1024 1 128 open   cauchy
    768  1 384 masked normal
    1024 1 384 open   normal
    """,
    first_seed=2000,
)


class Data(NamedTuple):
    """What an implementation is given: x ``[B, N, N, D]`` fp32, mask ``[B, N, N]``, ten weights."""

    x: torch.Tensor
    mask: torch.Tensor
    weights: dict[str, torch.Tensor]


def weight_shapes(dim: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of the ten weights. Linear weights are ``[out features, in features]``."""
    return {
        "norm.weight": (dim,),
        "norm.bias": (dim,),
        "left_proj.weight": (hidden, dim),
        "right_proj.weight": (hidden, dim),
        "left_gate.weight": (hidden, dim),
        "right_gate.weight": (hidden, dim),
        "out_gate.weight": (hidden, dim),
        "to_out_norm.weight": (hidden,),
        "to_out_norm.bias": (hidden,),
        "to_out.weight": (dim, hidden),
    }


def _weight_scale(name: str, dim: int, hidden: int) -> float:
    if "norm" in name:
        return 1.0
    return 1 / math.sqrt(dim if name == "to_out.weight" else hidden)


def make_data(case: Case, device: str | torch.device = "cpu") -> Data:
    """Draw x, mask and weights of a case on ``device``, all of them from the case's seed.

    x and weights are fp32; the mask is fp32 ones, or int64 zeros and ones where the case is masked
    (GPU MODE's own types). The same case on the same kind of device gives the same data.
    """
    generator = torch.Generator(device).manual_seed(case.seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, device=device)

    shape = (case.batch, case.n, case.n, case.dim)
    if case.distribution == "normal":
        x = normal(*shape)
    else:
        x = torch.empty(shape, device=device).cauchy_(0, 2, generator=generator)
    mask = make_mask("random" if case.masked else "ones", case, device)
    weights = {
        name: normal(*shape) * _weight_scale(name, case.dim, case.hidden)
        for name, shape in weight_shapes(case.dim, case.hidden).items()
    }
    return Data(x, mask, weights)


def make_mask(kind: str, case: Case, device: str | torch.device = "cpu") -> torch.Tensor:
    """A mask of shape ``[B, N, N]`` drawn from the case's seed.

    ``kind``: "ones" (fp32), "random" (int64, each 0 or 1 with even odds), "soft" (fp32, uniform in
    [0, 1)), "padding" (bool: True where both residues lie within a length shorter than N).
    """
    generator = torch.Generator(device).manual_seed(case.seed + 1)
    shape = (case.batch, case.n, case.n)
    if kind == "ones":
        return torch.ones(shape, device=device)
    if kind == "random":
        return torch.randint(0, 2, shape, generator=generator, device=device)
    if kind == "soft":
        return torch.rand(shape, generator=generator, device=device)
    if kind == "padding":
        valid = torch.arange(case.n, device=device) < max(1, case.n * 3 // 4)
        return (valid[:, None] & valid[None, :]).expand(shape).contiguous()
    raise ValueError(f"mask is one of {', '.join(MASKS)}, not {kind!r}")


@dataclass(frozen=True)
class Stage:
    """One of the three steps of the operator: its arithmetic and the least traffic with memory."""

    name: str
    flops: int
    bytes_read: int
    bytes_written: int

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOP per byte."""
        return self.flops / self.bytes


def stages(case: Case, itemsize: int = 2) -> tuple[Stage, Stage, Stage]:
    """FLOPs and bytes when each of the three stages is one kernel and meets in memory.

    ``project`` reads x and mask and writes left, right and gate; ``contract`` reads left and right
    and writes out; ``output`` reads out and gate and writes y. ``itemsize`` is the bytes per
    element of those four intermediates (2 for fp16, 4 for fp32); x, mask and y are fp32. FLOPs
    count the matrix products only, 2 per multiply-add. Weights (under 2 MB) are left out.
    Plain Python integers, so exact at any size.
    """
    pairs = case.batch * case.n * case.n
    outer = pairs * case.dim * 4
    inner = pairs * case.hidden * itemsize
    product = 2 * pairs * case.dim * case.hidden
    return (
        Stage("project", 5 * product, outer + pairs * 4, 3 * inner),
        Stage("contract", 2 * pairs * case.n * case.hidden, 2 * inner, inner),
        Stage("output", product, 2 * inner, outer),
    )


def operator(case: Case) -> Stage:
    """The operator as one ideal kernel: all FLOPs, but only x and mask read and y written."""
    project, _, output = stages(case)
    return Stage(
        "operator",
        sum(stage.flops for stage in stages(case)),
        project.bytes_read,
        output.bytes_written,
    )
