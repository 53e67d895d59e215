"""Python processes that start in milliseconds: forks of one that has imported torch and Modal.

    python tests/forks.py

reads one JSON request a line and answers with the process's id, then with its exit status. It has
no way to the project's own modules, and each process may reach the loopback range alone: anything
else that it tries is refused and noted on its standard error.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

REFUSED = "refused: not the loopback range"


class Process:
    """One fork: ``output`` is what it wrote, ``status`` its exit status (a signal: negative)."""

    def __init__(self, out: Path):
        self.out, self.pid, self.status = out, None, None
        self.started, self.ended = threading.Event(), threading.Event()

    def wait(self, seconds: float) -> int | None:
        """Its exit status, or None if it still runs after so many seconds."""
        return self.status if self.ended.wait(seconds) else None

    def interrupt(self) -> None:
        self.started.wait(10)
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        self.started.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    @property
    def output(self) -> str:
        return self.out.read_text("utf-8", errors="replace")


class Forks:
    """The process that has everything imported, and the forks of it."""

    def __init__(self, env: dict[str, str]):
        env = {key: value for key, value in env.items() if key != "PYTHONPATH"}
        self.parent = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )
        self.count, self.processes = itertools.count(), {}
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, code: str, argv=(), env=None, cwd=".", path=(), out=None) -> Process:
        """Run ``code`` with these arguments, environment, folder, and folders to import from."""
        number, process = next(self.count), Process(Path(out))
        self.processes[number] = process
        request = {
            "number": number,
            "code": code,
            "argv": list(map(str, argv)),
            "env": dict(env or {}),
            "cwd": str(cwd),
            "path": list(map(str, path)),
            "out": str(out),
        }
        self.parent.stdin.write(json.dumps(request) + "\n")
        self.parent.stdin.flush()
        return process

    def close(self) -> None:
        self.parent.stdin.close()
        self.parent.wait(10)

    def _listen(self):
        for line in self.parent.stdout:
            number, word, value = json.loads(line)
            process = self.processes[number]
            if word == "pid":
                process.pid = value
                process.started.set()
            else:
                process.status = value
                process.ended.set()


# --- the parent of the forks ----------------------------------------------------------------------


def main() -> None:
    import importlib.util

    import matplotlib.figure  # noqa: F401
    import modal  # noqa: F401
    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # a second, at first use

    with contextlib.suppress(ImportError):  # Linux alone has it
        import triton  # noqa: F401

    sys.path.pop(0)  # this folder
    # `make env` installs the project in place, which no container has
    sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f).lower()]
    assert importlib.util.find_spec("trimul") is None, "a forgotten upload would go unseen"
    children, text = {}, b""
    while True:
        if select.select([0], [], [], 0.01)[0]:
            if not (data := os.read(0, 1 << 16)):
                break
            *requests, text = (text + data).split(b"\n")
            for line in requests:
                request = json.loads(line)
                children[_fork(request)] = request["number"]
        _reap(children)
    for pid in children:  # whoever asked for them has gone
        os.kill(pid, signal.SIGKILL)


def _fork(request: dict) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            _run(request)
        finally:
            os._exit(1)
    _say(request["number"], "pid", pid)
    return pid


def _reap(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        _say(children.pop(pid), "status", os.waitstatus_to_exitcode(status))


def _say(*words) -> None:
    os.write(1, (json.dumps(words) + "\n").encode())


def _run(request: dict) -> None:
    """In the fork: become a process of its own, run the code, and leave with its exit status."""
    os.setsid()
    out = os.open(request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for ours, theirs in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(ours, theirs)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[:0] = request["path"]
    sys.argv[:] = request["argv"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(loopback_alone)
    status = 0
    try:
        exec(compile(request["code"], "<fork>", "exec"), {"__name__": "__main__"})
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def loopback_alone(event: str, args: tuple) -> None:
    """An audit hook that refuses every address outside the loopback range."""
    if event in ("socket.connect", "socket.sendto"):
        host = args[1][0] if isinstance(args[1], tuple) else "localhost"  # a Unix socket's path
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = args[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if host != "localhost" and host != "::1" and not host.startswith("127."):
        os.write(2, f"{REFUSED}: {host}\n".encode())
        raise ConnectionRefusedError(f"{REFUSED}: {host}")


if __name__ == "__main__":
    main()
