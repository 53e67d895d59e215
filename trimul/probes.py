"""What is asked of an implementation: the contest's cases, and the corners they leave out.

A probe is one case with one peculiarity, and one or more calls (``turns``). Its data are drawn from
the seed, so that the process that runs a stranger's code and the one that judges it draw the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from trimul.problem import (
    BENCHMARK_CASES,
    CORRECTNESS_CASES,
    MASKS,
    Case,
    Data,
    make_data,
    make_mask,
)

#: What each call of a probe finds changed since the call before it.
TURNS = {
    "first": ("x", "mask", "weights"),
    "poisoned": (),
    "not poisoned": (),
    "x changed in place": ("x",),
    "mask changed in place": ("mask",),
    "weights changed in place": ("weights",),
    "all changed in place": ("x", "mask", "weights"),
    "new tensors": ("x", "mask", "weights"),
    "x written just before": ("x",),
}
REPLAY = (
    "first",
    "x changed in place",
    "mask changed in place",
    "weights changed in place",
    "new tensors",
)
POISON = ("poisoned", "not poisoned")
BUSY = ("first", "x written just before")
BENCH = ("first", "all changed in place")

#: Value above which a number becomes infinite in fp16.
FP16_MAX = 65504.0


@dataclass(frozen=True)
class Probe:
    """One case and its peculiarity. ``hint``: what is wrong if only such a probe fails."""

    name: str
    case: Case
    mask: str = ""  # "" is the case's own
    values: str = "plain"
    layout: str = "plain"
    turns: tuple[str, ...] = ("first",)
    hint: str = ""
    telling: bool = False  # small and rich: a wrong result is compared with those of known mistakes

    def __str__(self):
        return f"{self.name} ({self.case})"


def contest(full: bool, max_n: int | None = None) -> list[Probe]:
    """The 18 correctness cases: at full size, or each at its own small N, 7 to 24."""
    order = sorted(range(len(CORRECTNESS_CASES)), key=lambda i: CORRECTNESS_CASES[i].n)
    small = {index: 7 + rank for rank, index in enumerate(order)}
    return [
        Probe(f"case {i + 1}", case if full else case.resized(_capped(small[i], max_n)))
        for i, case in enumerate(CORRECTNESS_CASES)
    ]


def corners(on_gpu: bool, max_n: int | None = None) -> list[Probe]:
    """Everything GPU MODE does not ask: ragged sizes, odd masks, strides, extremes, replay.

    On a GPU the sizes are larger, to span several tiles.
    """
    extra = 64 if on_gpu else 0

    def case(n, seed, **kwargs):
        return Case(n=_capped(n + extra, max_n), seed=3000 + seed, **kwargs)

    sizes = (1, 2, 3, 17, 31, 33, 65) + (100, 127, 129, 257) * on_gpu
    ragged = sorted({_capped(n, max_n) for n in sizes})
    probes = [
        Probe(
            "ragged N",
            Case(n=n, batch=2 if n in (3, 17) else 1, masked=True, seed=3100 + n),
            turns=POISON,
            hint="sizes that are not a multiple of a tile are wrong",
        )
        for n in ragged
    ]
    probes += [
        Probe("batches", case(7, 1, batch=3, masked=True), telling=True),
        Probe("soft mask", case(12, 2, batch=2), mask="soft and zero", telling=True),
        Probe("soft mask", case(9, 3, batch=2, dim=384), mask="soft and zero", telling=True),
        Probe("padding mask (bool)", case(13, 4), mask="padding", telling=True),
        Probe("mask of zeros", case(5, 5), mask="zeros", hint="a mask of zeros is wrong"),
        Probe("mask expanded over rows", case(11, 6, batch=2), mask="rows", layout="mask expanded"),
        Probe(
            "mask expanded over batches",
            case(10, 7, batch=3),
            mask="batches",
            layout="mask expanded",
        ),
        Probe("mask transposed", case(11, 8), mask="soft and zero", layout="mask transposed"),
        Probe("x transposed", case(10, 9, batch=2, masked=True), layout="x transposed"),
        Probe("x a slice", case(9, 10, batch=2, masked=True), layout="x slice"),
        Probe("x above 65504", case(8, 11, masked=True), values="x above 65504"),
        Probe("out above 65504", case(8, 12, masked=True), values="out above 65504"),
        Probe(
            "x of tiny variance",
            case(8, 13, masked=True),
            values="tiny x",
            telling=True,
            hint="x of tiny variance is wrong: the first norm's epsilon, or a lost small number",
        ),
        Probe(
            "out of tiny variance",
            case(8, 14, masked=True),
            values="tiny out",
            telling=True,
            hint="out of tiny variance is wrong: the second norm's epsilon (scaled with out?), "
            "or a lost small number",
        ),
        Probe("replay", case(26, 15, masked=True), turns=REPLAY),
    ]
    if on_gpu:
        probes.append(Probe("busy stream", case(64, 16, masked=True), turns=BUSY))
    return probes


def benchmarks(full: bool) -> list[Probe]:
    """The seven benchmark cases, at full size or at N from 8 to 20."""
    return [
        Probe(f"benchmark {i + 1}", case if full else case.resized(8 + 2 * i), turns=BENCH)
        for i, case in enumerate(BENCHMARK_CASES)
    ]


def _capped(n: int, max_n: int | None) -> int:
    return n if max_n is None else min(n, max_n)


def draw(probe: Probe, turn: int, device: str) -> Data:
    """What the probe's call number ``turn`` is given. The same on each call, in any process.

    What changes in place keeps its sum and all but its last two channels: too little for what
    recognises a tensor by a part or a sum of it.
    """
    done = probe.turns[: turn + 1]
    in_place = [name for name in done if "in place" in name]
    seeds = {
        part: probe.case.seed
        + 100_000 * sum(part in TURNS[name] for name in done if name not in in_place)
        for part in ("x", "mask", "weights")
    }
    drawn = {
        seed: make_data(replace(probe.case, seed=seed), device) for seed in set(seeds.values())
    }
    mask = drawn[seeds["mask"]].mask
    if probe.mask:
        mask = _mask(probe.mask, replace(probe.case, seed=seeds["mask"]), device)
    data = Data(drawn[seeds["x"]].x, mask, drawn[seeds["weights"]].weights)
    for part in (part for name in in_place for part in TURNS[name]):
        data = data._replace(**{part: _last_two_swapped(getattr(data, part))})
    return _LAYOUTS[probe.layout](_VALUES[probe.values](data))


def _last_two_swapped(part):
    if isinstance(part, dict):
        return {name: _last_two_swapped(weight) for name, weight in part.items()}
    *others, last = range(part.shape[-1])
    return part[..., [*others[:-1], last, *others[-1:]]]


def _mask(kind: str, case: Case, device: str) -> torch.Tensor:
    if kind in MASKS:
        return make_mask(kind, case, device)
    soft = make_mask("soft", case, device)
    if kind == "zeros":
        return torch.zeros_like(soft)
    if kind == "soft and zero":
        return torch.where(soft < 0.3, 0.0, soft)
    # Views of a full-size buffer: read as contiguous they give other numbers, not a segfault.
    view = soft[:, :1] if kind == "rows" else soft[:1]
    return view.expand(soft.shape)


def _scaled(data: Data, **factors: float) -> Data:
    weights = {name: w * factors.get(name.partition(".")[0], 1) for name, w in data.weights.items()}
    return data._replace(weights=weights)


def _with_planted_values(data: Data) -> Data:
    data.x[..., ::31] *= 1e5
    return data


_VALUES: dict[str, Callable[[Data], Data]] = {
    "plain": lambda data: data,
    "x above 65504": _with_planted_values,
    # left and right of about 200 give an out beyond 65504
    "out above 65504": lambda data: _scaled(data, left_proj=300, right_proj=300),
    # a variance of 1e-6, a tenth of epsilon
    "tiny x": lambda data: data._replace(x=data.x * 1e-3),
    # a standard deviation of out of about 3e-3, whose square is epsilon
    "tiny out": lambda data: _scaled(data, left_proj=0.05, right_proj=0.05),
}


def _transposed(t: torch.Tensor) -> torch.Tensor:
    return t.transpose(1, 2).contiguous().transpose(1, 2)


def _slice(x: torch.Tensor) -> torch.Tensor:
    batch, n, _, dim = x.shape
    larger = torch.ones(batch, n + 3, n + 2, dim + 8, device=x.device)
    view = larger[:, 2 : n + 2, 1 : n + 1, 4 : dim + 4]
    return view.copy_(x)


_LAYOUTS: dict[str, Callable[[Data], Data]] = {
    "plain": lambda data: data,
    "mask expanded": lambda data: data,  # it is drawn so
    "mask transposed": lambda data: data._replace(mask=_transposed(data.mask)),
    "x transposed": lambda data: data._replace(x=_transposed(data.x)),
    "x slice": lambda data: data._replace(x=_slice(data.x)),
}
