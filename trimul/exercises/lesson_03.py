"""Checks of lesson 03: how a GPU runs code."""

import math

from trimul import simulate
from trimul.exercises import exercise, is_number, require
from trimul.roofline import HARDWARE


def _close(value, expected) -> bool:
    return is_number(value) and math.isclose(value, expected, rel_tol=1e-6)


@exercise("03.busy")
def _(answer):
    for warps, latency, work in (
        (2, 600, 20),
        (8, 600, 20),
        (16, 670, 60),
        (30, 570, 19),
        (64, 9, 3),
    ):
        said, seen = answer(warps, latency, work), simulate.busy(warps, latency, work)
        require(
            is_number(said) and abs(said - seen) < 1e-9,
            f"{warps} warps, latency {latency}, work {work}: the simulator issues in {seen:.3f} of "
            f"the cycles, your formula gives {said!r}",
        )


@exercise("03.in_flight")
def _(answer):
    for name, latency_ns in (("H200", 338), ("A100", 330), ("B200", 400)):
        hardware = HARDWARE[name]
        expected = latency_ns * 1e-9 * hardware.bandwidth / hardware.processors
        said = answer(latency_ns, hardware.bandwidth, hardware.processors)
        times = f", but {said / expected:.3g} times that" if is_number(said) else ""
        require(
            is_number(said) and abs(said - expected) <= 1,  # whole bytes will do
            f"latency {latency_ns} ns, {hardware.bandwidth:.3g} B/s, {hardware.processors} SMs: "
            f"{said!r} is not the bytes that each SM must keep on their way{times}",
        )


@exercise("03.useful")
def _(answer):
    for n, tile, batch, processors in (
        (1024, 128, 128, 132),
        (256, 128, 1, 4),
        (1000, 128, 128, 132),
        (1, 64, 1, 132),
        (768, 256, 256, 108),
    ):
        tiles = batch * math.ceil(n / tile) ** 2
        expected = batch * n * n / (math.ceil(tiles / processors) * processors * tile * tile)
        said = answer(n, tile, batch, processors)
        require(
            _close(said, expected),
            f"{batch} outputs of {n} x {n} in tiles of {tile} on {processors} SMs: {said!r} is not "
            f"the useful share; there are {tiles} tiles",
        )
