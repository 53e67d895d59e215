"""Run one cell in a process of its own on this machine, and bring back what it showed.

Used where the reader has a GPU, where recordings are made, and inside a rented container: whichever
it is, the same program runs (``trimul.gpu.runner``) and the same document comes back. Nothing that
a cell does reaches this process: it may print without end, hang, fork or crash.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from trimul.gpu.provenance import FIELDS
from trimul.gpu.runner import CELL

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120.0
TEXT_LIMIT = 100_000  # characters of text that one cell shows
OUTPUTS_LIMIT = 200  # figures, tables and results that one cell shows
SIZE_LIMIT = 20_000_000  # bytes of them all
CHUNK = 1 << 16  # bytes, what a pipe holds
GRACE_S = 2.0  # for an interrupted cell to say where it was


def run(
    source: str,
    name: str = "",
    timeout: float = TIMEOUT_S,
    on_output: Callable[[dict], None] = lambda output: None,
    tick: Callable[[float, str], None] = lambda seconds, state: None,
) -> dict:
    """Run the program ``source`` for at most ``timeout`` seconds; returns its run document.

    The document holds ``outputs`` (in nbformat's form, in the order in which they were shown),
    ``kept`` (what the program handed over with ``keep``, or None), ``files`` (the project's files
    that it used, with their digests), ``undefined`` (the name that a NameError missed, or ""),
    ``seconds``, and the fields of a provenance. ``on_output`` is given each output, and each piece
    of text, as it comes; ``tick`` the seconds so far. What the program does wrong is an output: an
    error it raised, the time limit, the end of its process. An interrupt stops the program and
    goes up as KeyboardInterrupt.
    """
    collected = Collector(on_output)
    with tempfile.TemporaryDirectory(prefix="gpu-cell-") as folder:
        folder, mark = Path(folder), secrets.token_hex(6)
        # one line above the program stands for the line of the magic: line numbers agree
        program = f"# %%gpu {name}\n{source}"
        (folder / "cell.py").write_bytes(program.encode("utf-8", "replace"))
        with _start(folder, mark) as process:
            try:
                late = _follow(process, Marked(folder, mark, collected.add), timeout, tick)
            finally:
                _kill(process)
        if late:
            collected.add(_time_limit(timeout, collected.take_error()))
        elif not collected.done:
            collected.add(_ended(process.returncode, folder))
    return collected.document()


def _start(folder: Path, mark: str) -> subprocess.Popen:
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    env |= {"PYTHONPATH": str(ROOT), "MPLBACKEND": "module://trimul.gpu.inline"}
    env |= {"PYTHONUNBUFFERED": "1"}  # also of C; or text waits, and is lost in a crash
    return subprocess.Popen(
        [sys.executable, "-m", "trimul.gpu.runner", str(folder), mark],
        stdin=subprocess.PIPE,  # a lifeline: it closes when this process ends
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,
    )


def _follow(process, marked: Marked, timeout: float, tick) -> bool:
    """Pass on what the process writes until it ends; returns whether its time ran out."""
    pipe, start = process.stdout.fileno(), time.monotonic()
    deadline, late = start + timeout, False
    try:
        while process.poll() is None:
            _read(pipe, marked, 0.05)
            tick(time.monotonic() - start, "running")
            if time.monotonic() < deadline:
                continue
            if late:
                break
            late, deadline = True, time.monotonic() + GRACE_S
            process.send_signal(signal.SIGINT)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)  # then the program shows where it was
        deadline = time.monotonic() + GRACE_S
        while process.poll() is None and time.monotonic() < deadline:
            _read(pipe, marked, 0.05)
        raise
    _kill(process)
    stop = time.monotonic() + GRACE_S  # a process that outlives it may write on without end
    while _read(pipe, marked, 0) and time.monotonic() < stop:
        pass
    return late


def _read(pipe: int, marked: Marked, seconds: float) -> bool:
    """Whether something came within ``seconds``."""
    if not _ready(pipe, seconds):
        return False
    data = more = os.read(pipe, CHUNK)
    stop = time.monotonic() + 0.05
    while more and not data.endswith(b"\n") and len(data) < CHUNK and time.monotonic() < stop:
        more = os.read(pipe, CHUNK) if _ready(pipe, 0.005) else b""  # a line comes in pieces
        data += more
    marked.feed(data)
    if not data:
        time.sleep(seconds)  # the program closed the pipe, and may still run
    return bool(data)


def _ready(pipe: int, seconds: float) -> bool:
    return bool(select.select([pipe], [], [], seconds)[0])


def _kill(process) -> None:
    """End the process and everything in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Marked:
    """Text with marks in it, as it comes: hands on the text, and the files that marks name."""

    def __init__(self, folder: Path, mark: str, add: Callable[[dict], None]):
        self.folder, self.add = folder, add
        self.mark = re.compile(rf"\x1e{mark}:(\w+)\n")
        self.begun = re.compile(rf"\x1e[\w:]{{0,{len(mark) + 12}}}\Z")
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.stream, self.held = "stdout", ""

    def feed(self, data: bytes) -> None:
        text = self.held + self.decode(data, final=not data)
        unfinished = self.begun.search(text) if data else None
        cut = unfinished.start() if unfinished else len(text)
        self.held, text = text[cut:], text[:cut]
        words = self.mark.split(text)  # text, mark, text, mark, …, text
        for index, word in enumerate(words):
            if index % 2:
                self._marked(word)
            elif word:
                self.add({"output_type": "stream", "name": self.stream, "text": word})

    def _marked(self, word: str) -> None:
        if not word.isdecimal():
            self.stream = word
            return
        path = self.folder / f"{word}.json"
        try:
            output = json.loads(path.read_text("utf-8"))
            path.unlink()
        except (OSError, ValueError):
            return  # no output that can be read
        self.add(output)


class Collector:
    """The outputs of one run, within limits, and what is said about them."""

    def __init__(self, on_output):
        self.on_output = on_output
        self.outputs, self.kept, self.files, self.undefined = [], None, {}, ""
        self.stamp = dict.fromkeys(FIELDS, "none")
        self.characters, self.shown, self.size, self.dropped = 0, 0, 0, 0
        self.done, self.started, self.ended = False, time.monotonic(), None

    def add(self, output: dict) -> None:
        kind = output["output_type"]
        getattr(self, f"_{kind}", self._rich)(output)

    def _start(self, output):
        self.stamp = {field: output[field] for field in FIELDS}
        self.started = time.monotonic()

    def _keep(self, output):
        self.kept = (self.kept or {}) | output["values"]

    def _done(self, output):
        self.files, self.done, self.ended = output["files"], True, time.monotonic()

    def _stream(self, output):
        room = TEXT_LIMIT - self.characters
        self.characters += len(output["text"])
        if room <= 0:
            return
        text = output["text"][:room]
        last = self.outputs[-1] if self.outputs else {}
        if last.get("name") == output["name"]:
            last["text"] += text
        else:
            self.outputs.append({**output, "text": text})
        self.on_output({**output, "text": text})

    def _rich(self, output):
        self.shown += 1
        self.size += 0 if self.dropped else len(json.dumps(output))
        if self.shown > OUTPUTS_LIMIT or self.size > SIZE_LIMIT:
            self.dropped += 1
            return
        self.outputs.append(output)
        self.on_output(output)

    def _error(self, output):
        self._say_what_is_missing()
        self.undefined = output.pop("undefined", "")
        self.outputs.append(output)
        self.on_output(output)

    def take_error(self) -> dict | None:
        """The error that an interrupted program sent, taken out of the outputs."""
        if self.outputs and self.outputs[-1]["output_type"] == "error":
            return self.outputs.pop()
        return None

    def _say_what_is_missing(self) -> None:
        """Add a line about text and outputs beyond the limits; once."""
        words = []
        if self.characters > TEXT_LIMIT:
            words.append(f"{(self.characters - TEXT_LIMIT) / 1e6:.1f} MB more text")
        if self.dropped:
            words.append(f"{self.dropped} more outputs")
        self.characters, self.dropped = min(self.characters, TEXT_LIMIT), 0
        if words:
            text = f"\n[{' and '.join(words)} than a cell shows]\n"
            note = {"output_type": "stream", "name": "stdout", "text": text}
            self.outputs.append(note)
            self.on_output(note)

    def document(self) -> dict:
        self._say_what_is_missing()
        return {
            "outputs": self.outputs,
            "kept": self.kept,
            "files": self.files,
            "undefined": self.undefined,
            "seconds": round((self.ended or time.monotonic()) - self.started, 2),
            **self.stamp,
        }


def failure(name: str, words: str, more: list[str] = ()) -> dict:
    """An output that says in one sentence why a cell did not end as it should."""
    return {
        "output_type": "error",
        "ename": name,
        "evalue": words,
        "traceback": [*more, f"{name}: {words}"],
    }


def _time_limit(timeout: float, where: dict | None) -> dict:
    words = (
        f"the cell ran longer than {timeout:g} s and was stopped; "
        f"--timeout {2 * timeout:g} on its first line gives it longer"
    )
    return failure("TimeLimit", words, where["traceback"][:-1] if where else [])


def _ended(status: int, folder: Path) -> dict:
    """The process ended by itself before the cell was done."""
    reasons = {
        -signal.SIGKILL: "was killed, most likely because the machine's memory ran out",
        -signal.SIGSEGV: "crashed: it touched memory that is not its own (segmentation fault)",
    }
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    words = f"the cell's process {reasons.get(status, f'ended by itself, with {how}')}"
    return failure("ProcessDied", f"{words}; the notebook is unharmed", _crashed_at(folder))


def _crashed_at(folder: Path) -> list[str]:
    """The program's own lines that a crash went through, the last call first."""
    with contextlib.suppress(OSError):
        lines = (folder / "crash").read_text(errors="replace").splitlines()
        return [line.replace(str(folder / "cell.py"), CELL) for line in lines if "cell.py" in line]
    return []
