"""`make test`: every test, every notebook, every style rule, and one line that sums them up.

python scripts/test.py              # everything
python scripts/test.py ARGS…        # a selection: arguments of pytest (files, -k, …)

The last lines are ``N passed, N failed, N skipped`` and the counts of what ran. A full run fails
where a count has vanished: a notebook without outputs, or a test that was never collected, is green
to pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scripts import form  # noqa: E402
from scripts.clean import ROOT, clean_environment, warm_up  # noqa: E402
from scripts.notebooks import CELL_SECONDS  # noqa: E402
from trimul.gpu.cell import read  # noqa: E402
from trimul.gpu.recording import fault  # noqa: E402

PYTEST = ["-q", "-n2", "--dist=loadfile", "--no-loadscope-reorder", "-rs", "--no-header"]
NBVAL = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_SECONDS}"]
GPU_CELLS = ("GPU cells live", "GPU cells replayed", "GPU cells stale")
STYLE = ("check", "format --check")
SLOWEST = 10


class Tally:
    """A pytest plugin that keeps the outcome and the seconds of every test."""

    def __init__(self):
        self.outcomes = {}
        self.seconds = defaultdict(float)

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        worst = ("failed", "skipped", "passed")
        known = self.outcomes.get(report.nodeid, "passed")
        self.outcomes[report.nodeid] = min(known, report.outcome, key=worst.index)

    def pytest_collectreport(self, report):
        if report.failed:
            self.outcomes[report.nodeid] = "failed"

    def passed(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if outcome == "passed"]


def style(tally: Tally) -> None:
    """ruff over the package, the scripts, the tests and the notebooks: one test per command."""
    for command in STYLE:
        start = time.monotonic()
        arguments = [*command.split(), "--output-format=concise", "."]
        failed = subprocess.run([form.RUFF, *arguments], cwd=ROOT).returncode
        name = f"ruff {command}"
        tally.outcomes[name] = "failed" if failed else "passed"
        tally.seconds[name] = time.monotonic() - start


def counts(passed: list[str]) -> dict[str, int]:
    """What the tests that passed have run."""
    what = ("notebook cells", "asserts in them", "claims checked", *GPU_CELLS)
    found = Counter(dict.fromkeys(what, 0))
    found["exercises proven"] = sum("::test_solution_passes[" in name for name in passed)
    notebooks = {}
    for name in passed:
        if not (match := re.fullmatch(r"(.+\.ipynb)::Cell (\d+)", name)):
            continue
        path, number = match.groups()
        if path not in notebooks:
            notebooks[path] = form.Notebook(ROOT / path).code
        cell = notebooks[path][int(number)]
        found["notebook cells"] += 1
        found["asserts in them"] += form.asserts(cell)
        found["claims checked"] += sum(form.called(call) == "claim" for call in form.calls(cell))
        if cell.source.startswith("%%gpu"):
            found[gpu_state(cell, path)] += 1
    return dict(found)


def gpu_state(cell, path: str) -> str:
    """Which of ``GPU_CELLS`` a cell was, by what it showed and what its recording is worth."""
    if not any(text.startswith("recorded on ") for text in form.texts(cell)):
        return "GPU cells live"
    stale = fault(read(cell.source, notebook=Path(path).name, id=cell.id))
    return "GPU cells stale" if stale else "GPU cells replayed"


def vanished(found: dict[str, int], arguments: list[str]) -> list[str]:
    """What a full run should have counted and did not: once there are lessons, all of it."""
    if arguments or not any((ROOT / "notebooks").glob("*.ipynb")):
        return []
    may_be_none = {"GPU cells live", "GPU cells stale"}
    return [what for what, number in found.items() if not number and what not in may_be_none]


def main(arguments: list[str]) -> int:
    start = time.monotonic()
    os.chdir(ROOT)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="trimul-tests-") as home:
        settings = clean_environment(home)
        os.environ.clear()
        os.environ.update(settings)
        warm_up()
        status = pytest.main([*PYTEST, *NBVAL, *(arguments or ["tests", "notebooks"])], [tally])
        if not arguments:
            style(tally)
    print(f"\nslowest {SLOWEST}:")
    for name, seconds in sorted(tally.seconds.items(), key=lambda item: -item[1])[:SLOWEST]:
        print(f"  {seconds:6.1f} s  {name}")
    total = Counter(tally.outcomes.values())
    found = counts(tally.passed())
    missing = vanished(found, arguments)
    print(f"total {time.monotonic() - start:.0f} s")
    if arguments:
        print(f"a selection only: {' '.join(arguments)}")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    print(", ".join(f"{number} {what}" for what, number in found.items()))
    if missing:
        print(f"failed: nothing was counted as {', '.join(missing)}")
    return int(status != 0 or total["failed"] > 0 or bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
