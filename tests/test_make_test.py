"""What `make test` counts, and that it notices when a count vanishes."""

from types import SimpleNamespace

import pytest
from nbformat import v4

from scripts import form
from scripts import test as make_test

CELLS = ["from trimul import claim", "assert 1\nassert 2", 'assert 3\nclaim("so", True)']
FOUND = {
    "notebook cells": 2,
    "asserts in them": 2,
    "claims checked": 0,
    "exercises proven": 1,
}


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.setattr(make_test, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    cells = [v4.new_markdown_cell("# Title"), *map(v4.new_code_cell, CELLS)]
    form.write(tmp_path / "notebooks" / "00_a.ipynb", v4.new_notebook(cells=cells))


def test_cells_that_passed_are_counted_and_no_others(course):
    passed = ["notebooks/00_a.ipynb::Cell 0", "notebooks/00_a.ipynb::Cell 1"]
    proven = "tests/test_exercises.py::test_solution_passes[01.flops]"
    assert make_test.counts([*passed, proven, "tests/test_x.py::test_y"]) == FOUND


def test_a_count_that_vanishes_fails_a_full_run_alone(course, tmp_path):
    assert make_test.vanished(FOUND, []) == ["claims checked"]
    assert make_test.vanished(FOUND, ["-k", "doctor"]) == []
    (tmp_path / "notebooks" / "00_a.ipynb").unlink()
    assert make_test.vanished(FOUND, []) == []


@pytest.mark.parametrize(
    ("phases", "outcome"),
    [
        (("passed", "passed", "passed"), "passed"),
        (("passed", "failed", "passed"), "failed"),
        (("passed", "passed", "failed"), "failed"),
        (("skipped", "passed"), "skipped"),
    ],
)
def test_a_test_is_as_good_as_its_worst_phase(phases, outcome):
    tally = make_test.Tally()
    for phase in phases:
        report = SimpleNamespace(nodeid="t", outcome=phase, duration=1.0)
        tally.pytest_runtest_logreport(report)
    assert (tally.outcomes, tally.seconds) == ({"t": outcome}, {"t": float(len(phases))})
