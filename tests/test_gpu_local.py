"""What one ``%%gpu`` cell shows, and that whatever it does stays in its own process."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from pathlib import Path

import pytest
import stand_in

from trimul.gpu import local


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where the cells run: with a stand-in for torch, and without IPython."""
    monkeypatch.chdir(stand_in.put(tmp_path))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return tmp_path


def run(source, timeout=20.0, **options):
    """The run document of a cell, whose first line stands for that of the magic."""
    return local.run(textwrap.dedent(source), "99_test", timeout, **options)


def outputs(source, timeout=20.0):
    return run(source, timeout)["outputs"]


def text(source, timeout=20.0):
    """All that a cell printed; it shows nothing else."""
    found = outputs(source, timeout)
    assert all(output["output_type"] == "stream" for output in found), found
    return "".join(output["text"] for output in found)


def error(source, timeout=20.0):
    """The error that ended a cell, which is its last output."""
    last = outputs(source, timeout)[-1]
    assert last["output_type"] == "error", last
    return last


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def gone(pids, seconds):
    """Whether none of these processes is left after at most ``seconds``."""
    stop = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < stop:
        time.sleep(0.02)
    return not any(map(alive, pids))


# --- what is shown --------------------------------------------------------------------------------


def test_text_that_no_file_can_hold_is_shown_all_the_same():
    last = error("raise ValueError('lone ' + chr(0xD800))")
    assert (last["ename"], last["evalue"]) == ("ValueError", "lone ?")


def test_a_warning_names_the_cell_and_its_line():
    (warned,) = outputs("""
        import warnings
        warnings.warn("careful")
    """)
    assert warned["name"] == "stderr"
    assert warned["text"].startswith("%%gpu cell:4: UserWarning: careful")


def test_all_that_a_cell_shows_arrives_in_its_order():
    found = outputs("""
        import ctypes, os, subprocess, sys
        import matplotlib.pyplot as plt
        from trimul.figures import show

        C = ctypes.CDLL(None)
        print("print", end=" ")
        os.system("echo system")
        print("error", file=sys.stderr)
        C.printf(b"printf\\n")
        subprocess.run(["echo", "process"])
        print("no newline", end="")
        display({"a": 1})
        C.printf(b"no newline in C")
        plt.plot([1, 2])
        plt.show()
        print("between")
        figure, axes = plt.subplots()
        show(figure, "an empty chart")
        plt.figure()
        print("end")
        41 + 1
    """)
    shown = [o.get("text") or {**o["data"], "image/png": "image/png" in o["data"]} for o in found]
    blank = "<Figure size 640x480 with 0 Axes>"
    chart = "<Figure size 640x480 with 1 Axes>"
    assert shown == [
        "print system\n",
        "error\n",
        "printf\nprocess\nno newline",
        {"text/plain": "{'a': 1}", "image/png": False},
        "no newline in C",
        {"text/plain": chart, "image/png": True},
        "between\n",
        {"text/plain": "an empty chart", "image/png": True},
        "end\n",
        {"text/plain": "42", "image/png": False},
        {"text/plain": blank, "image/png": True},
    ]
    assert [o["name"] for o in found if o["output_type"] == "stream"].index("stderr") == 1
    assert found[7]["metadata"] == {"image/png": {"alt": "an empty chart"}}
    assert [o["output_type"] for o in found if "data" in o].index("execute_result") == 3


def test_what_a_stream_of_the_cells_own_holds_back_keeps_its_place():
    found = outputs("""
        import sys
        sys.stdout = open(1, "w", closefd=False)
        print("held")
        sys.stderr.write("error")
        print("back")
        display(1)
        print("end")
    """)
    texts = [o.get("text") or o["data"]["text/plain"] for o in found]
    assert texts == ["held\n", "error", "back\n", "1", "end\n"]


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        ("x", "[1]"),
        ("x  # not quiet;", "[1]"),
        ("(x\n)", "[1]"),
        ("'é'; x", "[1]"),
        ("x;", None),
        ("x ;  # quiet", None),
        ("None", None),
        ("y = x", None),
        ("if x:\n    x", None),
        ("list(range(2000))", str(list(range(2000)))),
    ],
)
def test_the_last_value_is_shown_unless_a_semicolon_follows(last, shown):
    found = outputs(f"x = [1]\n{last}\n\n")
    assert [output["data"]["text/plain"] for output in found] == ([shown] if shown else [])


def test_values_are_shown_as_a_notebook_shows_them():
    found = outputs("""
        class Table:
            def _repr_html_(self):
                return "<table>"
            def __repr__(self):
                return "table"

        class Bundle:
            def _repr_mimebundle_(self, include, exclude):
                return {"text/html": "<b>", "text/plain": "b"}, {"text/html": {"isolated": True}}

        class Word:
            def __init__(self, name, value):
                setattr(self, name, lambda: value)
            def __repr__(self):
                return "word"

        class HasEverything:
            def __getattr__(self, name):
                return 7
            def __repr__(self):
                return "everything"

        class Attribute:
            _repr_html_ = "no method"
            def __repr__(self):
                return "attribute"

        display(Table(), Bundle(), Attribute())
        for name in ("markdown", "svg", "latex", "json"):
            display(Word(f"_repr_{name}_", name))
        display(Word("_repr_png_", b"png"), Word("_repr_html_", None), HasEverything(), Table)
        {"z" * 40: 1, "a" * 40: {2: 3}}
    """)
    word = {"text/plain": "word"}
    assert [output["data"] for output in found] == [
        {"text/html": "<table>", "text/plain": "table"},
        {"text/html": "<b>", "text/plain": "b"},
        {"text/plain": "attribute"},
        {"text/markdown": "markdown", **word},
        {"image/svg+xml": "svg", **word},
        {"text/latex": "latex", **word},
        {"application/json": "json", **word},
        {"image/png": "cG5n", **word},
        word,
        {"text/plain": "everything"},
        {"text/plain": "<class '__main__.Table'>"},
        {"text/plain": "{'" + "z" * 40 + "': 1,\n '" + "a" * 40 + "': {2: 3}}"},
    ]
    assert found[1]["metadata"] == {"text/html": {"isolated": True}}


@pytest.mark.parametrize("size", [1, 2, 7])
def test_text_and_marks_may_come_in_any_pieces(tmp_path, size):
    (tmp_path / "3.json").write_text('{"output_type": "display_data"}')
    came = local.Collector(lambda output: None)
    marked = local.Marked(tmp_path, "m4rk", came.add)
    data = "é\x1e\x1em4rk:stderr\nerr\x1em4rk:stdout\n\x1em4rk:3\n\x1em4r".encode()
    for start in range(0, len(data), size):
        marked.feed(data[start : start + size])
    marked.feed(b"")
    texts = [output.get("text") for output in came.outputs]
    assert texts == ["é\x1e", "err", None, "\x1em4r"]


def test_what_comes_is_handed_on_at_once_and_in_the_document():
    came = []
    document = run(
        "import time\nprint(1)\ndisplay(2)\ntime.sleep(1)\nprint(3)",
        on_output=lambda output: came.append((time.monotonic(), output)),
    )
    pieces = [output.get("text") or output["data"] for _, output in came]
    assert "".join(map(str, pieces)) == "1\n{'text/plain': '2'}3\n"
    shown = [output.get("text") or output["data"] for output in document["outputs"]]
    assert shown == ["1\n", {"text/plain": "2"}, "3\n"]
    at = [seconds for seconds, _ in came]
    assert max(later - earlier for earlier, later in zip(at, at[1:], strict=False)) > 0.5
    assert 1 <= document["seconds"] < 2
    assert (document["gpu"], document["torch"]) == ("none", "1.2.stand.in")
    json.dumps(document)


# --- the learner's own traceback ------------------------------------------------------------------

ERRORS = {
    "the line of the magic is line 1": (
        "def f():\n    return 1 / 0\n\nf()",
        "ZeroDivisionError: division by zero",
        [(5, "<module>"), (3, "f")],
    ),
    "an error that raises when asked what it is": (
        "class E(Exception):\n    def __str__(self):\n        raise SystemExit\nraise E",
        "E: its message cannot be shown (SystemExit)",
        [(5, "<module>")],
    ),
    "the way out": ("import sys\nsys.exit(3)", "SystemExit: 3", [(3, "<module>")]),
    "an interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt: ", [(2, "<module>")]),
    "paths that are no text": (
        "import sys, pathlib\nsys.path.insert(0, pathlib.Path('/x'))\n1 / 0",
        "ZeroDivisionError: division by zero",
        [(4, "<module>")],
    ),
    "a result that cannot be shown": (
        "class A:\n    def __repr__(self):\n        raise SystemExit(1)\nA()",
        "SystemExit: 1",
        [(4, "__repr__")],
    ),
    "a table that cannot be shown": (
        "class A:\n    def _repr_html_(self):\n        raise KeyError('k')\ndisplay(A())",
        "KeyError: 'k'",
        [(5, "<module>"), (4, "_repr_html_")],
    ),
    "nobody answers": (
        "name = input('name?')",
        "EOFError: a %%gpu cell cannot ask for input: write the value into the cell",
        [(2, "<module>")],
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_traceback_has_the_learners_own_lines_first(case):
    source, words, places = ERRORS[case]
    found = error(source)
    assert f"{found['ename']}: {found['evalue']}" == words
    lines = found["traceback"]
    own = [line.strip() for line in lines if "%%gpu cell" in line and "File" in line]
    assert own == [f'File "%%gpu cell", line {number}, in {where}' for number, where in places]
    frames = [line for line in lines if line.lstrip().startswith("File ")]
    assert frames[0].strip() == own[0]
    assert found["ename"] in lines[-1]
    assert os.fspath(local.ROOT) not in "".join(lines) and "/cell.py" not in "".join(lines)


def test_a_syntax_error_has_its_caret():
    found = error("x = 1\ndef f(:\n    pass")
    assert found["traceback"] == [
        '  File "%%gpu cell", line 3',
        "    def f(:",
        "          ^",
        "SyntaxError: invalid syntax",
    ]
    assert found["evalue"] == "invalid syntax"


def test_chained_errors_are_all_told_with_all_their_frames():
    told = "\n".join(
        error("""
            import ast, json

            try:
                json.loads("{")
            except ValueError as error:
                raise RuntimeError("no data") from error
        """)["traceback"]
    )
    first, second = told.split("direct cause")
    assert 'File "%%gpu cell", line 6' in first and "JSONDecodeError" in first
    assert 'File "json/decoder.py"' in first  # where it was raised, without this machine's folders
    assert 'line 8, in <module>\n    raise RuntimeError("no data")' in second
    assert "runner.py" not in told


def test_an_error_caught_in_a_library_keeps_the_librarys_frames(folder):
    (folder / "library.py").write_text(
        "def find():\n    try:\n        {}['k']\n    except KeyError:\n        raise ValueError\n"
    )
    told = "\n".join(error("import library\nlibrary.find()")["traceback"])
    assert told.index("line 3, in find") < told.index("KeyError: 'k'") < told.index("%%gpu cell")


def test_a_group_of_errors_is_told_whole():
    found = error("raise ExceptionGroup('two', [ValueError(1), KeyError('k')])")
    told = "\n".join(found["traceback"])
    assert found["evalue"] == "two (2 sub-exceptions)"
    assert "ValueError: 1" in told and "KeyError: 'k'" in told and "line 2, in <module>" in told


def test_what_was_shown_before_an_error_stays():
    found = outputs("import matplotlib.pyplot as plt\nprint(1)\nplt.figure()\nplt.show()\n1 / 0")
    assert [o["output_type"] for o in found] == ["stream", "display_data", "error"]


# --- a program like any other ---------------------------------------------------------------------


def test_the_cell_is_the_main_program_and_has_its_source(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("SETTING", "kept")
    found = text("""
        import inspect, multiprocessing, os, pickle, sys, typing
        from dataclasses import dataclass

        @dataclass
        class Point:
            x: int

        def twice(x):
            return 2 * x

        if __name__ == "__main__":
            print(pickle.loads(pickle.dumps(Point(3))))
            print(inspect.getsource(twice).splitlines()[1].strip())
            print(Point.__annotations__["x"], sys.argv)
            print(os.environ.get("TRITON_INTERPRET"), os.environ["SETTING"])
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(twice, [1, 2]), pool.map(print, ["from a worker"]))
            try:
                import IPython
            except ImportError:
                print("no IPython")
    """)
    assert found.splitlines() == [
        "Point(x=3)",
        "return 2 * x",
        "<class 'int'> ['']",
        "None kept",
        "from a worker",
        "[2, 4] [None]",
        "no IPython",
    ]


def test_with_the_real_torch_triton_finds_a_kernels_source(monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    torch, triton = (__import__(name) for name in ("torch", "triton"))
    document = run("""
        import torch, triton

        @triton.jit
        def kernel(x):
            pass

        print(kernel.src.splitlines()[0], torch.ones(2).sum().item())
    """)
    assert document["outputs"][0]["text"] == "def kernel(x): 2.0\n"
    assert (document["torch"], document["triton"]) == (torch.__version__, triton.__version__)
    assert (document["gpu"], document["driver"]) == ("none", "none")
    assert len(document["run"]) == 12


def test_two_runs_share_nothing_and_leave_nothing(folder, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    (folder / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    open_before = len(os.listdir("/proc/self/fd"))
    assert text("x = 1\nprint(x)") == "1\n"
    assert error("x")["evalue"] == "name 'x' is not defined"
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert list((folder / "tmp").iterdir()) == []


# --- whatever a cell does -------------------------------------------------------------------------

#: What a cell does, and what its printed text or its error says.
ATTACKS = {
    "forks and exits": ("import os\nos.fork() or os._exit(3)\nos.wait()\nprint('end')", "end\n"),
    "forks and falls through": ("import os\nif os.fork(): os.wait(); print('end')", "end\n"),
    "forks and fails": ("import os\nif os.fork(): os.wait(); print('end')\nelse: 1 / 0", "end\n"),
    "forks into many": (
        "import os, time\nmain = os.getpid()\nfor _ in range(5): os.fork()\n"
        "if os.getpid() != main: time.sleep(99)\nprint('end')",
        "end\n",
    ),
    "segfaults": (
        "import ctypes\n\nprint('begin')\nctypes.string_at(0)",
        "ProcessDied: the cell's process crashed: it touched memory that is not its own "
        "(segmentation fault); the notebook is unharmed",
    ),
    "aborts": (
        "import os\nos.abort()",
        "ProcessDied: the cell's process ended by itself, with sig",
    ),
    "exits with 0": ("import os\nos._exit(0)", "ended by itself, with exit status 0;"),
    "exits with 3": ("import os\nos._exit(3)", "ended by itself, with exit status 3;"),
    "kills itself": (
        "import os\nos.kill(os.getpid(), 9)",
        "was killed, most likely because the machine's memory ran out",
    ),
    "kills its group": ("import os\nos.killpg(0, 15)", "with signal 15"),
    "closes standard output": ("import sys\nsys.stdout.close()\nsys.stderr.write('e');", "e"),
    "closes every descriptor": ("import os\nos.closerange(0, 99)", "with exit status 1"),
    "writes what is not UTF-8": ("import os\nos.write(1, b'a\\xff\\xc3')\nprint('b')", "a��b\n"),
    "prints what looks like a mark": (
        "print('\\x1e' + 'a' * 12 + ':1\\n\\x1eabc', end='')",
        "\x1eaaaaaaaaaaaa:1\n\x1eabc",
    ),
    "replaces what shows things": (
        "import builtins, io, os, sys\nsys.displayhook = builtins.print = None\n"
        "sys.stdout = sys.stderr = None\nos.write(1, b'end');",
        "end",
    ),
    "recurses without end": ("def f(): f()\nf()", "RecursionError: maximum recursion depth"),
    "recurses 10,000 deep": (
        "import sys\nsys.setrecursionlimit(20_000)\ndef f(n): return n and f(n - 1)\n"
        "print(f(9999))",
        "0\n",
    ),
    "takes more memory than it may": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\nb' ' * 2**33",
        "MemoryError",
    ),
    "leaves a thread that never ends": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\nprint(1)",
        "1\n",
    ),
    "registers an exit that never ends": (
        "import atexit, time\natexit.register(time.sleep, 99)\nprint(1)",
        "1\n",
    ),
    "leaves a daemon that writes on": (
        "import subprocess, time\nsubprocess.Popen(['yes', 'no'], start_new_session=True)\n"
        "time.sleep(0.2)",
        "MB more text than a cell shows]\n",
    ),
    "leaves a daemon that is silent": (
        "import subprocess\nsubprocess.Popen(['sleep', '7'], start_new_session=True)\n"
        "print('\\x1e1', end='')",
        "\x1e1",
    ),
    "plants a module without a file": (
        "import sys\nsys.modules['odd'] = type('M', (), {'__file__': 3})()\nprint(1)",
        "1\n",
    ),
    "makes too large a figure": (
        "import matplotlib.pyplot as plt\nplt.figure(figsize=(1e6, 1))\nplt.show()",
        "ValueError: Image size of 100000000x100 pixels is too large.",
    ),
    "keeps more than it may": (
        "from trimul.gpu import keep\nkeep(x='x' * 5_000_000)",
        "ValueError: keep(…) takes at most 2 MB",
    ),
}


@pytest.mark.parametrize("does", ATTACKS)
def test_the_notebook_survives_a_cell_that(does):
    source, said = ATTACKS[does]
    start = time.monotonic()
    found = outputs(source)
    *others, last = found
    assert all(output["output_type"] != "error" for output in others)
    words = last["text"] if "text" in last else f"{last['ename']}: {last['evalue']}"
    assert words.endswith(said) if "text" in last else said in words, found
    assert time.monotonic() - start < 6


def test_a_daemon_that_always_has_more_to_say_is_not_heard_out(monkeypatch):
    monkeypatch.setattr(local, "_ready", lambda *_: True)
    monkeypatch.setattr(local, "GRACE_S", 0.2)
    source, said = ATTACKS["leaves a daemon that writes on"]
    start = time.monotonic()
    assert text(source).endswith(said)
    assert time.monotonic() - start < 4


def test_a_crash_says_on_which_line_it_was():
    found = error("import ctypes\n\nprint('begin')\nctypes.string_at(0)")
    assert '  File "%%gpu cell", line 5 in <module>' in found["traceback"]


def test_a_cell_that_never_ends_its_line_is_stopped_in_time():
    start = time.monotonic()
    source = "import time\nwhile True:\n    print('.', end='')\n    time.sleep(0.001)"
    dots, limit = outputs(source, 0.8)
    assert set(dots["text"]) == {"."} and limit["ename"] == "TimeLimit"
    assert time.monotonic() - start < 0.8 + local.GRACE_S


def test_what_is_not_shown_of_100_megabytes_is_said_and_never_held():
    tracemalloc.start()
    try:
        found = text("for _ in range(100):\n    print('x' * 999_999)")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == "x" * local.TEXT_LIMIT + "\n[99.9 MB more text than a cell shows]\n"
    assert peak < 5e6


def test_of_very_many_outputs_the_first_are_shown_and_the_others_counted():
    found = outputs("""
        import pathlib, time
        for i in range(1200):
            display(i)
        time.sleep(0.5)
        print(len(list(pathlib.Path(__file__).parent.glob("*.json"))))
    """)
    assert len(found) == local.OUTPUTS_LIMIT + 2
    assert found[local.OUTPUTS_LIMIT - 1]["data"]["text/plain"] == "199"
    assert [o["text"] for o in found[-2:]] == ["0\n", "\n[1000 more outputs than a cell shows]\n"]


def test_an_output_of_50_megabytes_is_named_and_many_of_3_are_too_many():
    found = outputs("""
        class Html:
            def __init__(self, size):
                self.size = size
            def _repr_html_(self):
                return "x" * self.size

        display(Html(50_000_000))
        for _ in range(10):
            display(Html(3_000_000))
    """)
    assert "an output of 50 MB is not shown: at most 4 MB" in found[0]["text"]
    assert [o["output_type"] for o in found[1:]] == ["display_data"] * 6 + ["stream"]
    assert found[-1]["text"] == "\n[4 more outputs than a cell shows]\n"


def test_a_cell_that_never_ends_is_stopped_and_says_where_it_was():
    start = time.monotonic()
    found = outputs("def wait():\n    while True:\n        pass\nprint('a', end='')\nwait()", 0.8)
    assert time.monotonic() - start < 0.8 + local.GRACE_S
    assert found[0]["text"] == "a"
    (limit,) = found[1:]
    assert (limit["ename"], limit["evalue"]) == (
        "TimeLimit",
        "the cell ran longer than 0.8 s and was stopped; "
        "--timeout 1.6 on its first line gives it longer",
    )
    places = [line for line in limit["traceback"] if "File" in line]
    assert "line 6, in <module>" in places[0] and "in wait" in places[1]
    assert not any("KeyboardInterrupt" in line for line in limit["traceback"])


@pytest.mark.parametrize(
    "stubborn",
    ["signal.signal(signal.SIGINT, signal.SIG_IGN)", "os.kill(os.getpid(), signal.SIGSTOP)"],
)
def test_a_cell_that_ignores_the_interrupt_is_killed(stubborn, monkeypatch):
    monkeypatch.setattr(local, "GRACE_S", 0.3)
    found = error(f"import os, signal, time\n{stubborn}\nwhile True: time.sleep(1)", 0.6)
    assert found["ename"] == "TimeLimit" and found["traceback"] == [f"TimeLimit: {found['evalue']}"]


def test_a_cell_that_deletes_its_folder_or_leaves_it_goes_on():
    found = outputs("""
        import os, pathlib, shutil, tempfile
        shutil.rmtree(pathlib.Path(__file__).parent)
        home = tempfile.mkdtemp()
        os.chdir(home)
        os.rmdir(home)
        display(1)
        2
    """)
    assert [o["data"]["text/plain"] for o in found] == ["1", "2"]


@pytest.mark.parametrize("descriptors", ["1", "2", "1, 2"])
def test_a_closed_descriptor_does_not_hide_the_outputs(descriptors):
    found = outputs(f"import os\nfor fd in [{descriptors}]: os.close(fd)\ndisplay(1)\n1 / 0")
    assert [o["output_type"] for o in found] == ["display_data", "error"]


def test_no_process_of_a_cell_outlives_it():
    document = run("""
        import os, subprocess
        child = os.fork()
        if not child:
            import time
            time.sleep(99)
        other = subprocess.Popen(["sleep", "99"])
        print(child, other.pid)
    """)
    printed = [o["text"] for o in document["outputs"] if o.get("name") == "stdout"]
    assert gone(map(int, "".join(printed).split()), 1)  # newer Pythons warn of the fork


# --- interrupts -----------------------------------------------------------------------------------

NEAR = """
import sys
from trimul.gpu import local
try:
    local.run(open(sys.argv[1]).read(), on_output=lambda o: print(o, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
BUSY = """
import os, subprocess, sys, time
from pathlib import Path
other = subprocess.Popen(["sleep", "99"])
Path("new").write_text(f"{os.getpid()} {other.pid}")
os.rename("new", "pids")
while True:
    time.sleep(9)
"""


@pytest.fixture
def busy(folder):
    """A process that runs a cell without end, and the cell's processes."""
    (folder / "busy.py").write_text(BUSY)
    near = subprocess.Popen(
        [sys.executable, "-c", NEAR, "busy.py"], stdout=subprocess.PIPE, text=True
    )
    stop = time.monotonic() + 10
    while not (folder / "pids").exists() and time.monotonic() < stop:
        time.sleep(0.02)
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    assert all(map(alive, pids))
    yield near, pids
    near.kill()
    near.communicate()
    assert gone(pids, 2)


def test_an_interrupt_stops_the_cell_and_goes_up(busy):
    near, pids = busy
    near.send_signal(signal.SIGINT)
    shown = near.communicate(timeout=5)[0]
    assert shown.endswith("interrupted\n")
    assert "'ename': 'KeyboardInterrupt'" in shown and "line 9" in shown  # where it was
    assert gone(pids, 0)


def test_a_cell_ends_when_the_one_who_asked_is_killed(busy):
    near, pids = busy
    near.kill()
    assert gone(pids, 2)
