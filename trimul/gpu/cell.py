"""A ``%%gpu`` cell as text: its name, its options, its program; and the cells of a notebook.

%%gpu 04_clock --timeout 60
…the program…
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from trimul import digest
from trimul.gpu.local import TIMEOUT_S

BACK_ENDS = ("auto", "local", "modal", "recording")
USAGE = (
    "%%gpu [NAME] [--on auto|local|modal|recording] [--gpu H100!] [--timeout SECONDS]; "
    "NAME is that of its recording, 04_clock say"
)


@dataclass(frozen=True)
class Cell:
    """One cell: ``name`` of its recording or "", ``source`` its program without the first line."""

    name: str
    source: str
    on: str = ""  # a back end, or "" where TRIMUL_GPU decides
    gpu: str = ""  # the GPU to rent, or "" for the one that was agreed on
    timeout: float = TIMEOUT_S
    notebook: str = ""  # file name
    id: str = ""

    @property
    def digest(self) -> str:
        """Hash of the program; layout and comments do not matter."""
        try:
            # a text that stands first is no docstring here: it may be all that the cell shows
            first = "0\n" * (ast.get_docstring(ast.parse(self.source)) is not None)
            return digest.of_python(first + self.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return "not Python"

    @property
    def place(self) -> str:
        return f"{self.notebook}#{self.id}"


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ValueError(f"{message}. The first line is {USAGE}")


def parse(line: str, source: str, **where) -> Cell:
    """The cell with this first line (without ``%%gpu``) and program.

    Raises ValueError, with the form of the line, for what it does not know.
    """
    parser = _Parser(add_help=False)
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--on", choices=BACK_ENDS, default="")
    parser.add_argument("--gpu", default="")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    options = parser.parse_args(shlex.split(line))
    if options.name and not re.fullmatch(r"\d\d_[a-z0-9_]+", options.name):
        raise ValueError(f"{options.name!r} is not a name like 04_clock. The first line is {USAGE}")
    if not 0 < options.timeout <= 3600:
        raise ValueError("--timeout is in seconds, up to 3600")
    return Cell(source=source, **vars(options), **where)


def read(text: str, **where) -> Cell:
    """The cell with this text, its first line included. Raises ValueError as ``parse`` does."""
    first, _, source = text.lstrip().partition("\n")
    return parse(first.removeprefix("%%gpu"), source, **where)


def cells(notebook: Path | str) -> list[Cell]:
    """The ``%%gpu`` cells of a notebook file, in order.

    Raises ValueError, naming the file, for what is not a notebook.
    """
    notebook = Path(notebook)
    try:
        found = [c for c in json.loads(notebook.read_text("utf-8"))["cells"] if _is_gpu(c)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{notebook} cannot be read as a notebook ({error!r})") from None
    return [read(_text(c), notebook=notebook.name, id=str(c.get("id", ""))) for c in found]


def _is_gpu(cell: dict) -> bool:
    return cell["cell_type"] == "code" and re.match(r"\s*%%gpu\b", _text(cell)) is not None


def _text(cell: dict) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)
