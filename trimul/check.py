"""Is a result right? The operator in float64, a comparison, and the names of usual mistakes.

``exact`` shares no code with the rungs. Its options compute the results of known mistakes
(``VARIANTS``), so that a wrong result can be named instead of only measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from trimul.problem import EPS

#: GPU MODE's tolerance: right where ``|y - e| <= TOLERANCE + TOLERANCE * |e|``.
TOLERANCE = 2e-2

CHUNK = 1 << 24  # elements handled at a time: 128 MB in float64

#: What is wrong, in words -> the options of ``exact`` that compute it.
VARIANTS = {
    "the mask is ignored": {"mask_on": ()},
    "the mask is applied on the left only": {"mask_on": ("left",)},
    "the mask is applied on the right only": {"mask_on": ("right",)},
    "the mask is treated as boolean (mask != 0): it is a factor": {"mask_as": "nonzero"},
    "the mask is treated as boolean (mask > 0.5): it is a factor": {"mask_as": "over half"},
    "the mask is truncated to whole numbers: it is a factor": {"mask_as": "whole"},
    "the mask is applied to x before the norm": {"mask_on": ("x",)},
    "the mask is applied to the result": {"mask_on": ("y",)},
    "the mask is transposed": {"mask_as": "transposed"},
    "incoming is computed, not outgoing": {"incoming": True},
    "left and right are swapped": {"swapped": True},
    "the left gate is missing": {"without": ("left_gate",)},
    "the right gate is missing": {"without": ("right_gate",)},
    "the output gate is missing": {"without": ("out_gate",)},
    "all three gates are missing": {"without": ("left_gate", "right_gate", "out_gate")},
    "the output gate is applied after the projection (AF3 form)": {"gate_last": True},
    "the weight and bias of norm are missing": {"without": ("norm",)},
    "the weight and bias of to_out_norm are missing": {"without": ("to_out_norm",)},
    "the first norm lacks its epsilon": {"eps_in": 0.0},
    "the second norm lacks its epsilon": {"eps_out": 0.0},
    "batches mixed up: x of batch 0 is used for all": {"batch_zero": ("left", "right", "gate")},
    "batches mixed up: left of batch 0 is used for all": {"batch_zero": ("left", "left mask")},
    "batches mixed up: right of batch 0 is used for all": {"batch_zero": ("right", "right mask")},
    "batches mixed up: the mask of batch 0 is used for all": {
        "batch_zero": ("left mask", "right mask")
    },
}


@torch.no_grad()
def exact(x: torch.Tensor, mask: torch.Tensor, weights: dict, **variant) -> torch.Tensor:
    """The operator in float64: x ``[B, N, N, D]``, mask ``[B, N, N]`` -> y ``[B, N, N, D]``.

    Runs on the device of x, any strides, any dtypes. Holds y, left and right of one batch, and
    chunks of rows: some 13 GB at N=1024, D=768, x included. ``variant``: options of ``VARIANTS``.
    """
    y = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    weights = {name: weight.double() for name, weight in weights.items()}
    for b in range(len(x)):
        for rows, values in _exact_batch(x, mask, weights, b, **variant):
            y[b, rows] = values
    return y


def _exact_batch(
    x,
    mask,
    w,
    b,
    *,
    mask_on=("left", "right"),
    mask_as="factor",
    incoming=False,
    swapped=False,
    without=(),
    gate_last=False,
    eps_in=EPS,
    eps_out=EPS,
    batch_zero=(),
) -> Iterator[tuple[slice, torch.Tensor]]:
    _, n, _, dim = x.shape
    hidden = len(w["to_out_norm.weight"])
    chunks = _row_chunks(n, n * max(dim, hidden))

    def batch_of(name):
        return 0 if name in batch_zero else b

    def masked(v, who, rows):
        if who not in mask_on:
            return v
        return v * _mask_values(mask[batch_of(f"{who} mask")], mask_as)[rows, :, None]

    def normalised(who, rows):
        v = masked(x[batch_of(who), rows].double(), "x", rows)
        return _norm(v, w, "norm", eps_in, "norm" not in without)

    def gated(value, normal, gate):
        return value if gate in without else value * torch.sigmoid(normal @ w[f"{gate}.weight"].T)

    def operand(side):  # [H, N, N]
        values = torch.empty(hidden, n, n, dtype=torch.float64, device=x.device)
        for rows in chunks:
            normal = normalised(side, rows)
            v = gated(normal @ w[f"{side}_proj.weight"].T, normal, f"{side}_gate")
            values[:, rows] = masked(v, side, rows).permute(2, 0, 1)
        return values

    left, right = operand("left"), operand("right")
    if swapped:
        left, right = right, left
    if incoming:
        left, right = left.transpose(1, 2), right.transpose(1, 2)
    for rows in chunks:
        out = (left[:, rows] @ right.transpose(1, 2)).permute(1, 2, 0)
        out = _norm(out, w, "to_out_norm", eps_out, "to_out_norm" not in without)
        normal = normalised("gate", rows)
        if gate_last:
            values = gated(out @ w["to_out.weight"].T, normal, "out_gate")
        else:
            values = gated(out, normal, "out_gate") @ w["to_out.weight"].T
        yield rows, masked(values, "y", rows)


def _row_chunks(rows: int, row_size: int) -> list[slice]:
    step = max(1, CHUNK // row_size)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _mask_values(mask, meaning):
    values = mask.double()
    if meaning == "nonzero":
        return (values != 0).double()
    if meaning == "over half":
        return (values > 0.5).double()
    if meaning == "whole":
        return values.trunc()
    return values.T if meaning == "transposed" else values


def _norm(v, w, name, eps, affine):
    centred = v - v.mean(-1, keepdim=True)
    normal = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return normal * w[f"{name}.weight"] + w[f"{name}.bias"] if affine else normal


def can_be(variant: dict, dim: int, hidden: int) -> bool:
    """Whether a variant exists at these widths: a gate of width H fits y ``[..., D]`` if H = D."""
    return dim == hidden or not variant.get("gate_last")


@dataclass(frozen=True)
class Comparison:
    """How a result differs from what was expected.

    ``max_error`` is the largest absolute error (NaN or inf if the result has one there);
    ``relative_error`` the 2-norm of the error over that of the expected values; ``wrong`` the
    fraction of elements out of tolerance; ``nonfinite`` the number of NaN and inf; ``worst`` the
    index (b, i, j, d) furthest out of tolerance (the first NaN or inf, if there is one), ``got``
    and ``expected`` the values there; ``pattern`` says which part is wrong, "" if none is.
    """

    ok: bool
    max_error: float
    relative_error: float
    wrong: float
    nonfinite: int
    worst: tuple[int, ...]
    got: float
    expected: float
    pattern: str

    def __str__(self):
        if self.ok:
            return f"right, largest error {self.max_error:.2g}"
        return (
            f"{self.wrong:.2g} of the elements wrong ({self.pattern}), worst at (b, i, j, d) = "
            f"{self.worst}: {self.got:.4g}, expected {self.expected:.4g}"
        )


@torch.no_grad()
def compare(y: torch.Tensor, expected: torch.Tensor) -> Comparison:
    """Compare y with the expected values, both ``[B, N, N, D]``, element by element in float64.

    Works in chunks of rows on the device of ``expected``; y may lie elsewhere. NaN or inf is always
    wrong, whatever was expected. Raises ValueError if the shapes differ.
    """
    if y.shape != expected.shape:
        raise ValueError(f"y has shape {list(y.shape)}, expected {list(expected.shape)}")
    bad = [torch.zeros(size, dtype=torch.bool, device=expected.device) for size in y.shape]
    nonfinite = wrong = 0
    largest = error_square = square = 0.0
    worst, worst_excess = (0,) * y.dim(), -math.inf
    for b in range(y.shape[0]):
        for rows in _row_chunks(y.shape[1], y[0, 0].numel()):
            want = expected[b, rows].double()
            error = (y[b, rows].to(expected.device).double() - want).abs_()
            error_square += error.square().sum().item()
            square += want.square().sum().item()
            largest = max(largest, error.max().item(), key=_nan_is_largest)
            excess = error.sub_(want.abs().mul_(TOLERANCE)).sub_(TOLERANCE)  # NaN where y is NaN
            nonfinite += (~excess.isfinite()).sum().item()
            out = ~(excess <= 0)
            wrong += out.sum().item()
            top = excess.nan_to_num_(nan=math.inf, posinf=math.inf).argmax()
            if excess.flatten()[top].item() > worst_excess:
                worst_excess = excess.flatten()[top].item()
                i, j, d = (index.item() for index in torch.unravel_index(top, excess.shape))
                worst = (b, rows.start + i, j, d)
            bad[0][b] |= out.any()
            bad[1][rows] |= out.any(2).any(1)
            bad[2] |= out.any(2).any(0)
            bad[3] |= out.any(1).any(0)
    return Comparison(
        ok=wrong == 0,
        max_error=largest,
        relative_error=math.sqrt(error_square / square) if square else math.sqrt(error_square),
        wrong=wrong / y.numel(),
        nonfinite=nonfinite,
        worst=worst,
        got=y[worst].item(),
        expected=expected[worst].item(),
        pattern=_pattern(bad) if wrong else "",
    )


def _nan_is_largest(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _pattern(bad: list[torch.Tensor]) -> str:
    """Which batches, rows, columns and channels have a wrong element: "only rows i >= 32"."""
    parts = [
        _range_of(axis, flags.nonzero().flatten().tolist(), len(flags))
        for axis, flags in zip(("batch", "row i", "column j", "channel d"), bad, strict=True)
    ]
    parts = [part for part in parts if part]
    return f"only {', '.join(parts)}" if parts else "everywhere"


def _range_of(axis: str, indices: list[int], size: int) -> str:
    name, _, letter = axis.partition(" ")
    many = f"{name}{'es' if name == 'batch' else 's'} {letter}".strip()
    first, last = indices[0], indices[-1]
    if len(indices) == size:
        return ""
    if len(indices) == 1:
        return f"{axis} = {first}" if letter else f"{axis} {first}"
    if len(indices) == last - first + 1:
        if last == size - 1:
            return f"{many} >= {first}"
        return f"{many} <= {last}" if first == 0 else f"{many} {first} to {last}"
    for parity in (0, 1):
        if indices == list(range(parity, size, 2)):
            return f"{('even', 'odd')[parity]} {many}"
    return f"{len(indices)} of {size} {many}"


#: Unit roundoff: half the distance from 1 to the next number. IEEE 754 and NVIDIA's TF32.
UNIT_ROUNDOFF = {"float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class ExpectedError:
    """What rounding alone should give: relative in the 2-norm, and the largest absolute error."""

    relative: float
    largest: float


def expected_error(
    storage: str = "float32",
    shape: tuple[int, int, int, int] = (1, 256, 256, 128),
    accumulate: str = "float32",
    hidden: int = 128,
    rms: float = 1.0,
) -> ExpectedError:
    """An order of magnitude for the error of y ``[B, N, N, D]``, from a model of random rounding.

    ``storage`` is the dtype ("float32", "tf32", "float16", "bfloat16") of the operands of the three
    products, and so of what is kept between them; ``accumulate`` that of the sums; ``rms`` the root
    mean square of y.

    The model: rounding to nearest is a relative error of rms 0.4 u, u the unit roundoff, averaged
    over the significand; independent errors add in squares (Higham, Accuracy and Stability of
    Numerical Algorithms, section 2.8, the "rule of thumb"). Ten stored quantities meet in one
    element of y: n, weight and result for each of left and right, then out, the output gate, their
    product and the last weight (a sigmoid damps the errors under it). A running sum of K terms adds
    0.4 u sqrt(K / 2). The largest of M normal errors is sqrt(2 ln M) of them. Cancellation and
    heavy tails are left out: trust it within a factor of four.
    """
    batch, n, _, dim = shape
    stored = 0.4 * UNIT_ROUNDOFF[storage] * math.sqrt(10)
    summed = 0.4 * UNIT_ROUNDOFF[accumulate] * math.sqrt((2 * dim + n + hidden) / 2)
    relative = math.hypot(stored, summed)
    return ExpectedError(
        relative, relative * rms * math.sqrt(2 * math.log(batch * n * n * dim + 1))
    )


def nearest_dtype(relative_error: float, shape: tuple[int, int, int, int]) -> str:
    """The storage dtype of nearest expected error: "float32", "float16 or TF32" or "bfloat16"."""
    distance = {
        dtype: abs(math.log(max(relative_error, 1e-12) / expected_error(dtype, shape).relative))
        for dtype in ("float32", "float16", "bfloat16")
    }
    nearest = min(distance, key=distance.get)
    return "float16 or TF32" if nearest == "float16" else nearest
