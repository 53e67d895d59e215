"""Cells that run on a GPU: here, on a rented one, or as they were recorded.

``%%gpu`` at the top of a notebook's cell; this package knows nothing of what the cells compute.
"""

from trimul.gpu.handover import keep, kept
from trimul.gpu.mime import display

__all__ = ["display", "keep", "kept", "rent"]


def __getattr__(name: str):
    if name == "rent":  # needs Modal's client, which few cells do
        from trimul.gpu.rented import rent

        return rent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
