"""Data that leaves a ``%%gpu`` cell: ``keep`` in the cell, ``kept`` in the notebook."""

from __future__ import annotations

import json

from trimul.gpu.provenance import FIELDS

_keeper = None  # the runner of a %%gpu cell puts its own here
_session: dict[str, dict] = {}  # what the cells of this session gave, by name


def keep(**values) -> None:
    """Hand values over to the notebook, which gets them with ``kept(name of the cell)``.

    They travel as JSON: numbers, text, lists and dictionaries. Raises TypeError for anything else,
    ValueError for a name that the provenance has, RuntimeError outside a ``%%gpu`` cell.
    """
    if taken := sorted(set(values) & {*FIELDS, "live", "recorded_on"}):
        raise ValueError(f"{', '.join(taken)}: taken by the provenance; choose another name")
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"keep({name}=…) takes numbers, text, lists and dictionaries: {error}; "
                "of a tensor, keep tensor.tolist()"
            ) from None
    if _keeper is None:
        raise RuntimeError("keep(…) hands data out of a %%gpu cell; here nothing needs it")
    _keeper(values)


def kept(name: str) -> dict:
    """What the cell ``name`` handed over: from its last run in this session, or as recorded.

    With the fields of its provenance (gpu, driver, torch, triton, date, run), ``live`` (whether it
    ran in this session) and ``recorded_on`` (the GPU of its recording, or ""), so that a claim can
    say what it rests on. Raises RecordingError when there is neither, or the last run failed.
    """
    from trimul.gpu import recording

    recorded = recording.find(name)
    document = _session.get(name) or recorded or recording.load(name)
    if document["kept"] is None and recording.error_of(document):
        raise recording.RecordingError(
            f"the last run of {name} failed before it handed anything over: run it again"
        )
    return {
        **(document["kept"] or {}),
        **{field: document[field] for field in FIELDS},
        "live": name in _session,
        "recorded_on": recorded["gpu"] if recorded else "",
    }


def keep_with(keeper) -> None:
    """From now on ``keeper(values)`` receives what ``keep`` is given."""
    global _keeper
    _keeper = keeper


def forget(name: str) -> None:
    """What a cell gave in this session no longer counts: it runs again, or its recording shows."""
    _session.pop(name, None)


def remember(name: str, document: dict) -> None:
    """Note what a cell gave in this session."""
    _session[name] = document
