"""Lesson 02: the operator, where its gate sits, number formats, errors, and the mask trap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib import pyplot
from matplotlib.patches import FancyBboxPatch, Rectangle

from trimul.check import TOLERANCE
from trimul.figures.style import BOUND, COLOURS, FAINT, INK, canvas, house_style

#: Bits of a number format: sign, exponent, mantissa. fp32, fp16: IEEE 754; TF32: NVIDIA.
FORMATS = {"fp32": (1, 8, 23), "TF32": (1, 8, 10), "fp16": (1, 5, 10), "bf16": (1, 8, 7)}

_PAIR_D, _PAIR_H = "[B, N, N, D]", "[B, N, N, H]"

# name -> (x, y, half width, text, colour of a tensor or "" for an operation)
_NODES = {
    "x": (32, 63.5, 6.5, f"x {_PAIR_D}", "x"),
    "norm": (32, 57.5, 8.5, "LayerNorm over D", ""),
    "left_proj": (6.2, 48, 5.2, "left_proj", ""),
    "left_gate": (18.2, 48, 5.2, "left_gate\n+ sigmoid", ""),
    "right_proj": (34.2, 48, 5.2, "right_proj", ""),
    "right_gate": (46.2, 48, 5.2, "right_gate\n+ sigmoid", ""),
    "out_gate": (58.6, 48, 5.2, "out_gate\n+ sigmoid", ""),
    "times left": (12.2, 38, 1.7, "×", ""),
    "times right": (40.2, 38, 1.7, "×", ""),
    "mask": (26.2, 38, 5.8, "mask [B, N, N]", "mask"),
    "left": (12.2, 31, 7.2, f"left {_PAIR_H}", "left"),
    "right": (40.2, 31, 7.2, f"right {_PAIR_H}", "right"),
    "gate": (58.6, 31, 6.9, f"gate {_PAIR_H}", "gate"),
    "contract": (26.2, 24.5, 10.5, "contraction: sum over k", ""),
    "out": (26.2, 18.5, 7.2, f"out {_PAIR_H}", "out"),
    "second norm": (26.2, 12, 8.5, "LayerNorm over H", ""),
    "times gate": (44.2, 12, 1.7, "×", ""),
    "to_out": (44.2, 4.5, 4.6, "to_out", ""),
    "y": (58.6, 4.5, 6.9, f"y {_PAIR_D}", "y"),
}
# from, to, the shape that travels ("" where the node says it)
_EDGES = (
    ("x", "norm", ""),
    *(
        ("norm", name, "")
        for name in ("left_proj", "left_gate", "right_proj", "right_gate", "out_gate")
    ),
    ("left_proj", "times left", _PAIR_H),
    ("left_gate", "times left", _PAIR_H),
    ("right_proj", "times right", _PAIR_H),
    ("right_gate", "times right", _PAIR_H),
    ("out_gate", "gate", _PAIR_H),
    ("mask", "times left", ""),
    ("mask", "times right", ""),
    ("times left", "left", ""),
    ("times right", "right", ""),
    ("left", "contract", ""),
    ("right", "contract", ""),
    ("contract", "out", ""),
    ("out", "second norm", ""),
    ("second norm", "times gate", _PAIR_H),
    ("gate", "times gate", ""),
    ("times gate", "to_out", _PAIR_H),
    ("to_out", "y", ""),
)


def whole_operator():
    """The operator from x to y in GPU MODE form: every step, and the shape on every arrow."""
    with house_style():
        figure, axes = canvas(7.0, 6.9, (0, 66), (2, 66))
        for start, end, shape in _EDGES:
            _edge(axes, start, end, shape)
        for name in _NODES:
            _node(axes, *_NODES[name])
        axes.text(32.6, 54.5, f"n {_PAIR_D}", fontsize=7.5, va="center")
        for name, row in (("left", "row i"), ("right", "row j")):
            x, y = _NODES[name][:2]
            axes.text(x, y - 3.3, row, fontsize=7.5, ha="center", va="center", style="italic")
        return figure


def _node(axes, x, y, half, text, tensor):
    dark = tensor in ("left", "out", "gate", "y", "mask")
    box = FancyBboxPatch(
        (x - half, y - 1.7),
        2 * half,
        3.4,
        boxstyle="round,pad=0,rounding_size=0.6" if tensor else "round,pad=0,rounding_size=1.6",
        fc=COLOURS[tensor] if tensor else "white",
        ec=INK,
        lw=0 if tensor else 0.9,
        zorder=3,
    )
    axes.add_patch(box)
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="center",
        fontsize=7.8 if "×" not in text else 11,
        weight="bold" if tensor else "normal",
        color="white" if dark else INK,
        linespacing=0.95,
        zorder=4,
    )


def _edge(axes, start, end, shape):
    """An arrow along a row, straight down, or by way of the bus under the first norm."""
    (x0, y0, half0, *_), (x1, y1, half1, *_) = _NODES[start], _NODES[end]
    colour = COLOURS.get(_NODES[start][4], INK)
    if start == "norm":
        path = [(x0, y0 - 1.7), (x0, 52.7), (x1, 52.7), (x1, y1 + 1.7)]
    elif start == "gate":
        path = [(x0, y0 - 1.7), (x0, y1), (x1 + half1, y1)]
    elif y0 == y1:
        side = 1 if x1 > x0 else -1
        path = [(x0 + side * half0, y0), (x1 - side * half1, y1)]
    else:
        path = [(x0, y0 - 1.7), (x1, y1 + 1.7)]
    axes.plot(*zip(*path[:-1], strict=True), color=colour, lw=1.3, zorder=2)
    arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.3, "shrinkA": 0, "shrinkB": 1}
    axes.annotate("", path[-1], path[-2], arrowprops=arrow, zorder=2)
    if shape:
        _shape_on(axes, path[-2], path[-1], shape)


def _shape_on(axes, start, end, shape):
    """The shape above a level arrow, or on the outer side of one that goes down."""
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    gap = 0.6 if start[0] == end[0] else 1.2
    if start[1] == end[1]:
        place = {"x": x, "y": y + 1.4, "ha": "center"}
    elif end[0] <= start[0]:
        place = {"x": x + gap, "y": y, "ha": "left"}
    else:
        place = {"x": x - gap, "y": y, "ha": "right"}
    axes.text(s=shape, fontsize=7, va="center", zorder=4, **place)


#: The end of the operator in both forms: what happens to out, and the shape after it.
_FORMS = {
    "GPU MODE form": (("LayerNorm", _PAIR_H), ("× gate", _PAIR_H), ("to_out", _PAIR_D)),
    "AF3 form": (("LayerNorm", _PAIR_H), ("to_out", _PAIR_D), ("× gate", _PAIR_D)),
}


def gate_forms():
    """The end of the operator in its two forms: the gate before to_out, or after it."""
    with house_style():
        figure, axes = canvas(7.0, 1.7, (0, 72), (0, 17.5))
        for y, (form, steps) in zip((11.8, 3.2), _FORMS.items(), strict=True):
            axes.text(0, y, form, va="center", weight="bold", fontsize=9)
            _chip(axes, 16.5, y, 5, "out", COLOURS["out"])
            x, shape = 19, _PAIR_H
            for step, after in steps:
                _arrow(axes, x, x + 6, y, shape)
                _chip(axes, x + 10, y, 8, step, COLOURS["gate"] if "gate" in step else "white")
                x, shape = x + 14, after
            _arrow(axes, x, x + 6, y, shape)
            _chip(axes, x + 8, y, 4, "y", COLOURS["y"])
        return figure


def _chip(axes, x, y, width, text, fill):
    box = FancyBboxPatch(
        (x - width / 2, y - 1.9),
        width,
        3.8,
        boxstyle="round,pad=0,rounding_size=0.8",
        fc=fill,
        ec=INK,
        lw=0.9 if fill == "white" else 0,
        zorder=3,
    )
    axes.add_patch(box)
    ink = INK if fill == "white" else "white"
    axes.text(x, y, text, ha="center", va="center", fontsize=8, color=ink, zorder=4)


def _arrow(axes, x0, x1, y, shape):
    arrow = {"arrowstyle": "-|>", "color": INK, "lw": 1.1, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (x1, y), (x0, y), arrowprops=arrow)
    axes.text((x0 + x1) / 2, y + 3.1, shape, ha="center", va="center", fontsize=6.8)


def bits(formats: Mapping[str, tuple[int, int, int]] = FORMATS):
    """The bits of number formats: ``name -> (sign, exponent, mantissa)``."""
    fills = {"sign": "#6a6a6a", "exponent": "#a6a6a6", "mantissa": "#333333"}
    with house_style():
        figure, axes = canvas(6.6, 0.42 * len(formats) + 0.35, (-4, 38.5), (-0.35, len(formats)))
        axes.set_aspect("auto")
        for row, (name, counts) in enumerate(reversed(formats.items())):
            axes.text(-0.6, row + 0.38, name, ha="right", va="center", weight="bold")
            start = 0
            for (part, fill), count in zip(fills.items(), counts, strict=True):
                for bit in range(start, start + count):
                    axes.add_patch(
                        Rectangle((bit, row), 1, 0.76, fc=fill, ec=(1, 1, 1, 0.3), lw=0.6)
                    )
                if part != "sign":
                    label = f"{count} {part}" if count > 4 else str(count)
                    axes.text(
                        start + count / 2,
                        row + 0.36,
                        label,
                        ha="center",
                        va="center",
                        color=INK if part == "exponent" else "white",
                        fontsize=8,
                        weight="bold",
                    )
                start += count
            axes.text(start + 0.5, row + 0.38, f"{start} bits", va="center", fontsize=9)
        return figure


def error_growth(
    sizes: Sequence[int], errors: Mapping[str, Sequence[float]], models: Sequence[Sequence[float]]
):
    """Relative error of the contraction by N, for each way of computing, and its model, dashed."""
    with house_style():
        figure, axes = pyplot.subplots(figsize=(6.6, 2.9))
        for (name, values), model in zip(errors.items(), models, strict=True):
            axes.loglog(sizes, values, "o", color=COLOURS["out"], ms=7)
            axes.loglog(sizes, model, "--", color=INK, lw=1.2)
            axes.text(sizes[-1] * 1.15, values[-1], name, va="center", fontsize=9)
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.minorticks_off()
        axes.set(
            xlim=(sizes[0] * 0.85, sizes[-1] * 2.6),
            xlabel="N: terms in each sum (dots: measured, dashed: model)",
            ylabel="relative error of out",
        )
        return figure


def error_by_stage(errors: Mapping[str, Mapping[str, float]]):
    """Relative error of y when one stage alone is rounded: ``format -> stage -> error``."""
    stages = list(dict.fromkeys(stage for row in errors.values() for stage in row))[::-1]
    fills = dict(zip(errors, (COLOURS["y"], "white"), strict=False))
    with house_style():
        figure, axes = pyplot.subplots(figsize=(6.6, 0.36 * len(stages) + 0.9))
        for name, row in errors.items():
            places = [stages.index(stage) for stage in row]
            axes.plot(
                list(row.values()), places, "o", ms=9, mec=COLOURS["y"], mew=2, mfc=fills[name]
            )
            top = stages.index(next(iter(row)))
            axes.annotate(
                name,
                (next(iter(row.values())), top),
                xytext=(0, 9),
                textcoords="offset points",
                ha="center",
                color=COLOURS["y"],
                weight="bold",
            )
        axes.set_xscale("log")
        axes.set_yticks(range(len(stages)), stages)
        axes.set(ylim=(-0.6, len(stages) - 0.15), xlabel="relative error of y")
        axes.grid(axis="y", visible=False)
        return figure


def error_scale(rounding: Mapping[str, float], faults: Mapping[str, float]):
    """Largest error over its tolerance, on one scale: rounding above, faults below."""
    entries = [(name, value, COLOURS["y"]) for name, value in rounding.items()]
    entries += [(name, value, "white") for name, value in faults.items()]
    with house_style():
        figure, axes = pyplot.subplots(figsize=(6.8, 0.27 * len(entries) + 0.9))
        for row, (_, value, fill) in enumerate(reversed(entries)):
            axes.plot([1e-7, value], [row, row], color=FAINT, lw=1.5, zorder=1)
            axes.plot(value, row, "o", ms=8, mfc=fill, mec=COLOURS["y"], mew=1.8)
        axes.axvline(1, color=BOUND, ls="--", lw=1.5)
        for text, side in (("passes  ", "right"), ("  fails", "left")):
            axes.text(1, len(entries) - 0.4, text, ha=side, color=BOUND, fontsize=8.5)
        axes.set_xscale("log")
        axes.set_yticks(range(len(entries)), [name for name, _, _ in reversed(entries)])
        axes.set(
            xlim=(1e-5, 1e3),
            ylim=(-0.6, len(entries) + 0.4),
            xlabel="largest error over its tolerance (filled: rounding, open: faults)",
        )
        axes.grid(axis="y", visible=False)
        return figure


def case_errors(rows: Sequence[dict], tolerance: float = TOLERANCE):
    """Largest error of each case (rows with ``case`` and ``max_error``), against the tolerance."""
    with house_style():
        figure, axes = pyplot.subplots(figsize=(6.8, 0.22 * len(rows) + 0.9))
        for place, row in enumerate(reversed(rows)):
            fill = COLOURS["y"] if row["case"]["distribution"] == "normal" else "white"
            axes.plot([1e-8, row["max_error"]], [place, place], color=FAINT, lw=1.5, zorder=1)
            axes.plot(row["max_error"], place, "o", ms=7, mfc=fill, mec=COLOURS["y"], mew=1.8)
        axes.axvline(tolerance, color=BOUND, ls="--", lw=1.5)
        axes.text(tolerance, len(rows) - 0.3, "tolerance  ", ha="right", color=BOUND, fontsize=8.5)
        axes.set_xscale("log")
        axes.set_yticks(range(len(rows)), [_case_name(row["case"]) for row in reversed(rows)])
        axes.tick_params(axis="y", labelsize=8)
        axes.set(
            xlim=(3e-7, 1e-1),
            ylim=(-0.7, len(rows) + 0.5),
            xlabel="largest error of y (filled: normal x, open: Cauchy x)",
        )
        axes.grid(axis="y", visible=False)
        return figure


def _case_name(case: dict) -> str:
    masked = " masked" if case["masked"] else ""
    return f"N={case['n']} B={case['batch']} D={case['dim']}{masked}"


def mask_trap(pairs: Mapping[str, tuple[Sequence[int], Sequence[int]]]):
    """Two rows of the mask meeting: ``title -> (row i, row j)``, 0 or 1 for each k.

    Under the rows, the k that count: with both factors, and with the left one alone. What the left
    one alone counts too much is crossed.
    """
    with house_style():
        figure, rooms = pyplot.subplots(1, len(pairs), figsize=(7.0, 2.1))
        for index, (axes, (title, (row_i, row_j))) in enumerate(
            zip([rooms] if len(pairs) == 1 else rooms, pairs.items(), strict=True)
        ):
            _mask_rows(axes, title, row_i, row_j, labels=index == 0)
        return figure


def _mask_rows(axes, title, row_i, row_j, labels):
    both = [a * b for a, b in zip(row_i, row_j, strict=True)]
    rows = (
        (5.0, row_i, COLOURS["left"], "mask[i, k]"),
        (3.8, row_j, COLOURS["right"], "mask[j, k]"),
        (1.4, both, COLOURS["out"], "k that count"),
        (0.2, row_i, COLOURS["mask"], "left only"),
    )
    for y, values, colour, label in rows:
        for k, value in enumerate(values):
            axes.add_patch(Rectangle((k, y), 1, 1, fc=colour if value else "white", ec=INK, lw=0.6))
            if label == "left only" and value != both[k]:
                axes.plot(k + 0.5, y + 0.5, "x", ms=10, mew=2.8, color=INK)
        if labels:
            axes.text(-0.4, y + 0.5, label, ha="right", va="center", fontsize=8.5)
    extra = sum(a != b for a, b in zip(row_i, both, strict=True))
    axes.set_title(title, fontsize=9, weight="bold")
    words = f"{extra} of {sum(row_i)} do not belong" if extra else "no difference"
    axes.text(len(row_i) / 2, -0.75, words, ha="center", va="center", fontsize=8.5)
    axes.set(xlim=(-0.1, len(row_i) + 0.1), ylim=(-1.2, 6.2), aspect="equal")
    axes.axis("off")
