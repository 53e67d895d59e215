"""Sentences that are also tests, and the reader's predictions.

A claim states what a lesson says and fails when the data no longer says so. A prediction is kept in
one local file, ``$TRIMUL_HOME/progress.jsonl`` (by default ``~/.trimul``), which only ever grows.
"""

from __future__ import annotations

import time
from pathlib import Path

from trimul.ledger import append, entries, home


class ClaimFailed(AssertionError):
    """A sentence of a lesson is no longer true."""


def claim(sentence: str, holds: bool, data=None) -> None:
    """Assert a sentence of the lesson and say on whose measurements it rests.

    ``data`` is what it rests on: stored rows or documents with ``gpu``, ``date`` and ``run``; what
    a ``%%gpu`` cell handed over (``trimul.gpu.kept``), which is measured where there is a GPU and
    replayed elsewhere; or None for something computed in this session. Raises ClaimFailed when it
    does not hold, except that what was measured on another GPU than the lesson's is a finding, and
    is printed. Raises TypeError when ``holds`` is not a truth value, ValueError when ``data`` mixes
    two runs: figures of two runs or machines do not compare.
    """
    if getattr(holds, "dtype", None) is not None and getattr(holds, "ndim", None) == 0:
        holds = holds.item()
    if not isinstance(holds, bool):
        raise TypeError(f"a claim needs a truth value, such as ratio > 2, not {holds!r}")
    source = _provenance(data)
    if holds:
        print(f"claim holds: {sentence} [{source}]")
    elif isinstance(data, dict) and data.get("live") and data["gpu"] != data["recorded_on"]:
        recorded_on = data["recorded_on"] or "another GPU"
        print(f"not so on this GPU: {sentence} [{source}; the lesson says it of {recorded_on}]")
    else:
        raise ClaimFailed(f"no longer true: {sentence} [{source}]. This lesson needs rewriting.")


def _provenance(data) -> str:
    if data is None:
        return "computed here"
    rows = [data] if isinstance(data, dict) else list(data)
    runs = {(row["gpu"], row["date"][:10], row["run"]) for row in rows}
    if not runs:
        raise ValueError("a claim rests on data, and there is none: check how the rows were chosen")
    if len(runs) > 1:
        raise ValueError(f"a claim compares rows of one run only, and these come from {len(runs)}")
    gpu, date, _ = runs.pop()
    how = {True: "measured", False: "replayed", None: "stored data"}[rows[0].get("live")]
    return f"{how}: {gpu}, {date}"


def predict(key: str, value: float | None, unit: str = "") -> None:
    """Commit to a number before seeing one. None writes nothing.

    A number is appended to the ledger; earlier predictions stay. Raises TypeError for what is not
    a number.
    """
    if value is None or value is ...:
        print("no prediction yet: put your number in place of None and run the cell again")
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a prediction is a number without quotes or units, not {value!r}")
    if value == last_prediction(key) or _append({"predict": key, "value": value, "unit": unit}):
        print(f"noted: {value:g} {unit}".rstrip())


def reveal(key: str, actual: float, unit: str = "") -> None:
    """Show the answer, measured or computed, beside the reader's last prediction of it."""
    guess = last_prediction(key)
    print(f"answer: {_readable(actual)} {unit}".rstrip())
    if guess is None:
        print("you made no prediction; one number beforehand makes the next one stick")
        return
    print(f"you said: {guess:g} {unit}".rstrip() + f", {_distance(guess, actual)}")
    entry = {"reveal": key, "guess": guess, "actual": actual, "unit": unit}
    if not any(entry.items() <= earlier.items() for earlier in ledger()):
        _append(entry)


def last_prediction(key: str) -> float | None:
    """The reader's latest prediction under a key, or None."""
    values = [entry["value"] for entry in ledger() if entry.get("predict") == key]
    return values[-1] if values else None


def ledger() -> list[dict]:
    """Every entry of the reader's ledger, oldest first; what cannot be read is passed over."""
    try:
        return entries(_progress())
    except OSError:
        return []


def _progress() -> Path:
    return home() / "progress.jsonl"


def _readable(value: float) -> str:
    """Two digits, or a whole number: what holds from run to run, without an exponent."""
    return f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.2g}"


def _distance(guess: float, actual: float) -> str:
    if guess == actual:
        return "exactly right"
    if guess <= 0 or actual <= 0:
        return f"off by {abs(guess - actual):.2g}"
    factor = max(guess / actual, actual / guess)
    return f"{factor:.2g} times too {'high' if guess > actual else 'low'}"


def _append(entry: dict) -> bool:
    """Whether the entry was written; if not, the reason is printed."""
    try:
        append(_progress(), {**entry, "date": time.strftime("%Y-%m-%dT%H:%M:%S")})
    except OSError as error:
        print(f"not saved ({error}): set TRIMUL_HOME to a folder that can be written")
        return False
    return True
