"""Time, drawn: what a clock sees of a queue, where a profile's time goes, the roofline."""

from __future__ import annotations

import statistics
from dataclasses import replace

from matplotlib import pyplot

from trimul.figures.style import BOUND, COLOURS, INK, house_style
from trimul.problem import Case, operator, stages
from trimul.profiles import Step
from trimul.roofline import Hardware, floors
from trimul.toy_gpu import Span

_HOST, _DEVICE, _WAIT = COLOURS["right"], COLOURS["left"], "#f6e3cc"
_LANES = {"host": 1.0, "device": 0.0}
_STEP_COLOURS = {  # a step has the colour of the tensor it makes
    "contraction": COLOURS["out"],
    "six projections": COLOURS["left"],
    "two LayerNorms": COLOURS["x"],
    "layout copies": COLOURS["right"],
    "mask and gate products": COLOURS["gate"],
    "three sigmoids": COLOURS["mask"],
}


def timeline(log: list[Span], clocks: dict[str, tuple[float, float]]):
    """What host and device did, as two lanes, and below them what each clock takes for the time.

    ``log`` is a ToyGPU's; ``clocks`` gives the start and stop of each clock, by its name.
    """
    zero = min(span.start for span in log)
    log = [replace(span, start=span.start - zero, end=span.end - zero) for span in log]
    clocks = {name: (start - zero, stop - zero) for name, (start, stop) in clocks.items()}
    end = max(max(span.end for span in log), *(stop for _, stop in clocks.values()))
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7.6, 1.6 + 0.42 * len(clocks)))
    named: set[str] = set()
    for span in log:
        length = span.end - span.start
        colour = _DEVICE if span.where == "device" else _WAIT if span.what == "wait" else _HOST
        axes.barh(
            _LANES[span.where], length, 0.62, left=span.start, color=colour, edgecolor="white"
        )
        lane, middle = _LANES[span.where], (span.start + span.end) / 2
        if length > 0.06 * end:
            ink = "white" if colour == _DEVICE else INK
            axes.text(middle, lane, span.what, ha="center", va="center", color=ink, size=8.5)
        elif span.what not in named:  # too short to hold its name: the first has it above
            axes.text(span.start, lane + 0.34, span.what, va="bottom", size=8.5)
        named.add(span.what)
    for row, (name, (start, stop)) in enumerate(clocks.items(), start=1):
        y = -0.72 * row - 0.1
        axes.annotate(
            "", (stop, y), (start, y), arrowprops={"arrowstyle": "|-|,widthA=0.3,widthB=0.3"}
        )
        label = f"{name}: {stop - start:g} µs"
        if stop < 0.6 * end:
            axes.text(stop + 0.01 * end, y, label, va="center")
        else:
            axes.text(
                (start + stop) / 2, y, label, va="center", ha="center", backgroundcolor="white"
            )
    axes.set(
        xlim=(-0.01 * end, 1.02 * end),
        ylim=(-0.72 * len(clocks) - 0.5, 1.7),
        xlabel="microseconds",
        yticks=list(_LANES.values()),
        yticklabels=list(_LANES),
    )
    axes.grid(False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def spread(rows: list[dict]):
    """Consecutive calls, each relative to the median of its series, one panel per size.

    ``rows`` as ``trimul.clock.series`` gives them.
    """
    with house_style():
        figure, panels = pyplot.subplots(
            1, len(rows), figsize=(7.6, 2.7), sharey=True, squeeze=False
        )
    for axes, row in zip(panels[0], rows, strict=True):
        median = statistics.median(row["us"])
        relative = [us / median for us in row["us"]]
        axes.plot(range(1, len(relative) + 1), relative, ".", color=_DEVICE, ms=3.5)
        axes.axhline(1, color=INK, lw=0.8)
        axes.set_title(f"N={row['case']['n']}: median {_us(median)}", size=10)
        axes.set(xlabel="call", yscale="log")
    panels[0][0].set_ylabel("time / median")
    panels[0][0].yaxis.set_major_formatter("{x:.2g}")
    panels[0][0].yaxis.set_minor_formatter("{x:.2g}")
    return figure


def caches(rows: list[dict], l2_bytes: int):
    """Rate of a copy by its size, with L2 warm and with L2 flushed.

    ``rows`` as ``trimul.clock.caches`` gives them; those of copies are drawn.
    """
    copies = [row for row in rows if row["what"] == "copy"]
    sizes = [row["bytes"] / 2**20 for row in copies]
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7.2, 3.0))
    for key, label, style, colour in (
        ("warm_us", "still in L2", "o-", _DEVICE),
        ("flushed_us", "L2 flushed", "s--", _HOST),
    ):
        rates = [row["bytes"] / row[key] / 1e6 for row in copies]
        axes.plot(sizes, rates, style, color=colour, ms=4.5)
        within = [i for i, row in enumerate(copies) if row["bytes"] < l2_bytes]
        axes.annotate(
            label,
            (sizes[within[-1]], rates[within[-1]]),
            (0, 9) if key == "warm_us" else (6, -16),
            textcoords="offset points",
            ha="center" if key == "warm_us" else "left",
        )
    axes.axvline(l2_bytes / 2**20, color=INK, lw=0.8, ls=":")
    axes.text(l2_bytes / 2**20, 0, f"  L2: {l2_bytes / 2**20:.0f} MiB", va="bottom")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="read plus written, MiB", ylabel="TB/s", ylim=(0, None))
    axes.margins(y=0.15)
    return figure


def gaps(rows: list[dict]):
    """The reference's time by N: what events see, the sum of its kernels, the host's launching.

    ``rows`` as ``trimul.clock.gaps`` gives them.
    """
    sizes = [row["n"] for row in rows]
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7.2, 3.2))
    for key, label, style, colour, at, place in (
        ("event_us", "events on an idle GPU", "o-", INK, 0, (0, 7)),
        ("host_us", "launching, on the host", "^--", _HOST, len(rows) - 2, (0, -15)),
        ("kernel_us", "sum of its kernels", "s-", _DEVICE, min(2, len(rows) - 1), (9, -9)),
    ):
        values = [row[key] for row in rows]
        axes.plot(sizes, values, style, color=colour, ms=4.5)
        axes.annotate(label, (sizes[at], values[at]), place, textcoords="offset points")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="N", ylabel="microseconds")
    return figure


def profile_bars(steps: list[Step]):
    """Where the time goes: a bar per step, with the least that the step could take."""
    longest = max(step.us for step in steps)
    total = sum(step.us for step in steps)
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7.6, 0.5 * len(steps) + 0.7))
    for row, step in enumerate(steps):
        axes.barh(row, step.us, 0.62, color=_STEP_COLOURS[step.name])
        axes.plot([step.bound_us] * 2, [row - 0.42, row + 0.42], color=BOUND, ls="--", lw=1.8)
        times = step.us / step.bound_us
        bound = "at its bound" if times < 1.05 else f"{times:.1f} x its bound"
        end = max(step.us, step.bound_us) + 0.015 * longest
        axes.text(end, row, f"{step.us / total:.0%}, {bound}", va="center")
    first = steps[0]
    axes.text(first.bound_us, -0.5, "its bound", color=BOUND, ha="left", va="bottom", size=9)
    axes.set_yticks(range(len(steps)), [step.name for step in steps])
    axes.set(xlim=(0, 1.4 * longest), xlabel="microseconds", ylim=(len(steps) - 0.45, -0.95))
    axes.grid(axis="y", visible=False)
    return figure


def roofline(
    measured: Hardware, datasheet: Hardware, points: dict[str, tuple[float, float]], case: Case
):
    """Roofs of a GPU, measured and from its datasheet, points below and the two floors on them.

    ``points``: FLOP per byte and FLOP per second by name. The floors are those of ``case`` in fp16
    at the measured ceilings.
    """
    low, high = 4, 2000
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7.6, 4.6))
    for kind in ("fp32", "tf32", "fp16"):
        for hardware, style in (
            (datasheet, {"color": "#b5b5b5", "lw": 1, "ls": ":"}),
            (measured, {"color": INK, "lw": 1.6}),
        ):
            ridge = hardware.ridge(kind)
            axes.plot([ridge, high], [hardware.flops[kind]] * 2, **style)
            axes.plot([low, ridge], [low * hardware.bandwidth, hardware.flops[kind]], **style)
        rate, right = measured.flops[kind], {"ha": "right", "size": 9}
        axes.text(high, rate * 0.93, f"{kind} {rate / 1e12:.0f} TFLOP/s", va="top", **right)
    axes.text(
        low * 1.12,
        low * 1.6 * measured.bandwidth,
        f"memory {measured.bandwidth / 1e12:.1f} TB/s",
        rotation=45,
        rotation_mode="anchor",
        size=9,
    )
    axes.text(high, datasheet.flops["fp16"] * 1.06, "datasheet", color="#666666", **right)
    for name, (intensity, rate) in points.items():
        axes.plot(intensity, rate, "o", color=_STEP_COLOURS.get(name, COLOURS["y"]), ms=8)
        axes.annotate(name, (intensity, rate), (9, -12), textcoords="offset points")
    for name, (intensity, rate) in floor_points(measured, case).items():
        axes.plot(intensity, rate, "D", color=BOUND, ms=6)
        clear = (-28, 9) if intensity < measured.ridge("fp16") else (-9, 5)  # of the slope
        axes.annotate(
            name, (intensity, rate), clear, textcoords="offset points", color=BOUND, ha="right"
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(low, high),
        ylim=(8e12, 1.6e15),
        xlabel="FLOP per byte",
        ylabel="FLOP per second",
    )
    return figure


def floor_points(hardware: Hardware, case: Case) -> dict[str, tuple[float, float]]:
    """Both floors of a case as points: FLOP per byte and FLOP per second, by name."""
    least, ideal = floors(case, hardware), operator(case)
    moved = sum(stage.bytes for stage in stages(case))
    return {
        "three kernels": (ideal.flops / moved, ideal.flops / least.three_kernels),
        "the operator": (ideal.intensity, ideal.flops / least.operator),
    }


def _us(us: float) -> str:
    return f"{us:.0f} µs" if us < 1000 else f"{us / 1000:.1f} ms"
