"""TriMul, from five nested loops to the fastest implementation known: the library of the course.

In a notebook, importing it adds the ``%%gpu`` magic. The names below are looked up when they are
used: a recording depends on the modules that its cell needs, and on no others.
"""

import sys
from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "attempt": "trimul.exercises",
    "claim": "trimul.claims",
    "diff": "trimul.source",
    "predict": "trimul.claims",
    "reveal": "trimul.claims",
    "show": "trimul.source",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    from trimul.gpu import magic

    magic.register(_shell)
