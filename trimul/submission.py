"""Make a file of a function, as a contest wants it, and have it graded."""

from __future__ import annotations

import inspect
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from trimul import grade


def write(function: Callable, folder: Path | str) -> Path:
    """A file in ``folder`` whose ``custom_kernel`` is this function; returns its path.

    What the function's body names is brought along: modules and what was imported from them as
    imports, other functions of the same place as source, containers empty, plain values as they
    are. Raises ValueError for anything else.
    """
    parts = _needed(function, {})
    text = "\n\n".join(parts.values()) + f"\n\ncustom_kernel = {function.__name__}\n"
    path = Path(folder) / f"{function.__name__}.py"
    path.write_text(text)
    return path


class Found(dict):
    """Kind of fault -> the grader's words. Asked for a kind that it lacks, it says what it has."""

    def __missing__(self, kind):
        raise KeyError(f"the grader found nothing {kind}; it found {dict(self) or 'no fault'}")


def judged(function: Callable) -> Found:
    """What the grader finds wrong with ``function(data)``, by kind; empty if it is right."""
    with tempfile.TemporaryDirectory(prefix="trimul-") as folder:
        report = grade.grade(write(function, folder))
    found = Found()
    for finding in report.findings:
        found.setdefault(finding.kind, finding.words)
    return found


def _needed(function: Callable, parts: dict[str, str]) -> dict[str, str]:
    """The source of a function, after that of everything it names."""
    parts.setdefault(function.__name__, "")  # a function that names itself is not looked up again
    for name, value in _globals(function).items():
        if name in parts:
            continue
        if inspect.isfunction(value) and value.__module__ == function.__module__:
            _needed(value, parts)
        else:
            parts[name] = _as_code(name, value)
    parts.pop(function.__name__)
    parts[function.__name__] = textwrap.dedent(inspect.getsource(function))
    return parts


def _globals(function: Callable) -> dict:
    """Names and values that a function takes from around it, inner functions included."""
    names, codes = [], [function.__code__]
    while codes:
        code = codes.pop()
        names += code.co_names
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
    around = function.__globals__
    return {name: around[name] for name in dict.fromkeys(names) if name in around}


def _as_code(name: str, value) -> str:
    if isinstance(value, ModuleType):
        return f"import {value.__name__}" + f" as {name}" * (name != value.__name__)
    if isinstance(value, dict | list | set):
        return f"{name} = {type(value)()!r}"
    if isinstance(value, bool | int | float | str | None):
        return f"{name} = {value!r}"
    if hasattr(value, "__qualname__") and value.__module__ != "__main__":
        alias = f" as {name}" * (name != value.__qualname__)
        return f"from {value.__module__} import {value.__qualname__}{alias}"
    raise ValueError(f"{name} cannot be written into a file: define it inside the function")
