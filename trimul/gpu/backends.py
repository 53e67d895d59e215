"""Where a ``%%gpu`` cell runs: on the GPU here, on a rented one, or nowhere, as it was recorded."""

from __future__ import annotations

import os
import sys

from trimul.gpu.cell import BACK_ENDS, Cell

RECORDING = "recording"


def choose(cell: Cell) -> tuple[str, str]:
    """The back end that a cell gets, and if it is not the one asked for, the reason.

    The cell's ``--on`` comes before ``TRIMUL_GPU``, but where that says ``recording`` nothing else
    is used. ``auto`` is a GPU that was rented in this session, else the one here, else the
    recording. Raises ValueError for a back end that there is not.
    """
    setting = os.environ.get("TRIMUL_GPU") or "auto"
    if setting not in BACK_ENDS:
        raise ValueError(f"TRIMUL_GPU is {setting!r}: it may be {', '.join(BACK_ENDS)}")
    asked = RECORDING if setting == RECORDING else cell.on or setting
    reasons = []
    for name, why_not in _WHY_NOT.items():
        if asked in ("auto", name):
            reason = why_not()
            if not reason:
                return name, ""
            reasons.append(reason)
    return RECORDING, "; ".join(reasons)


def run(cell: Cell, name: str, on_output, tick) -> dict:
    """Run a cell on a live back end; returns its run document."""
    return _RUN[name](cell, on_output, tick)


def _not_rented() -> str:
    rented = sys.modules.get("trimul.gpu.rented")  # loaded by the one who rents
    return "" if rented and rented.is_rented() else "no GPU is rented in this session"


def _no_gpu() -> str:
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"torch cannot be imported ({error})"
    return "" if torch.cuda.is_available() else "no GPU can be used here"


def _run_local(cell, on_output, tick):
    from trimul.gpu import local

    return local.run(cell.source, cell.name, cell.timeout, on_output, tick)


def _run_rented(cell, on_output, tick):
    from trimul.gpu import rented

    document = rented.run(cell.source, cell.name, cell.timeout, cell.gpu, tick)
    for output in document["outputs"]:
        on_output(output)
    return document


_WHY_NOT = {"modal": _not_rented, "local": _no_gpu}
_RUN = {"modal": _run_rented, "local": _run_local}
