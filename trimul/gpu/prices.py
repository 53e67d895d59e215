"""What a rented GPU costs: Modal's list prices, and what follows from them.

The page itself could not be read when this was written; its prices were taken from
https://techbytes.app/posts/serverless-gpu-pricing-matrix-modal-replicate-lambda-2026/ (2026-05-07)
and from surveys of September and October 2026 that agree with it. They change: look there.
"""

from __future__ import annotations

GPU = "H100!"  # the one for measurements: under the name "H100" Modal may give an H200

#: Dollars per second of one GPU, under Modal's names (https://modal.com/docs/guide/gpu). A100 and
#: H100 may turn out a larger one at the same price. Left out: B300, and B200+ which may be one, for
#: it needs CUDA 13.1 and the pinned torch brings 13.0.
GPUS = {
    "T4": 0.000164,
    "L4": 0.000222,
    "A10": 0.000306,
    "L40S": 0.000542,
    "A100": 0.000583,
    "A100-40GB": 0.000583,
    "A100-80GB": 0.000694,
    "RTX-PRO-6000": 0.000842,
    "H100": 0.001097,
    "H100!": 0.001097,
    "H200": 0.001261,
    "B200": 0.001736,
}
CORE, GIB = 0.0000131, 0.00000222  # dollars per second of a processor core, of a GiB of memory
CORES, MEMORY_GIB = 4, 16  # what a container has for certain; if it uses more, that costs more
SOURCE = "prices of modal.com/pricing as others quoted them, May to October 2026"

START_S = 120  # Modal gives up on a container that takes longer to start


def check_gpu(name: str) -> str:
    """Modal's name of a GPU, whatever the case. Raises ValueError, with the list, for another."""
    known = {gpu.upper(): gpu for gpu in GPUS}
    if str(name).upper() not in known:
        raise ValueError(f"{name!r} is not a GPU to rent, one at a time: {', '.join(GPUS)}")
    return known[name.upper()]


def dollars(gpu: str, seconds: float) -> float:
    """List price of one container for so many seconds: GPU, cores and memory."""
    return seconds * (GPUS[check_gpu(gpu)] + CORES * CORE + MEMORY_GIB * GIB)


def estimate(gpu: str, calls: int, limit: float) -> str:
    """What so many calls of at most ``limit`` seconds cost, in words, before anything is billed."""
    return (
        f"{calls} call{'s' * (calls > 1)} on {check_gpu(gpu)}, each ${dollars(gpu, 1):.5f} a second"
        f" with {CORES} cores and {MEMORY_GIB} GiB ({SOURCE}): "
        f"${calls * dollars(gpu, START_S + limit):.2f} if every one takes all of its {limit:g} s "
        f"after {START_S} s to start; one that has to be repeated counts again"
    )
