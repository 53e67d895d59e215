"""Recordings of ``%%gpu`` cells: ``assets/recordings/NN_name.json``, what a cell gave on a GPU.

A recording is a run document (``trimul.gpu.local``) with the cell's name, its notebook and the hash
of its program, and a hash over all of it. It is stale when the program, or a file of the project
that the program used, is no longer what it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from trimul import digest
from trimul.files import write_whole
from trimul.gpu.cell import Cell, cells
from trimul.gpu.provenance import FIELDS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "assets" / "recordings"
OUTPUTS = ("stream", "display_data", "execute_result", "error")


class RecordingError(ValueError):
    """A recording that is missing or cannot be read; the message says what to do."""

    def _render_traceback_(self):  # a notebook shows the sentence alone
        return [f"RecordingError: {self}"]


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


def find(name: str) -> dict | None:
    """The recording of a cell, or None where there is none that can be read."""
    try:
        return load(name)
    except RecordingError:
        return None


def load(name: str) -> dict:
    """The recording of a cell. Raises RecordingError if it is missing or not whole."""
    path = path_of(name)
    if not path.is_file():
        raise RecordingError(
            f"the cell {name} has no recording: on a machine with a GPU, run "
            "`python -m trimul record`"
        )
    try:
        recording = json.loads(path.read_text("utf-8"))
        whole = recording.pop("whole")
        right = whole == _hash(recording) and recording["kind"] == "recording"
        right = right and all(o["output_type"] in OUTPUTS for o in recording["outputs"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        right = False
    wrong = "" if right else "is damaged or was edited"
    if right and recording["name"] != name:
        wrong = f"is of another cell, {recording['name']}"
    if wrong:
        raise RecordingError(
            f"assets/recordings/{path.name} {wrong}: restore it from the repository, or record "
            "the cell again"
        )
    return recording


def save(cell: Cell, document: dict) -> Path:
    """Write the recording of a cell, whole or not at all, in place of an older one.

    Raises ValueError for a cell without a name, a run without a GPU, or one that failed: what was
    recorded before is kept.
    """
    if not cell.name:
        raise ValueError(f"{cell.place}: a cell to be recorded has a name: %%gpu 04_clock")
    if document["gpu"] == "none":
        raise ValueError(f"{cell.name} ran without a GPU: nothing is recorded")
    if failed := error_of(document):
        raise ValueError(f"{cell.name} failed ({failed['ename']}: {failed['evalue']})")
    recording = {
        "kind": "recording",
        "name": cell.name,
        "notebook": cell.notebook,
        "cell": cell.digest,
        **{key: document[key] for key in ("kept", "files", "seconds", *FIELDS, "outputs")},
    }
    path = path_of(cell.name)
    write_whole(path, json.dumps({**recording, "whole": _hash(recording)}, indent=1) + "\n")
    return path


def error_of(document: dict) -> dict | None:
    """The error that ended a run, if one did."""
    return next((o for o in document["outputs"] if o["output_type"] == "error"), None)


def moved(recording: dict) -> list[str]:
    """The project's files that are no longer what they were when the recording was made."""
    return [file for file, before in recording["files"].items() if _now(file) != before]


def record(
    these: Iterable[Cell],
    run: Callable[[Cell], dict],
    progress: Callable[[str], None] = lambda line: None,
) -> int:
    """Run and save each cell; returns how many failed. A failed one keeps its old recording."""
    failed = 0
    for cell in these:
        try:
            document = run(cell)
            path = save(cell, document)
        except ValueError as error:
            progress(f"{cell.place}: not recorded: {error}")
            failed += 1
        else:
            size = path.stat().st_size / 1000
            progress(f"{cell.name}: {document['seconds']:.1f} s, {size:.0f} kB, {document['gpu']}")
    return failed


def fault(cell: Cell) -> str:
    """What is wrong with the recording of a cell: "" if nothing is."""
    if not cell.name:
        return "has no name, so no recording can be found for it: %%gpu 04_clock"
    try:
        recording = load(cell.name)
    except RecordingError as error:
        return str(error)
    if recording["notebook"] != cell.notebook:
        return f"{path_of(cell.name).name} is of a cell in {recording['notebook']}"
    if recording["gpu"] == "none":
        return f"{path_of(cell.name).name} was made without a GPU"
    changed = ["the cell"] * (recording["cell"] != cell.digest) + moved(recording)
    if changed:
        return f"{', '.join(changed)} changed since it was recorded: `python -m trimul record`"
    return ""


def cells_of(notebooks: Iterable[Path | str] = ()) -> list[Cell]:
    """The ``%%gpu`` cells of these notebooks, in order; of all the course's if none is named."""
    everything = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    return [cell for path in notebooks or everything for cell in cells(path)]


def faults(these: Iterable[Cell]) -> list[str]:
    """One line for each recording of these cells that is stale, missing, damaged or foreign."""
    return [f"{cell.place}: {words}" for cell in these if (words := fault(cell))]


def orphans(these: Iterable[Cell]) -> list[str]:
    """One line for each stored recording that belongs to none of these cells."""
    names = {cell.name for cell in these}
    files = sorted(FOLDER.glob("*")) if FOLDER.is_dir() else []
    return [
        f"assets/recordings/{file.name}: no cell of the notebooks has this name: delete it"
        for file in files
        if file.suffix != ".json" or file.stem not in names
    ]


def _now(file: str) -> str:
    try:
        return digest.of_file(ROOT / file)
    except OSError:
        return "gone"


def _hash(recording: dict) -> str:
    return hashlib.sha256(json.dumps(recording, sort_keys=True).encode()).hexdigest()[:16]
