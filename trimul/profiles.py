"""Read a stored profile: what each step of the rung took, and the least it could take."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

from trimul import roofline
from trimul.problem import Case, Stage
from trimul.roofline import Hardware

#: What an operator does for the rung: the steps of a profile.
STEPS = {
    "copy_": "layout copies",
    "clone": "layout copies",
    "mm": "six projections",
    "bmm": "contraction",
    "native_layer_norm": "two LayerNorms",
    "mul": "mask and gate products",
    "sigmoid": "three sigmoids",
}


@dataclass(frozen=True)
class Step:
    """One step: its time and its bound in microseconds, bytes, FLOPs and number of operators."""

    name: str
    us: float
    bound_us: float
    bytes: int
    flops: int
    operators: int


def steps(document: dict, hardware: Hardware, dtype: str = "fp32") -> list[Step]:
    """The steps of a profile, longest first.

    The bound of a step sums those of its operators, each the larger of its bytes at the hardware's
    bandwidth and its FLOPs at the rate of ``dtype``. Raises ValueError for an operator without
    a step.
    """
    case = Case(**document["case"])
    work = roofline.traffic(document["rung"], case) + _copies(document)
    done = {name: [] for name in STEPS.values()}
    for operator in work:
        done[_step(operator.name)].append(operator)
    took = dict.fromkeys(STEPS.values(), 0.0)
    for kernel in document["kernels"]:
        took[_step(kernel["op"])] += kernel["mean_us"]
    found = [
        Step(
            name,
            took[name],
            sum(hardware.seconds(operator, dtype) for operator in operators) * 1e6,
            sum(operator.bytes for operator in operators),
            sum(operator.flops for operator in operators),
            len(operators),
        )
        for name, operators in done.items()
        if operators
    ]
    return sorted(found, key=lambda step: -step.us)


def total_us(document: dict) -> float:
    """The sum of the times of all kernels."""
    return sum(kernel["mean_us"] for kernel in document["kernels"])


def _step(operator: str) -> str:
    if operator not in STEPS:
        raise ValueError(f"no step has the operator {operator!r}: add it to profiles.STEPS")
    return STEPS[operator]


def _copies(document: dict) -> list[Stage]:
    """The copies that PyTorch made inside other operators: each reads and writes an fp32 tensor."""
    copies = [k for k in document["kernels"] if STEPS.get(k["op"]) == "layout copies"]
    sizes = [4 * math.prod(ast.literal_eval(copy["shapes"])[0]) for copy in copies]
    return [Stage("copy_", 0, size, size) for size in sizes]
