"""The exercise of lesson 00."""

import math

from trimul.exercises import exercise, require


@exercise("00.geometric_mean")
def _(answer):
    for times, expected in [([2.0, 8.0], 4.0), ([5.0], 5.0), ([1.0, 10.0, 100.0], 10.0)]:
        got = answer(times)
        require(
            math.isclose(got, expected, rel_tol=1e-6),
            f"the geometric mean of {times} is {expected:g}, not {got:g}",
        )
