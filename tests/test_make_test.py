"""What `make test` counts, and that it notices when a count vanishes."""

from types import SimpleNamespace

import pytest
from nbformat import v4

from scripts import form
from scripts import test as make_test

CELLS = ["from trimul import claim", "assert 1\nassert 2", 'assert 3\nclaim("so", True)']
GPU = {"print(1)": "recorded on NVIDIA H200\n1\n", "print(2)": "ran on NVIDIA H200\n2\n"}
FOUND = {
    "notebook cells": 5,
    "asserts in them": 2,
    "claims checked": 0,
    "GPU cells live": 1,
    "GPU cells replayed": 1,
    "GPU cells stale": 1,
    "exercises proven": 1,
}


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.setattr(make_test, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    cells = [v4.new_markdown_cell("# Title"), *map(v4.new_code_cell, CELLS)]
    sources = [("00_one", "print(1)"), ("00_two", "print(1)"), ("00_three", "print(2)")]
    for name, source in sources:
        shown = v4.new_output("stream", text=GPU[source])
        cells.append(v4.new_code_cell(f"%%gpu {name}\n{source}", outputs=[shown]))
    monkeypatch.setattr(make_test, "fault", lambda cell: "moved" * (cell.name == "00_two"))
    form.write(tmp_path / "notebooks" / "00_a.ipynb", v4.new_notebook(cells=cells))


def test_cells_that_passed_are_counted_and_no_others(course):
    passed = [f"notebooks/00_a.ipynb::Cell {number}" for number in (0, 1, 3, 4, 5)]
    proven = "tests/test_exercises.py::test_solution_passes[01.flops]"
    assert make_test.counts([*passed, proven, "tests/test_x.py::test_y"]) == FOUND


def test_a_count_that_vanishes_fails_a_full_run_alone(course, tmp_path):
    assert make_test.vanished(FOUND, []) == ["claims checked"]
    none_live = FOUND | {"GPU cells live": 0, "GPU cells replayed": 0, "claims checked": 1}
    assert make_test.vanished(none_live, []) == ["GPU cells replayed"]
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
