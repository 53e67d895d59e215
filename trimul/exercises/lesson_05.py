"""Checks of lesson 05: what a rented GPU costs, and what may be compared."""

import math

from trimul.exercises import exercise, is_number, require


def _is_close(found, expected, what: str) -> None:
    require(is_number(found), f"{what} is a number, not {found!r}")
    require(math.isclose(found, expected, rel_tol=1e-9), f"{what} is {expected:g}, not {found:g}")


@exercise("05.bill")
def _(bill):
    for works, boot, start, idle, price in (
        ([6.0], 1.0, 2.0, 20.0, 0.001),
        ([6.0, 3.0, 1.0], 1.0, 2.0, 20.0, 0.001),
        ([5.0, 5.0], 3.0, 4.0, 0.0, 0.002),
    ):
        seconds = boot + len(works) * start + sum(works) + idle
        what = f"the bill for works={works}, boot={boot}, start={start}, idle={idle} at {price}"
        _is_close(bill(works, boot, start, idle, price), seconds * price, what)


@exercise("05.compares")
def _(compares):
    base = {
        "rung": "einsum",
        "case": {"n": 256, "batch": 2},
        "protocol": "call",
        "gpu": "NVIDIA H200",
        "run": "a1",
    }
    other = {**base, "rung": "another"}
    for changed, verdict, why in (
        ({}, True, "two rungs, one run, one case, one protocol compare"),
        ({"run": "b2"}, False, "rows of two runs do not compare, even on the same kind of GPU"),
        ({"run": "b2", "gpu": "NVIDIA H100 80GB HBM3"}, False, "rows of two GPUs do not compare"),
        ({"case": {"n": 512, "batch": 1}}, False, "two cases are different work"),
        ({"protocol": "packed"}, False, "one protocol counts the packing and the other does not"),
    ):
        answer = compares(base, {**other, **changed})
        require(isinstance(answer, bool), f"the function returns True or False, not {answer!r}")
        require(answer is verdict, f"{why}: compares(…) says {answer}")


@exercise("05.queue")
def _(queue):
    for readers, containers, boot, work, idle, price in (
        (40, 2, 1.0, 9.0, 20.0, 0.001),
        (40, 40, 1.0, 9.0, 20.0, 0.001),
        (40, 7, 2.0, 5.0, 10.0, 0.002),
        (3, 10, 1.0, 9.0, 20.0, 0.001),
    ):
        used = min(readers, containers)
        last = boot + math.ceil(readers / used) * work
        dollars = (used * (boot + idle) + readers * work) * price
        answer = queue(readers, containers, boot, work, idle, price)
        require(
            isinstance(answer, tuple | list) and len(answer) == 2,
            f"queue returns a pair (seconds until the last answer, dollars), not {answer!r}",
        )
        given = (
            f"with {readers} readers, max_containers={containers}, boot={boot:g}, work={work:g}, "
            f"idle={idle:g} and price={price:g}"
        )
        _is_close(answer[0], last, f"{given}, the time until the last answer")
        _is_close(answer[1], dollars, f"{given}, the bill")
