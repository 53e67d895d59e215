"""Small exact models of what a GPU does: a warp scheduler, memory sectors, a tensor core's sums."""

from __future__ import annotations

import numpy

IDLE = -1
SECTOR = 32  # bytes: the smallest piece that travels between memory and an SM


def scheduler(warps: int, latency: int, work: int, cycles: int) -> list[int]:
    """One warp scheduler, cycle by cycle: the warp that issues an instruction, or IDLE.

    Every warp repeats ``work`` instructions, one a cycle; the last is a load, and the next of that
    warp needs its result, ``latency`` cycles later. The scheduler keeps to a warp until it waits,
    then takes the one that has been ready longest.
    """
    ready, left, current = [0] * warps, [work] * warps, 0
    issued = []
    for cycle in range(cycles):
        if ready[current] > cycle:
            current = min(range(warps), key=ready.__getitem__)
        if ready[current] > cycle:
            issued.append(IDLE)
            continue
        issued.append(current)
        left[current] -= 1
        if left[current] == 0:
            ready[current], left[current] = cycle + 1 + latency, work
    return issued


def busy(warps: int, latency: int, work: int, periods: int = 20) -> float:
    """The share of cycles in which ``scheduler`` issues, once the start has passed."""
    period = max(latency + work, warps * work)
    issued = scheduler(warps, latency, work, (periods + 1) * period)[period:]
    return 1 - issued.count(IDLE) / len(issued)


def sectors(addresses) -> int:
    """How many 32-byte sectors hold these byte addresses (an array of integers)."""
    return len(numpy.unique(numpy.asarray(addresses) // SECTOR))


def accumulate(left, right, dtype):
    """left ``[M, K]`` @ right ``[K, N]`` as a tensor core adds it up: a float64 tensor.

    The sum is kept in ``dtype``.

    16 products at a time are added exactly and then rounded once into the running sum. (How a
    tensor core rounds within those 16 is not documented; this is the kindest case.)
    """
    import torch

    total = torch.zeros(left.shape[0], right.shape[1], dtype=dtype)
    for k in range(0, left.shape[1], 16):
        exact = left[:, k : k + 16].double() @ right[k : k + 16].double()
        total = (total.double() + exact).to(dtype)
    return total.double()
