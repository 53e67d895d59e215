"""Lesson 01: the triangle i, j, k, who meets whom, and how work and data grow."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib import pyplot
from matplotlib.patches import FancyArrowPatch, Rectangle

from trimul import protein
from trimul.figures.style import BOUND, COLOURS, FAINT, INK, canvas, house_style
from trimul.problem import Case, stages

DIRECTIONS = ("outgoing", "incoming")


def meeting(
    directions: Sequence[str] = ("outgoing",), n: int = 7, i: int = 1, j: int = 4, k: int = 5
):
    """Who meets whom: the triangle, and the lines of left and right that make ``out[i, j]``.

    One row for each of ``directions`` ("outgoing", "incoming"), on grids of n x n pairs.
    """
    with house_style():
        figure, axes = canvas(6.6, 2.15 * len(directions), (0, 44), (0, 14.3 * len(directions)))
        for row, direction in enumerate(reversed(directions)):
            base = 14.3 * row
            _triangle(axes, 5.2, base + 4.2, direction)
            for column, name in enumerate(("left", "right", "out")):
                lines = {"left": i, "right": j, "out": None}
                _grid(
                    axes, 13.6 + 10.9 * column, base + 2.2, name, direction, n, i, j, k, lines[name]
                )
            axes.text(22.8, base + 6.2, "×", ha="center", va="center", fontsize=15)
            axes.text(33.7, base + 6.2, "sum\nover k\n→", ha="center", va="center", fontsize=8.5)
        return figure


def _triangle(axes, x, y, direction):
    """Three residues as corners; left and right run out of i and j, or into them."""
    corners = {"i": (x - 3.9, y), "j": (x + 3.9, y), "k": (x, y + 6.6)}
    outgoing = direction == "outgoing"
    for name, corner in (("left", "i"), ("right", "j")):
        ends = (corners[corner], corners["k"])
        arrow = FancyArrowPatch(
            *(ends if outgoing else ends[::-1]),
            arrowstyle="-|>",
            mutation_scale=13,
            shrinkA=9,
            shrinkB=9,
            lw=2.2,
            color=COLOURS[name],
        )
        axes.add_patch(arrow)
    axes.add_patch(
        FancyArrowPatch(
            corners["i"],
            corners["j"],
            arrowstyle="-|>",
            mutation_scale=13,
            shrinkA=9,
            shrinkB=9,
            lw=2.2,
            ls=(0, (3, 1.5)),
            color=COLOURS["out"],
        )
    )
    for name, position in corners.items():
        axes.plot(*position, "o", ms=15, mfc="white", mec=INK)
        axes.text(*position, name, ha="center", va="center_baseline", style="italic", fontsize=10)
    axes.text(x, y - 2.9, direction, ha="center", va="center", fontsize=10, weight="bold")


def _grid(axes, x, y, name, direction, n, i, j, k, line):
    """The n x n pairs of one tensor: its line through i or j, or the one pair of out."""
    cell = 8.0 / n
    top = y + 8.0
    outgoing = direction == "outgoing"

    def paint(row, column, **look):
        corner = (x + column * cell, top - (row + 1) * cell)
        axes.add_patch(Rectangle(corner, cell, cell, **look))

    for row in range(n):
        for column in range(n):
            paint(row, column, fc="white", ec=FAINT, lw=0.7)
    if line is None:
        paint(i, j, fc=COLOURS[name], ec=INK, lw=1.2)
        subscript = "i, j"
    else:
        for other in range(n):
            place = (line, other) if outgoing else (other, line)
            chosen = other == k
            paint(*place, fc=COLOURS[name], alpha=1.0 if chosen else 0.45, ec="white", lw=0.7)
        paint(*((line, k) if outgoing else (k, line)), fc="none", ec=INK, lw=1.4)
        letter = {"left": "i", "right": "j"}[name]
        subscript = f"{letter}, k" if outgoing else f"k, {letter}"
    axes.text(
        x + 4,
        top + 1.3,
        f"{name}[{subscript}]",
        ha="center",
        va="center",
        color=COLOURS[name],
        weight="bold",
        family="DejaVu Sans Mono",
        fontsize=9,
    )
    rows, columns = _ticks(name, outgoing, i, j, k)
    for letter, index in rows.items():
        axes.text(
            x - 0.55,
            top - (index + 0.5) * cell,
            letter,
            ha="center",
            va="center_baseline",
            style="italic",
        )
    for letter, index in columns.items():
        axes.text(
            x + (index + 0.5) * cell,
            y - 0.8,
            letter,
            ha="center",
            va="center_baseline",
            style="italic",
        )


def _ticks(name, outgoing, i, j, k):
    """Which letters stand at the rows and at the columns of a grid."""
    if name == "out":
        return {"i": i}, {"j": j}
    line, other = ({"i": i} if name == "left" else {"j": j}), {"k": k}
    return (line, other) if outgoing else (other, line)


def distance_map(distance: torch.Tensor, i: int, j: int, names: Sequence[str] = ()):
    """Rows i and j of a distance map ``[N, N]``, and what every k says about the pair (i, j).

    ``names``: N residue names for the labels; by default the numbers from 1.
    """
    names = list(names) or [str(index + 1) for index in range(len(distance))]
    with house_style():
        figure, (grid, plot) = pyplot.subplots(
            1, 2, figsize=(6.6, 3.3), gridspec_kw={"width_ratios": (1, 1.1)}
        )
        best = _per_k(plot, distance, i, j, names)
        _map(grid, distance, i, j, names, best)
        return figure


def _map(axes, distance, i, j, names, best):
    """The map, near pairs dark, with the two rows that meet and the pair they are about."""
    axes.imshow(distance.numpy(), cmap="Greys_r", vmax=1.3 * float(distance.max()))
    axes.grid(False)
    for row, name in ((i, "left"), (j, "right")):
        axes.axhline(row, color=COLOURS[name], lw=2.4)
        axes.plot(best, [row] * len(best), "o", ms=6, color=COLOURS[name], mec="white")
    axes.plot(j, i, "s", ms=9, color=COLOURS["out"], mec="white")
    axes.set_xticks([j, *best], ["j", *(f"k = {names[k]}" for k in best)], rotation=30, ha="right")
    axes.set_yticks([i, j], [f"i = {names[i]}", f"j = {names[j]}"])
    axes.set_title("distance of every pair (dark: near)", fontsize=9)


def _per_k(axes, distance, i, j, names) -> list[int]:
    """Both bounds for every k and the distance between them; returns the two k that say most."""
    lower, upper = (bound[i, j] for bound in protein.bounds(distance))
    best = [int(lower.argmax()), int(upper.argmin())]
    known = [k for k in range(len(distance)) if k not in (i, j)]
    actual = float(distance[i, j])
    axes.fill_between(known, lower[known], upper[known], color=FAINT, lw=0)
    for bound in (lower, upper):
        axes.plot(known, bound[known], color=INK, lw=1)
    axes.axhline(actual, color=COLOURS["out"], lw=2)
    for k, bound, offset in zip(best, (lower, upper), (7, -15), strict=True):
        axes.plot(k, float(bound[k]), "o", ms=6, color=COLOURS["out"], mec="white", zorder=3)
        place = {"xy": (k, float(bound[k])), "xytext": (-3, offset), "fontsize": 8.5}
        ground = {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 0.8}
        axes.annotate(f"k = {names[k]}", **place, textcoords="offset points", bbox=ground)
    top, middle = float(upper[known].max()), len(distance) / 2
    label = {"ha": "center", "fontsize": 9}
    axes.text(middle, 0.87 * top, "at most d(i,k) + d(j,k)", va="bottom", **label)
    axes.text(middle, -0.02 * top, "at least |d(i,k) − d(j,k)|", va="top", **label)
    axes.set(xlim=(-1, len(distance)), ylim=(-0.13 * top, 1.04 * top), ylabel="ångström")
    axes.set(xticks=[], xlabel="third residue k, from the first to the last")
    title = f"d(i,j) = {actual:.1f} Å lies between, for every k"
    axes.set_title(title, fontsize=9, color=COLOURS["out"])
    return best


def consulted(counts: Sequence[int], widths: Sequence[float]):
    """How far a distance stays open (median width in ångström) after asking so many residues k."""
    with house_style():
        figure, axes = pyplot.subplots(figsize=(5.2, 2.5))
        axes.plot(counts, widths, "o-", color=COLOURS["out"], lw=2)
        for index in (0, -1):
            axes.annotate(
                f"{widths[index]:.1f} Å",
                (counts[index], widths[index]),
                xytext=(6, 6),
                textcoords="offset points",
                fontsize=9,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set(
            xlim=(0.9, 1.6 * counts[-1]),
            ylim=(0, 1.2 * max(widths)),
            xlabel="third residues k consulted",
            ylabel="what is left open\n(median, Å)",
        )
        return figure


def growth(sizes: Sequence[int], ridge: float, ridge_name: str):
    """Work and data of the contraction by N (H=128, 2 bytes an element), and their ratio.

    ``ridge``: the FLOP per byte that a processor, ``ridge_name``, can do at full rate of both.
    """
    work = [stages(Case(n))[1] for n in sizes]
    with house_style():
        figure, (amounts, ratio) = pyplot.subplots(1, 2, figsize=(6.6, 2.9))
        for values, label, colour in (
            ([stage.flops for stage in work], "FLOPs: N³", COLOURS["out"]),
            ([stage.bytes for stage in work], "bytes: N²", COLOURS["left"]),
        ):
            amounts.loglog(sizes, values, "o-", color=colour, lw=2, ms=4)
            amounts.annotate(
                label,
                (sizes[-2], values[-2]),
                xytext=(-8, 4),
                textcoords="offset points",
                ha="right",
                va="bottom",
                color=colour,
                weight="bold",
                fontsize=9,
            )
        intensity = [stage.intensity for stage in work]
        ratio.loglog(sizes, intensity, "o-", color=INK, lw=2, ms=4)
        ratio.set_yticks(intensity, [f"{value:.0f}" for value in intensity])
        ratio.axhline(ridge, color=BOUND, ls="--", lw=1.5)
        ratio.text(sizes[0], 1.12 * ridge, f"{ridge_name}: {ridge:.0f}", color=BOUND, fontsize=8.5)
        amounts.set_title("contraction, H = 128, fp16", fontsize=9)
        ratio.set_title("FLOP per byte: N / 3", fontsize=9)
        for axes in (amounts, ratio):
            axes.set_xticks(sizes, [str(n) for n in sizes])
            axes.minorticks_off()
            axes.set_xlabel("N")
        return figure
