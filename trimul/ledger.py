"""The reader's own folder, and files of JSON lines in it that only ever grow."""

from __future__ import annotations

import json
import os
from pathlib import Path


def home() -> Path:
    """Where the reader's own things are kept: ``$TRIMUL_HOME``, by default ``~/.trimul``."""
    return Path(os.environ.get("TRIMUL_HOME") or Path.home() / ".trimul")


def append(path: Path, entry: dict) -> None:
    """Add an entry to a ledger; makes its folder. Raises OSError where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        # A line that a killed session left unfinished must not swallow this one.
        unfinished = file.tell() > 0 and not path.read_bytes().endswith(b"\n")
        file.write("\n" * unfinished + json.dumps(entry) + "\n")


def entries(path: Path) -> list[dict]:
    """Every entry of a ledger, oldest first; what is not one is passed over. Raises OSError."""
    found = []
    for line in path.read_text("utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found
