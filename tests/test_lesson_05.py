"""Lesson 05: the bill and the gains are drawn as given, starts are timed, no notebook rents."""

import ast
import subprocess
import time
from dataclasses import replace

import pytest
from drawn import words

from scripts import form
from trimul.figures import rented
from trimul.figures.rented import Bill
from trimul.problem import BENCHMARK_CASES, Case
from trimul.roofline import HARDWARE, floors
from trimul.startup import seconds_of

H100, H200 = HARDWARE["H100"], HARDWARE["H200"]


# --- figures -----------------------------------------------------------------------------------


def test_the_picture_has_the_three_back_ends_and_one_runner():
    (axes,) = rented.back_ends().axes
    text = "\n".join(words(axes))
    for name in ("--on local", "--on modal", "--on recording", "one runner"):
        assert text.count(name) == 1
    boxes = {box.get_edgecolor(): box for box in axes.patches if hasattr(box, "get_boxstyle")}
    assert len(boxes) >= 4  # a colour for each back end, and ink


def test_a_bill_is_the_sum_of_its_parts():
    assert Bill(1, 2, 4, 8).seconds == 15 and Bill(1, 2, 4).seconds == 7


def test_bills_are_drawn_part_after_part_with_their_price():
    jobs = {"one": Bill(boot=1, processes=2, work=5, idle=2), "two": Bill(3, 4, 1)}
    (axes,) = rented.bills(jobs, dollars_per_second=0.01).axes
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert bars == [(0, 1), (1, 2), (3, 5), (8, 2), (0, 3), (3, 4), (7, 1), (8, 0)]
    assert axes.patches[3].get_hatch()  # idle stays apart in greyscale
    shown = words(axes)
    assert {"10.0 cents, 50% for work", "8.0 cents, 12% for work"} <= set(shown)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["one", "two"]
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    assert {name: places[name] for name in rented.PARTS} == {
        "boot": 1.5,
        "processes": 5.0,
        "work": 5.5,
        "idle": 9.0,
    }


def test_gains_are_ratios_of_floors():
    cases = [BENCHMARK_CASES[0], Case(n=1024)]
    (axes,) = rented.gains(cases, H100, H200).axes
    dots = {line.get_marker(): list(line.get_xdata()) for line in axes.lines[:2]}
    for marker, key in (("D", "operator"), ("o", "three_kernels")):
        ratios = [getattr(floors(c, H100), key) / getattr(floors(c, H200), key) for c in cases]
        assert dots[marker] == ratios
    assert {"arithmetic 1.00", "memory 1.43", "operator", "three kernels"} <= set(words(axes))
    twice = replace(H200, bandwidth=2 * H100.bandwidth)
    assert "memory 2.00" in words(rented.gains(cases, H100, twice).axes[0])


# --- what a start takes ------------------------------------------------------------------------


def test_each_statement_has_its_own_seconds():
    began = time.time()
    first, nap, quick = seconds_of(["a = 1", "time.sleep(0.2)", "assert a == 1"])
    assert 0.2 <= nap < 1 and quick < 0.1
    assert first > quick  # it holds the start of the process
    assert first + nap + quick <= time.time() - began


def test_a_statement_that_fails_is_no_time():
    with pytest.raises(subprocess.CalledProcessError):
        seconds_of(["pass", "1 / 0"])


# --- Run All bills nothing ---------------------------------------------------------------------


def agreements(nb) -> list[ast.Call]:
    """The calls of ``rent`` in a notebook that agree to a sum."""
    found = [call for cell in nb.code for call in form.calls(cell) if form.called(call) == "rent"]
    return [call for call in found if "dollars=None" not in ast.unparse(call)]


@pytest.mark.parametrize(
    "path", sorted((form.ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_no_stored_cell_agrees_to_a_sum(path):
    assert agreements(form.Notebook(path)) == []


def test_an_agreement_is_found():
    from nbformat import from_dict

    cell = from_dict({"source": 'gpu.rent(dollars=1, on="2026-12-01")\nrent(dollars=None)'})
    (found,) = agreements(type("NB", (), {"code": [cell]}))
    assert "dollars=1" in ast.unparse(found)
