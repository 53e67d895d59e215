"""The ladder: one implementation per file, all with one signature, imported only when asked for.

``pack(weights) -> packed`` runs once per set of weights; ``forward(x, mask, packed) -> y`` computes
the operator of ``trimul.problem``. Every rung takes any N >= 1, any strides of x ``[B, N, N, D]``
fp32 and mask ``[B, N, N]`` (bool, int or soft float), and returns a fresh contiguous fp32
``[B, N, N, D]``. It changes neither its inputs nor any global setting. What a rung cannot do is a
ValueError. A rung with a largest N says so in ``MAX_N``.
"""

from contextlib import contextmanager
from importlib import import_module

import torch

#: The rungs in the order of the lessons.
NAMES = ("loops", "einsum")


def load(name: str):
    """The module of a rung. Raises ValueError for a name that is not on the ladder."""
    if name not in NAMES:
        raise ValueError(f"no rung is called {name!r}: the ladder has {', '.join(NAMES)}")
    return import_module(f"trimul.rungs.{name}")


def at_full_size() -> list[str]:
    """The rungs that take the contest's sizes: those without a largest N."""
    return [name for name in NAMES if not hasattr(load(name), "MAX_N")]


@contextmanager
def full_fp32():
    """Switch TF32 matrix products off, and put the caller's setting back afterwards."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before
