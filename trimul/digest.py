"""Hashes that tell whether code has changed, and do not care how it is laid out."""

from __future__ import annotations

import ast
import hashlib
from contextlib import suppress
from pathlib import Path


def of_python(text: str) -> str:
    """Hash of a program's syntax tree without docstrings: comments and layout do not matter.

    The same on every Python version: what is empty is left out, for each version adds new fields.
    Raises SyntaxError for what is not Python.
    """
    tree = ast.parse(text)
    for node in documented(tree):
        node.body = node.body[1:] or [ast.Pass()]
    return _short(_written_out(tree).encode())


def of_file(path: Path | str) -> str:
    """Hash of a file: of a Python file as ``of_python`` has it, of any other by its bytes."""
    data = Path(path).read_bytes()
    if Path(path).suffix == ".py":
        with suppress(SyntaxError, ValueError, RecursionError):  # else it is no Python after all
            return of_python(data.decode("utf-8"))
    return _short(data)


def documented(tree: ast.AST) -> list[ast.AST]:
    """The nodes of a tree that carry a docstring."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [n for n in ast.walk(tree) if isinstance(n, owners) and ast.get_docstring(n) is not None]


def _written_out(node) -> str:
    if isinstance(node, list):
        return f"[{', '.join(map(_written_out, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    filled = {name: value for name, value in ast.iter_fields(node) if value not in (None, [])}
    parts = ", ".join(f"{name}={_written_out(value)}" for name, value in filled.items())
    return f"{type(node).__name__}({parts})"


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
