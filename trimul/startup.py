"""What a fresh Python process takes, statement by statement, before it has done any work."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import pairwise


def seconds_of(statements: Iterable[str]) -> list[float]:
    """Seconds that each statement takes, one after another, in a Python process of their own.

    The first one's include the start of the process. A statement prints nothing. Raises
    subprocess.CalledProcessError if one fails; its traceback is on standard error.
    """
    marks = [f"{statement}\nprint(time.time(), flush=True)" for statement in statements]
    command = [sys.executable, "-c", "\n".join(["import time", *marks])]
    start = time.time()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    times = [start, *map(float, done.stdout.split())]
    return [after - before for before, after in pairwise(times)]
