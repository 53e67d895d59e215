"""Files that are never half written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a text file, whole or not at all, in place of an older one; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        whole = Path(folder) / path.name
        whole.write_text(text, encoding="utf-8")
        os.replace(whole, path)
