"""Checks of lesson 01: FLOPs, the range of the contest, the incoming loops, the reads of tiles."""

from __future__ import annotations

import torch

from trimul.exercises import exercise, require
from trimul.problem import BENCHMARK_CASES, Case, stages


@exercise("01.flops")
def _(flops):
    for n, batch, hidden in [(3, 1, 1), (2, 1, 5), (4, 3, 2), (1024, 1, 128)]:
        expected = stages(Case(n, batch, hidden=hidden))[1].flops
        got = flops(n, batch, hidden)
        hint = "that is the number of multiply-adds, each is 2 FLOPs" if got * 2 == expected else ""
        require(
            got == expected,
            f"flops({n}, {batch}, {hidden}) gives {got}, and the loops do {expected}"
            + (f": {hint}" if hint else ""),
        )


@exercise("01.range")
def _(ratio):
    work = [stages(case)[1].flops for case in BENCHMARK_CASES]
    hints = {
        192: "that takes D=384 for the hidden size and forgets B=2 in the smallest case",
        96: "that takes D=384 for the hidden size, and H is 128 in every case",
        64: "that forgets that the smallest case has B=2",
        1 / 32: "that is the smallest over the largest",
    }
    require(
        ratio == max(work) / min(work),
        f"{ratio!r} is not it: {hints.get(ratio, 'write down B * N**3 * H for both cases first')}",
    )


#: What someone computes instead of the incoming update, and what to call it.
_MISTAKES = {
    "bikh,bjkh->bijh": "this is the outgoing update; in the incoming one k comes first in both",
    "bkjh,bkih->bijh": "left and right are exchanged: left goes with i, right with j",
    "bikh,bkjh->bijh": "left is read along row i; incoming reads column i, left[b][k][i][h]",
    "bkih,bjkh->bijh": "right is read along row j; incoming reads column j, right[b][k][j][h]",
}


@exercise("01.incoming")
def _(contract_incoming):
    shape = batch, n, _, hidden = 2, 3, 3, 2
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randint(1, 10, shape, generator=generator).double() for _ in range(2))
    expected = torch.einsum("bkih,bkjh->bijh", left, right)
    answer = contract_incoming(left.tolist(), right.tolist())
    got = torch.as_tensor(answer, dtype=torch.float64)
    require(
        got.shape == expected.shape,
        f"for B={batch}, N={n}, H={hidden} the result has the shape {list(got.shape)}, "
        f"not {list(shape)}",
    )
    if torch.equal(got, expected):
        return
    same_as = [
        why
        for subscripts, why in _MISTAKES.items()
        if torch.equal(got, torch.einsum(subscripts, left, right))
    ]
    where = tuple(torch.nonzero(got != expected)[0].tolist())
    require(
        False,
        f"out{list(where)} is {got[where].item():g}, not {expected[where].item():g}"
        + "".join(f": {why}" for why in same_as),
    )


@exercise("01.tile_reads")
def _(tile_reads):
    for n, tile in [(4, 1), (4, 4), (8, 2), (5, 2), (7, 3), (1024, 64)]:
        sides = [min(tile, n - start) for start in range(0, n, tile)]
        expected = sum((rows + columns) * n for rows in sides for columns in sides)
        got = tile_reads(n, tile)
        hints = {
            expected / 2: "count the loads of right too",
            2
            * n**3
            / tile**2: "an element is used by one row or column of the tile, T times, not T*T",
            2 * n**3 / tile: "T does not divide N: there are ceil(N / T) tiles a side",
            2 * n**2 * (n // tile): "T does not divide N: the last, smaller tiles load too",
        }
        require(
            got == expected,
            f"tile_reads({n}, {tile}) gives {got}, not {expected}"
            + (f": {hints[got]}" if got in hints else ""),
        )
