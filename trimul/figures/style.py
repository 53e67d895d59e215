"""The one look of all figures: a colour for each tensor, quiet axes, labels at the things.

The colours differ in lightness too, so that they stay apart in greyscale and for colour-blind eyes.
"""

from __future__ import annotations

from contextlib import contextmanager

import matplotlib
from matplotlib import pyplot

#: One colour per tensor, the same through the whole course.
COLOURS = {
    "x": "#c8b88a",
    "mask": "#8c8c8c",
    "left": "#2f6db3",
    "right": "#e3913a",
    "out": "#1f5c47",
    "gate": "#9b6bb3",
    "y": "#7a2e2e",
}
INK = "#222222"
FAINT = "#d9d9d9"
BOUND = "#b02a2a"  # a bound that no implementation passes: lines, always dashed

_RULES = {
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "svg.hashsalt": "trimul",
}


@contextmanager
def house_style():
    """Draw under this: ``with house_style(): fig, ax = pyplot.subplots()``."""
    with matplotlib.rc_context(_RULES):
        yield


def canvas(width: float, height: float, x: tuple[float, float], y: tuple[float, float]):
    """A figure with one axes without ticks or frame, for a diagram: ``figure, axes``.

    ``width`` and ``height`` in inches; ``x`` and ``y`` are the ranges of the drawing's coordinates.
    Use inside ``house_style``.
    """
    figure, axes = pyplot.subplots(figsize=(width, height))
    axes.set(xlim=x, ylim=y, aspect="equal")
    axes.axis("off")
    return figure, axes
