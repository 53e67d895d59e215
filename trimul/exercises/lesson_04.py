"""Checks of lesson 04: a timing function that is right, Amdahl's law, a kernel on the roofline."""

from __future__ import annotations

import math

from trimul.exercises import exercise, is_number, require
from trimul.toy_gpu import ToyGPU

_CALLS = [  # microseconds of somebody else's work in the queue, and of each kernel of the call
    (0.0, {"first": 40.0, "second": 100.0}),
    (700.0, {"first": 50.0, "second": 20.0, "third": 30.0}),
]


def _require_number(answer, what: str) -> None:
    require(is_number(answer), f"{what} is a number, not {answer!r}")


@exercise("04.timer")
def _(time_calls):
    for busy, kernels in _CALLS:
        gpu = ToyGPU()
        if busy:
            gpu.launch("somebody else's", busy)

        def call(gpu=gpu, kernels=kernels):
            for name, us in kernels.items():
                gpu.launch(name, us)

        samples = time_calls(gpu, call, 4)
        launching = len(kernels) * gpu.launch_us
        expected = gpu.launch_us + sum(kernels.values())  # later launches hide behind kernels
        where = "on an idle device" if not busy else "on a device busy with older work"
        require(
            isinstance(samples, list) and len(samples) == 4,
            f"time_calls(gpu, call, 4) returns a list of 4 times, not {samples!r}",
        )
        for number, got in enumerate(samples, 1):
            _require_number(got, "each time")
            said = f"time {number} of 4 is {got:g} µs {where}, and a call takes {expected:g} µs"
            require(got < gpu.compile_us, f"{said}: it holds the compilation, which is done once")
            require(got > launching, f"{said}: the clock stopped before the device was done")
            require(
                math.isclose(got, expected),
                f"{said}: the queue was not empty when the clock started",
            )


@exercise("04.amdahl")
def _(speedup):
    for share, factor in [(0.5, 2), (0.2, 10), (0.9, 3), (1.0, 4), (0.0, 8), (0.36, math.inf)]:
        expected = 1 / (1 - share + share / factor)
        got = speedup(share, factor)
        _require_number(got, "a speedup")
        hints = {
            1 + share * (factor - 1): "average the times, not the speeds",
            1 / (1 - share + share * factor): "a faster part takes less time: divide by the factor",
            1 / (1 - share) if share < 1 else math.nan: "that is for an infinite factor",
            1 - share + share / factor: "that is the new time; the speedup is the old one over it",
        }
        hint = next((why for wrong, why in hints.items() if math.isclose(got, wrong)), "")
        require(
            math.isclose(got, expected),
            f"speedup({share}, {factor}) gives {got:.3g}, not {expected:.3g}"
            + (f": {hint}" if hint else ""),
        )


@exercise("04.place")
def _(place):
    kernels = {
        "a copy": (0, 8e9, 2.5e-3),
        "a matrix product": (2e12, 6e9, 5e-3),
        "a slow kernel of high intensity": (5e11, 1e9, 5e-2),
        "a slow kernel of low intensity": (1e9, 2e9, 1e-2),
    }
    for name, (flops, moved, seconds) in kernels.items():
        for bandwidth, peak in [(4e12, 8e14), (4e12, 5e13)]:
            memory, arithmetic = moved / bandwidth, flops / peak
            limit = "arithmetic" if arithmetic > memory else "memory"
            fraction = max(memory, arithmetic) / seconds
            answer = place(flops, moved, seconds, bandwidth, peak)
            what = (
                f"{name} ({flops:g} FLOP, {moved:g} bytes, {seconds:g} s; "
                f"{bandwidth:g} B/s, {peak:g} FLOP/s)"
            )
            require(
                isinstance(answer, tuple | list) and len(answer) == 2,
                f"place returns a pair (limit, fraction), not {answer!r}",
            )
            require(
                answer[0] in ("memory", "arithmetic"),
                f'the limit is "memory" or "arithmetic", not {answer[0]!r}',
            )
            require(
                answer[0] == limit,
                f"{what} is limited by {limit}, not {answer[0]}: its time decides nothing, compare "
                "the time that its bytes need with the time that its FLOPs need",
            )
            _require_number(answer[1], "the fraction")
            require(
                math.isclose(answer[1], fraction),
                f"{what} reaches {fraction:.3g} of its roof, not {answer[1]:.3g}: the least "
                "time over the time it took",
            )
