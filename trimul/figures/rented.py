"""Rented GPUs, drawn: the ways to one runner, what a bill is made of, what another GPU gains."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib import pyplot
from matplotlib.patches import FancyBboxPatch

from trimul.figures.style import BOUND, COLOURS, INK, canvas, house_style
from trimul.problem import Case
from trimul.roofline import Hardware, floors

_HERE, _AWAY, _STORED = COLOURS["left"], COLOURS["right"], COLOURS["mask"]


def back_ends():
    """A cell's three ways to its outputs, two of them through one runner."""
    with house_style():
        figure, axes = canvas(8, 3.9, x=(-0.5, 80.5), y=(0, 39))
    _box(axes, 0, 12, 15, 15, INK, "the notebook\n\n%%gpu 05_who\n…program…")
    for bottom, colour, title, what in (
        (28, _HERE, "--on local", "a process on this machine,\nwith this machine's GPU"),
        (14.5, _AWAY, "--on modal", "a process in a container\nthat was rented"),
        (1, _STORED, "--on recording", "assets/recordings/\n05_who.json"),
    ):
        _box(axes, 24, bottom, 24, 10, colour, f"{title}\n{what}")
        _arrow(axes, (15.4, 19.5), (23.6, bottom + 5))
    _box(axes, 55, 19, 11.5, 12, INK, "one runner\n\nlocal.run")
    _box(axes, 72, 14.5, 8, 10, INK, "outputs,\nkept")
    _arrow(axes, (48.4, 33), (54.6, 27))
    _arrow(axes, (48.4, 19.5), (54.6, 22.5))
    _arrow(axes, (66.9, 25), (71.6, 21))
    _arrow(axes, (48.4, 6), (71.6, 16.5))
    axes.text(60, 7.5, "as they were,\nsaid to be recorded", size=9, va="center")
    return figure


def _box(axes, left, bottom, width, height, colour, text):
    box = FancyBboxPatch(
        (left + 0.5, bottom + 0.5),
        width - 1,
        height - 1,
        boxstyle="round,pad=0.5",
        facecolor="white",
        edgecolor=colour,
        lw=1.8,
    )
    axes.add_patch(box)
    middle = (left + width / 2, bottom + height / 2)
    axes.text(*middle, text, ha="center", va="center", size=9, linespacing=1.35)


def _arrow(axes, start, end):
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.2})


#: The parts of a bill in their order: what it is for, and how it is drawn.
PARTS = {
    "boot": {"color": INK},
    "processes": {"color": COLOURS["right"], "edgecolor": "white"},
    "work": {"color": COLOURS["left"]},
    "idle": {"color": "white", "edgecolor": INK, "hatch": "///", "lw": 0.8},
}


@dataclass(frozen=True)
class Bill:
    """Seconds that are billed, by what they are for."""

    boot: float  # containers start
    processes: float  # Python starts and imports, before each cell
    work: float
    idle: float = 0.0  # the last container waits for another cell

    @property
    def seconds(self) -> float:
        return self.boot + self.processes + self.work + self.idle


def bills(jobs: dict[str, Bill], dollars_per_second: float):
    """What is billed for each job: seconds by part, and the sum in cents."""
    longest = max(bill.seconds for bill in jobs.values())
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7.6, 0.62 * len(jobs) + 1.0))
    for row, bill in enumerate(jobs.values()):
        left = 0.0
        for part, look in PARTS.items():
            length = getattr(bill, part)
            axes.barh(row, length, 0.6, left=left, **look)
            left += length
        cents = 100 * dollars_per_second * bill.seconds
        words = f"{cents:.1f} cents, {bill.work / bill.seconds:.0%} for work"
        axes.text(left + 0.015 * longest, row, words, va="center")
    _name_parts(axes, list(jobs.values()))
    axes.set_yticks(range(len(jobs)), list(jobs))
    axes.set(xlabel="seconds billed", xlim=(0, 1.45 * longest), ylim=(len(jobs) - 0.5, -1.0))
    axes.grid(axis="y", visible=False)
    return figure


def _name_parts(axes, bills_: list[Bill]) -> None:
    """Each part's name once, above the bar in which it is widest."""
    for part in PARTS:
        row = max(range(len(bills_)), key=lambda r: getattr(bills_[r], part))
        bill, names = bills_[row], list(PARTS)
        before = sum(getattr(bill, name) for name in names[: names.index(part)])
        axes.text(
            before + getattr(bill, part) / 2,
            row - 0.32,
            part,
            ha="center",
            va="bottom",
            size=8.5,
        )


def gains(cases: list[Case], slow: Hardware, fast: Hardware):
    """How much lower both floors of each case are on a second GPU, in fp16."""
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7.6, 0.42 * len(cases) + 1.1))
    for key, marker, colour in (
        ("operator", "D", COLOURS["out"]),
        ("three_kernels", "o", COLOURS["left"]),
    ):
        ratios = [getattr(floors(c, slow), key) / getattr(floors(c, fast), key) for c in cases]
        axes.plot(ratios, range(len(cases)), marker, color=colour, ms=8, zorder=3)
        name = key.replace("_", " ")
        words = {"color": colour, "ha": "center", "va": "bottom", "size": 9}
        axes.text(ratios[0], -0.35, name, backgroundcolor="white", **words)
    for ratio, name in (
        (fast.flops["fp16"] / slow.flops["fp16"], "arithmetic"),
        (fast.bandwidth / slow.bandwidth, "memory"),
    ):
        axes.axvline(ratio, color=BOUND, ls="--", lw=1.2)
        words = {"color": BOUND, "ha": "center", "va": "top", "size": 9}
        axes.text(ratio, -1.35, f"{name} {ratio:.2f}", backgroundcolor="white", **words)
    axes.set_yticks(range(len(cases)), [str(case) for case in cases])
    axes.set(
        xlabel=f"floor on the {slow.name} / floor on the {fast.name}",
        ylim=(len(cases) - 0.4, -1.4),
        xlim=(0.96, 1.48),
    )
    return figure
