"""The diagrams and charts of the course: one function each, in one module per theme.

Every function returns a matplotlib Figure; ``show`` puts it into a notebook with alternative text.
Charts of times are drawn from stored measurements only.
"""

from __future__ import annotations

from trimul.gpu import mime


def show(figure, alt: str) -> None:
    """Display a figure in a notebook, with the alternative text that a screen reader gets.

    Outside IPython the alternative text is printed. Raises ValueError for an empty text.
    """
    if not alt.strip():
        raise ValueError("a figure needs alternative text: say in a sentence what it shows")
    from matplotlib import pyplot

    image = mime.png(figure)
    pyplot.close(figure)
    text = alt if mime.shows_pictures() else f"[figure: {alt}]"
    mime.publish({"image/png": image, "text/plain": text}, {"image/png": {"alt": alt}})
