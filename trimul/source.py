"""Read the rungs: show a source, and diff two of them.

Nothing here imports torch or a rung: sources are read as text.
"""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

from trimul.digest import documented

RUNGS = Path(__file__).parent / "rungs"


class Source(str):
    """Program text that a notebook shows as a highlighted block, and a terminal as it is."""

    language = "python"

    def _repr_markdown_(self):
        return f"```{self.language}\n{self}\n```"

    __repr__ = str.__str__


class Diff(Source):
    """A unified diff."""

    language = "diff"


def path_of(rung: str) -> Path:
    """The file of a rung. Raises ValueError for a name that is not on the ladder."""
    path = RUNGS / f"{rung}.py"
    if not rung.isidentifier() or rung.startswith("_") or not path.is_file():
        known = ", ".join(sorted(p.stem for p in RUNGS.glob("[!_]*.py")))
        raise ValueError(f"no rung is called {rung!r}: the ladder has {known}")
    return path


def show(rung: str, function: str | None = None) -> Source:
    """The source of a rung, or of one function of it.

    Raises ValueError when there is no such rung, or no such function in it.
    """
    text = path_of(rung).read_text()
    if function is None:
        return Source(text.rstrip("\n"))
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return Source(ast.get_source_segment(text, node))
    raise ValueError(f"the rung {rung} has no function {function!r}")


def diff(before: str, after: str) -> Diff:
    """What changes from one rung to the next: a unified diff of their code, docstrings left out."""
    old, new = (_code_lines(path_of(name)) for name in (before, after))
    return Diff("\n".join(difflib.unified_diff(old, new, before, after, n=3, lineterm="")))


def _code_lines(path: Path) -> list[str]:
    text = path.read_text()
    dropped = set()
    for node in documented(ast.parse(text)):
        dropped.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = text.splitlines()
    kept = [line for number, line in enumerate(lines, 1) if number not in dropped]
    while kept and not kept[0]:
        kept.pop(0)
    return kept
