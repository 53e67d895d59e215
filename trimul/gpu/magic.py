"""The ``%%gpu`` magic of a notebook: runs or replays a cell, and shows what it gave.

The first line of the output says where, when and with which versions, live or recorded.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys

from trimul.gpu import backends, handover, recording
from trimul.gpu.cell import Cell, parse
from trimul.gpu.local import failure
from trimul.gpu.mime import publish

_defined: dict[str, str] = {}  # names that %%gpu cells defined for themselves -> the cell


class CellError(Exception):
    """The error that ended a ``%%gpu`` cell; the notebook shows the cell's own traceback."""

    def __init__(self, output: dict, hint: str = ""):
        super().__init__(f"{output['ename']}: {output['evalue']}")
        self.lines = [*output["traceback"], *filter(None, [hint])]

    def _render_traceback_(self):
        return self.lines


def register(shell) -> None:
    """Give an IPython session the magic; again does nothing new."""
    if "gpu" not in shell.magics_manager.magics["cell"]:
        shell.register_magic_function(gpu, "cell", "gpu")
        shell.events.register("post_run_cell", _hint_after)


def gpu(line: str, source: str) -> None:
    """Run the cell on a GPU, here or rented, or show its recording."""
    try:
        cell = parse(line, source)
        back_end, reason = backends.choose(cell)
    except ValueError as error:
        raise CellError(failure("UsageError", str(error))) from None
    _defined.update(dict.fromkeys(_names_set_by(source), cell.name or "above"))
    if back_end == backends.RECORDING:
        _replay(cell, reason)
    else:
        _run(cell, back_end)


def _run(cell: Cell, back_end: str) -> None:
    status = Status(back_end)
    handover.forget(cell.name)
    try:
        document = backends.run(cell, back_end, _show, status.tick)
    except BaseException:
        status.end("stopped")
        raise
    status.end(f"ran {_where(document)}, {_how(back_end, document)}")
    if cell.name:
        handover.remember(cell.name, document)
    _raise_error(document, source=cell.source)


def _replay(cell: Cell, reason: str) -> None:
    because = f" ({reason})" if reason else ""
    if not cell.name:
        print(f"not run{because}: it has no recording either, since it has no name. {_GET_A_GPU}")
        return
    try:
        recorded = recording.load(cell.name)
    except recording.RecordingError as error:
        print(f"not run{because}, and {error}. {_GET_A_GPU}")
        return
    if recorded["cell"] != cell.digest:
        print(
            f"not run{because}: the cell was edited, and its recording is of the cell as the "
            f"course has it. {_GET_A_GPU}"
        )
        return
    handover.forget(cell.name)  # what is shown now is what ``kept`` gives
    print(f"recorded {_where(recorded)}{because}")
    if changed := recording.moved(recorded):
        print(f"since then {', '.join(changed)} changed: a run today may show something else")
    for output in recorded["outputs"]:
        _show(output)
    _raise_error(recorded)


_GET_A_GPU = "To run it, use a machine with an NVIDIA GPU, or rent one (lesson 05)."


def _where(document: dict) -> str:
    if document["date"] == "none":
        return "and ended before it could say on which GPU"
    if document["gpu"] == "none":
        return f"on this machine's CPU, {document['date'][:10]}, torch {document['torch']}"
    return (
        f"on {document['gpu']}, {document['date'][:10]}, torch {document['torch']}, "
        f"triton {document['triton']}, driver {document['driver']}"
    )


def _how(back_end: str, document: dict) -> str:
    seconds = f"{document['seconds']:.1f} s"
    if back_end == "modal":
        return f"rented, {seconds}, about ${document['dollars']:.3f}"
    return f"live, {seconds}"


def _show(output: dict) -> None:
    """One output as the notebook shows its own; an error is raised at the end, not here."""
    if output["output_type"] == "stream":
        stream = sys.stderr if output["name"] == "stderr" else sys.stdout
        print(output["text"], end="", file=stream, flush=True)
    elif output["output_type"] != "error":
        publish(output["data"], output.get("metadata"))


def _raise_error(document: dict, source: str = "") -> None:
    if (failed := recording.error_of(document)) is None:
        return
    name, hint = document.get("undefined"), ""
    if failed["ename"] == "SyntaxError" and re.search(r"^\s*[!%]", source, re.MULTILINE):
        hint = "A %%gpu cell is plain Python: no lines with ! or %."
    if name and name in _notebook_names() and not hasattr(builtins, name):
        hint = (
            f"`{name}` is a variable of the notebook. A %%gpu cell is a program of its own and "
            "sees none of them: define it in the cell."
        )
    raise CellError(failed, hint)


class Status:
    """The first line of a live cell: how long it has been running, then where it ran."""

    def __init__(self, back_end: str):
        from IPython.display import display

        self.what = {"local": "on the GPU here", "modal": "on a rented GPU"}[back_end]
        self.seconds = 0
        self.line = display(self._text(f"running {self.what}"), raw=True, display_id=True)

    def tick(self, seconds: float, state: str) -> None:
        if int(seconds) > self.seconds:
            self.seconds = int(seconds)
            self._update(f"{state} {self.what}: {self.seconds} s; interrupt the kernel to stop it")

    def end(self, words: str) -> None:
        self._update(words)

    def _update(self, words: str) -> None:
        self.line.update(self._text(words), raw=True)

    @staticmethod
    def _text(words: str) -> dict:
        return {"text/plain": words}


def _names_set_by(source: str) -> set[str]:
    """The names that a program defines outside its functions."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = set()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).partition(".")[0] for a in statement.names}
        else:
            names |= {
                n.id
                for n in ast.walk(statement)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
    return names


def _notebook_names() -> dict:
    from IPython import get_ipython

    return get_ipython().user_ns


def _hint_after(result) -> None:
    """After a cell of the notebook missed a name that a ``%%gpu`` cell defined: say so."""
    error = result.error_in_exec
    if isinstance(error, NameError) and error.name in _defined:
        print(
            f"`{error.name}` was defined in the %%gpu cell {_defined[error.name]}, a program of "
            "its own. Import or define it here too; or, if it is data, hand it over with "
            f"keep({error.name}=…) there and kept(name of the cell) here, both from trimul.gpu."
        )
