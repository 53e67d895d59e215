"""The figures of lesson 00 and README."""

from pathlib import Path

import pytest

from trimul import ladder, measure
from trimul.figures import course, show
from trimul.problem import BENCHMARK_CASES
from trimul.roofline import HARDWARE, floors

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
ROWS = ladder.newest()


def words(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_the_map_shows_18_lessons_and_fills_those_that_exist():
    figure = course.course_map()
    numbers = [word for word in words(figure) if word.isdigit()]
    assert numbers == [f"{n:02}" for n in range(1, 19)]
    written = sorted(path.name[:2] for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
    assert written == [f"{n:02}" for n in range(course.WRITTEN + 1)]
    filled = [patch for patch in figure.axes[0].patches if patch.get_facecolor()[:3] != (1, 1, 1)]
    assert len(filled) == course.WRITTEN


def test_the_ladder_draws_the_rows_and_floors_it_is_given():
    def drawn(rows):
        return [list(line.get_ydata()) for line in course.ladder(rows).axes[0].lines]

    times = [measure.select(ROWS, case, rung="einsum")[0]["mean_us"] for case in BENCHMARK_CASES]
    dots, three, one = drawn(ROWS)
    assert dots == pytest.approx([us / 1e3 for us in times])
    expected = [floors(case, HARDWARE["H200"]) for case in BENCHMARK_CASES]
    assert three == pytest.approx([floor.three_kernels * 1e3 for floor in expected])
    assert one == pytest.approx([floor.operator * 1e3 for floor in expected])
    (elsewhere,) = drawn([{**row, "gpu": "NVIDIA H100 PCIe"} for row in ROWS])
    assert elsewhere == dots, "no GPU's floors stand in for another's"
    slower = [{**row, "mean_us": 2 * row["mean_us"]} for row in ROWS]
    assert drawn(slower)[0] == pytest.approx([us / 500 for us in times])


def test_a_figure_is_shown_with_words(capsys):
    with pytest.raises(ValueError, match="alternative text"):
        show(course.course_map(), alt=" ")
    show(course.course_map(), alt="the lessons")
    assert capsys.readouterr().out == "[figure: the lessons]\n"
