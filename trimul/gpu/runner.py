"""The far side of a ``%%gpu`` cell: runs one program and sends everything it shows down one pipe.

    python -m trimul.gpu.runner FOLDER MARK

``FOLDER/cell.py`` is the program. Text goes to standard output as it is written, by Python, by C or
by a process that the program starts. Whatever else is shown (a table, a figure, an error) becomes a
file ``FOLDER/N.json``, and a mark in the text says where it belongs: so everything arrives in the
order in which it was shown. Standard input is a lifeline: when it closes, the one who asked has
gone, and the program ends.

No IPython is needed: the machines that record have none.
"""

from __future__ import annotations

import ast
import atexit
import builtins
import contextlib
import faulthandler
import io
import itertools
import json
import os
import signal
import sys
import threading
import traceback
import types
import warnings
from pathlib import Path

from trimul import digest
from trimul.gpu import handover, mime

PACKAGE = Path(__file__).resolve().parents[1]  # the project's own code, whose state is recorded
ROOT = PACKAGE.parent
CELL = "%%gpu cell"  # the program's name in tracebacks
OUTPUT_LIMIT = 4_000_000  # bytes of one output


class Wire:
    """The pipe to whoever asked, and the files beside it."""

    def __init__(self, folder: Path, mark: str):
        self.folder, self.mark = folder, mark
        self.owner = os.getpid()
        self.count = itertools.count()
        self.pipe = os.dup(1)  # the program may close standard output

    def send(self, kind: str, **fields) -> None:
        """One output, or a note to the near side, in its place between the texts."""
        if os.getpid() != self.owner:
            return  # a fork of the program may print; the outputs are the program's own
        text = json.dumps({"output_type": kind, **fields}, ensure_ascii=False)
        if len(text) > OUTPUT_LIMIT:
            words = f"[an output of {len(text) / 1e6:.0f} MB is not shown: at most "
            words += f"{OUTPUT_LIMIT / 1e6:.0f} MB; make the figure or the table smaller]\n"
            text = json.dumps({"output_type": "stream", "name": "stdout", "text": words})
        number = next(self.count)
        if not self.folder.exists():  # the program has deleted it
            self.folder.mkdir()
        (self.folder / f"{number}.json").write_bytes(text.encode("utf-8", "replace"))
        flush()
        self.say(str(number))

    def say(self, word: str, text: str = "", then: str = "") -> None:
        """A mark, and text up to another one, in one write: no thread comes between."""
        words = f"{self._mark(word)}{text}{self._mark(then)}"
        os.write(self.pipe, words.encode("utf-8", "backslashreplace"))

    def _mark(self, word: str) -> str:
        return f"\x1e{self.mark}:{word}\n" if word else ""

    def show(self, data: dict, metadata: dict) -> None:
        self.send("display_data", data=data, metadata=metadata)

    def keep(self, values: dict) -> None:
        if len(json.dumps(values)) > OUTPUT_LIMIT // 2:
            raise ValueError(f"keep(…) takes at most {OUTPUT_LIMIT / 2e6:.0f} MB: keep less of it")
        self.send("keep", values=values)

    def result(self, value) -> None:
        """The value of the last line, as a notebook shows it."""
        if value is not None:
            data, metadata = mime.bundle(value)
            self.send("execute_result", data=data, metadata=metadata, execution_count=None)


class Errors(io.TextIOBase):
    """Standard error: the same pipe, marked, so that its place among the texts is kept."""

    encoding = "utf-8"

    def __init__(self, wire: Wire):
        self.wire = wire

    def write(self, text: str) -> int:
        if text:
            flush(sys.stdout)
            self.wire.say("stderr", text, then="stdout")
        return len(text)

    def writable(self):
        return True

    def fileno(self):
        return 2


def flush(*streams) -> None:
    """Push out what streams that the program made hold back."""
    for stream in streams or (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the program may have closed or replaced it
            stream.flush()


def watch_lifeline() -> None:
    """End this process and all it started when standard input closes; leave none to the program."""
    lifeline = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)

    def wait():
        while os.read(lifeline, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


class Files:
    """The files of the project that the program read or imported; what it shows depends on them.

    Not this package, which runs cells and computes nothing, nor what it needed itself.
    """

    ours = Path(__file__).parent

    def __init__(self):
        self.before = set(sys.modules)
        self.opened = set()
        sys.addaudithook(self._hook)

    def _hook(self, event, args):
        if event == "open" and isinstance(args[0], str) and not _writes(args[1], args[2]):
            self.opened.add(os.path.abspath(args[0]))

    def digests(self) -> dict[str, str]:
        """Path relative to the project's root -> digest."""
        modules = [sys.modules[name] for name in set(sys.modules) - self.before]
        sources = [getattr(module, "__file__", None) for module in modules]
        paths = {Path(name) for name in (*self.opened, *sources) if isinstance(name, str)}
        kept = sorted(path for path in paths if self._counts(path))
        return {path.relative_to(ROOT).as_posix(): digest.of_file(path) for path in kept}

    def _counts(self, path: Path) -> bool:
        return (
            path.is_relative_to(PACKAGE)
            and not path.is_relative_to(self.ours)
            and "__pycache__" not in path.parts
            and path.is_file()
        )


def _writes(mode, flags) -> bool:
    if isinstance(mode, str):
        return not mode.startswith("r") or "+" in mode
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


def execute(path: Path, wire: Wire) -> None:
    """Run the program at ``path`` as ``__main__`` and show the value of its last line."""
    text = path.read_text("utf-8")
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __builtins__=builtins, display=mime.display)
    sys.modules["__main__"] = main  # pickle and multiprocessing look there
    tree = ast.parse(text, str(path))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(path), "exec", dont_inherit=True), main.__dict__)
    if last is not None:
        expression = compile(ast.Expression(last.value), str(path), "eval", dont_inherit=True)
        value = eval(expression, main.__dict__)
        if not _ends_with_semicolon(text, last):
            wire.result(value)
    if "matplotlib.pyplot" in sys.modules:
        from trimul.gpu import inline

        inline.show()


def _ends_with_semicolon(text: str, last: ast.Expr) -> bool:
    line = text.split("\n")[last.end_lineno - 1].encode()
    return line[last.end_col_offset :].lstrip().startswith(b";")


def send_error(error: BaseException, path: Path, wire: Wire) -> None:
    """The program's error with the program's own frames: none of this file's."""
    try:
        words = f"{error.msg}" if isinstance(error, SyntaxError) else str(error)
    except BaseException as another:  # an exception whose __str__ raises
        words = f"its message cannot be shown ({type(another).__name__})"
    missing = error.name if type(error) is NameError else None
    wire.send(
        "error",
        ename=type(error).__name__,
        evalue=words,
        traceback=traceback_of(error, path),
        undefined=missing or "",
    )


def traceback_of(error: BaseException, path: Path) -> list[str]:
    """Lines of the traceback from the program's first frame on, without this machine's folders."""
    told = traceback.TracebackException.from_exception(error)
    _trim(told, str(path))
    text = "".join(told.format())
    places = sorted({ROOT.as_posix(), *map(str, sys.path)}, key=len, reverse=True)
    text = text.replace(str(path), CELL)
    for place in filter(None, places):
        text = text.replace(f'File "{place}/', 'File "')
    return text.rstrip("\n").split("\n")


def _trim(told: traceback.TracebackException, path: str) -> None:
    frames = [frame.filename for frame in told.stack]
    if __file__ in frames:  # the others, of chained errors, begin where they were caught
        del told.stack[: frames.index(path) if path in frames else len(frames)]
    for other in (told.__cause__, told.__context__):
        if other is not None:
            _trim(other, path)


def name_the_cell_in_warnings(path: Path) -> None:
    """A warning about the program's own line names the cell, not a file of this machine."""
    plain = warnings.formatwarning

    def named(message, category, filename, lineno, line=None):
        filename = CELL if filename == str(path) else filename
        return plain(message, category, filename, lineno, line)

    warnings.formatwarning = named


def no_input(prompt="") -> str:
    """In place of Python's ``input``, which nobody could answer."""
    raise EOFError("a %%gpu cell cannot ask for input: write the value into the cell")


def stamp() -> dict:
    """Provenance of this process; of the GPU that the program will use, if there is one."""
    import torch

    from trimul.gpu.provenance import provenance

    return provenance("cuda" if torch.cuda.is_available() else "cpu")


def clean_up() -> None:
    """Run the program's exit handlers, which delete temporary files and the like, for a second."""
    handlers = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    handlers.start()
    handlers.join(1)


def main(folder: Path, mark: str) -> None:
    wire = Wire(folder, mark)
    watch_lifeline()
    with contextlib.suppress(OSError):  # if memory runs out, it is not the notebook that ends
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.dup2(1, 2)
    faulthandler.enable((folder / "crash").open("w"), all_threads=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stderr = Errors(wire)
    sys.argv, builtins.input = [""], no_input
    mime.publish_to(wire.show)
    handover.keep_with(wire.keep)
    path, files, status = folder / "cell.py", None, 1
    name_the_cell_in_warnings(path)
    try:
        try:
            wire.send("start", **stamp())
            files = Files()
            execute(path, wire)
        except BaseException as error:
            send_error(error, path, wire)
        wire.send("done", files=files.digests() if files else {})
        status = 0
        if os.getpid() == wire.owner:
            clean_up()
    finally:
        os._exit(status)  # no thread or fork of the program keeps this process


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
