"""Show a value where the program runs: in a notebook, in a ``%%gpu`` cell, or as text.

A value becomes a MIME bundle (``{"text/plain": …, "image/png": …}``), as Jupyter has them, without
IPython: machines that only run cells do not have it.
"""

from __future__ import annotations

import base64
import io
import json
import pprint
import sys

# The methods that Jupyter asks an object for, and the type that each gives.
_REPRS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
}

_publisher = None  # the runner of a %%gpu cell puts its own here


def display(*values) -> None:
    """Show each value as the last line of a notebook cell would be shown."""
    for value in values:
        publish(*bundle(value))


def publish(data: dict, metadata: dict | None = None) -> None:
    """Show one MIME bundle; outside notebooks, print its text."""
    if _publisher is not None:
        _publisher(data, metadata or {})
    elif _in_notebook():
        from IPython.display import publish_display_data

        publish_display_data(data, metadata or {})
    else:
        print(data.get("text/plain", ""))


def publish_to(publisher) -> None:
    """From now on ``publisher(data, metadata)`` shows what ``publish`` is given."""
    global _publisher
    _publisher = publisher


def shows_pictures() -> bool:
    """Whether what is published is shown as more than text."""
    return _publisher is not None or _in_notebook()


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def bundle(value) -> tuple[dict, dict]:
    """The MIME bundle of a value and its metadata; always with text/plain.

    Raises what the value's own methods raise.
    """
    data, metadata = {}, {}
    if isinstance(value, type):
        return {"text/plain": repr(value)}, {}
    if (method := _method(value, "_repr_mimebundle_")) is not None:
        found = method(include=None, exclude=None)
        data, metadata = found if isinstance(found, tuple) else (found or {}, {})
    for name, kind in _REPRS.items():
        if kind not in data and (method := _method(value, name)) is not None:
            found = method()
            found, about = found if isinstance(found, tuple) else (found, {})
            if found is not None:
                data = {**data, kind: found}
                metadata = {**metadata, **({kind: about} if about else {})}
    if _is_figure(value):
        data = {**data, "image/png": png(value)}
    text = data.get("text/plain") or _text(value)
    return {kind: _as_json(found) for kind, found in {**data, "text/plain": text}.items()}, metadata


def _method(value, name: str):
    """A method of the value, or None; also where the value claims to have whatever it is asked."""
    if getattr(value, "_no_object_has_this_", None) is not None:
        return None
    method = getattr(value, name, None)
    return method if callable(method) else None


def _is_figure(value) -> bool:
    figures = sys.modules.get("matplotlib.figure")
    return figures is not None and isinstance(value, figures.Figure)


def png(figure) -> str:
    """A matplotlib figure as a PNG in base64; the same bytes every time."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=figure.dpi, metadata={"Software": None})
    return base64.b64encode(file.getvalue()).decode()


def _text(value) -> str:
    plain = type(value) in (dict, list, tuple, set, frozenset) and len(value) <= 1000
    return pprint.pformat(value, sort_dicts=False) if plain else repr(value)


def _as_json(found):
    """Bytes as base64, and what JSON does not know as text."""
    if isinstance(found, bytes):
        return base64.b64encode(found).decode()
    try:
        json.dumps(found)
    except (TypeError, ValueError):
        return str(found)
    return found
