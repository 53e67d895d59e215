"""The course as a whole: its map, and the ladder at a glance."""

from __future__ import annotations

from matplotlib import pyplot

from trimul import measure
from trimul.figures.style import BOUND, COLOURS, INK, canvas, house_style
from trimul.ladder import floor_times, rung_times
from trimul.problem import BENCHMARK_CASES, Case

#: The parts of the course, the colour each is drawn in, and its lessons.
PARTS = {
    "Define, check, measure": (
        "x",
        ["nested loops", "einsum reference", "how a GPU\nruns code", "measuring", "rent a GPU"],
    ),
    "PyTorch, one idea each": (
        "left",
        [
            "weight fusion",
            "fp16 pipeline",
            "bmm over\neinsum",
            "memory\ncontiguity",
            "flags and\nablation",
        ],
    ),
    "Kernels by hand": (
        "right",
        ["failed attempts", "naive CUDA", "tiled CUDA", "three-way\nhybrid"],
    ),
    "To the limit, and home": (
        "gate",
        ["Hopper's tools", "the speed\nof light", "into a model", "your own\nkernel"],
    ),
}
#: The last lesson that exists; those still to come are drawn faint.
WRITTEN = 5


def course_map():
    """The lessons in reading order, in four parts; those still to come are faint."""
    with house_style():
        figure, axes = canvas(7.2, 3.9, (0, 72), (0, 39))
        number = 1
        for row, (part, (colour, lessons)) in enumerate(PARTS.items()):
            y = 29.5 - 9.7 * row
            axes.text(0, y + 7.6, part, weight="bold", va="center", fontsize=9)
            for column, lesson in enumerate(lessons):
                _lesson(axes, 0.2 + 14.4 * column, y, number, lesson, COLOURS[colour])
                number += 1
        return figure


def _lesson(axes, x, y, number, lesson, colour):
    written = number <= WRITTEN
    face, ink = (f"{colour}55", INK) if written else ("white", "#777777")
    axes.add_patch(pyplot.Rectangle((x, y), 13.6, 6, facecolor=face, edgecolor=colour))
    axes.text(x + 0.6, y + 3, f"{number:02}", va="center", fontsize=8, color=ink, weight="bold")
    axes.text(x + 3.4, y + 3, lesson, va="center", fontsize=7.5, color=ink)


def ladder(rows: list[dict]):
    """Every rung of one run on the seven benchmark cases, and the floors of the GPU it ran on.

    ``rows`` are benchmark rows of one run and one protocol (``trimul.ladder.newest``). The time
    axis is logarithmic; a line from the first to the last case is the geometric mean.
    """
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7.2, 3.8))
        places = range(len(BENCHMARK_CASES))
        for name, times in rung_times(rows).items():
            ms = [us / 1e3 for us in times]
            axes.plot(places, ms, "o", color=COLOURS["left"])
            score = measure.geometric_mean(ms)
            axes.hlines(score, -0.3, len(places) - 0.7, color=COLOURS["left"], linewidth=1)
            axes.text(len(places) - 0.6, score, f"{name}\n{score:.1f} ms", va="center", fontsize=9)
        floors = floor_times(rows[0]["gpu"]).items()
        for (label, times), side in zip(floors, ("bottom", "top"), strict=False):
            ms = [us / 1e3 for us in times]
            axes.plot(places, ms, "_", color=BOUND, markersize=18, markeredgewidth=1.6)
            score = measure.geometric_mean(ms)
            axes.hlines(score, -0.3, len(places) - 0.7, color=BOUND, linestyle="--", linewidth=1)
            axes.text(
                len(places) - 0.6,
                score,
                f"floor of {label}\n{score:.2f} ms",
                va=side,
                fontsize=9,
                color=BOUND,
            )
        axes.set_xticks(places, [_two_lines(case) for case in BENCHMARK_CASES], fontsize=8)
        axes.set(yscale="log", ylabel="ms per call (log)", xlim=(-0.5, len(places) + 2.1))
        axes.grid(axis="x", visible=False)
        axes.set_title(
            f"{rows[0]['gpu']}, {rows[0]['date'][:10]}: dots are the seven benchmark cases, "
            "lines their geometric means",
            fontsize=9,
            loc="left",
        )
        return figure


def _two_lines(case: Case) -> str:
    batch = f" B{case.batch}" if case.batch > 1 else ""
    return f"N {case.n}{batch}\nD {case.dim}"
