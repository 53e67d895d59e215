"""``%%gpu`` in a real kernel: live on a stand-in GPU, replayed from recordings, interrupted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import stand_in
from nbclient import NotebookClient
from nbformat import v4

from scripts.clean import clean_environment
from trimul.gpu import cell, recording
from trimul.gpu.provenance import FIELDS

STAMP = dict.fromkeys(FIELDS, "r") | {"gpu": "NVIDIA Recorded", "date": "2026-11-30T01:02:03Z"}


def outputs(folder, sources, **settings):
    """The outputs of each of these cells of one notebook, which a kernel runs in ``folder``."""
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in sources])
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": folder}},
    )
    client.execute(env=os.environ | settings)
    nbformat.validate(notebook)
    return [merged(cell.outputs) for cell in notebook.cells]


def merged(found):
    """Pieces of text that follow each other as one, as JupyterLab shows them."""
    whole = []
    for output in found:
        if whole and "name" in output and output.name == whole[-1].get("name"):
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def text(found):
    """The text of a cell's outputs: what was printed, what stands for figures, tracebacks."""
    shown = [o.get("text") or o.get("traceback") or o["data"]["text/plain"] for o in found]
    return "".join(t if isinstance(t, str) else "\n".join(t) for t in shown)


SHOWS_ALL = """%%gpu 99_shows
import sys
import matplotlib.pyplot as plt
from trimul.gpu import keep
keep(speed=3.5, names=["a"])
print("one")
print("error", file=sys.stderr)
display({"two": 2})
plt.plot([1, 2])
plt.show()
print("three")
keep(speed=4.5)
6 * 7"""

RENT = """
from types import SimpleNamespace
from trimul.gpu import local

def run(source, name, timeout, gpu, tick):
    tick(1, "queued")
    return local.run(source, name, timeout) | {"dollars": 0.0123, "gpu": gpu}

rented = SimpleNamespace(is_rented=lambda: True, run=run)
sys.modules["trimul.gpu.rented"] = rented"""

LIVE = {
    "set up": "import os, sys, torch, trimul\nfrom trimul import claim\n"
    "from trimul.gpu import kept\nx = 1",
    "before": "state = set(sys.modules), dict(os.environ), os.getcwd()",
    "shows": SHOWS_ALL,
    "after": "print(state == (set(sys.modules), dict(os.environ), os.getcwd()))",
    "again": SHOWS_ALL,
    "after again": "print(set(sys.modules) - state[0], state[1:] == (dict(os.environ), "
    "os.getcwd()), 'matplotlib' in sys.modules)",
    "kept": "print(kept('99_shows'))",
    "holds": "claim('fast', kept('99_shows')['speed'] > 4, data=kept('99_shows'))",
    "does not hold": "claim('faster', False, data=kept('99_shows'))",
    "misses": "%%gpu 99_misses\ny = 2\nz = 3\nprint(x)",
    "misses nobody's": "%%gpu\nnobodys",
    "misses IPython's": "%%gpu\nget_ipython()",
    "misses here": "y + 1",
    "fails": "%%gpu\ndef f():\n    return 1 / 0\nprint('before')\nf()",
    "shell": "%%gpu\nprint(4)\n!nvidia-smi",
    "unnamed": "%%gpu\nprint(4)",
    "option": "%%gpu 99_shows --fast\n1",
    "name": "%%gpu shows\n1",
    "recording": "%%gpu 99_nothing --on recording\n1",
    "modal": "%%gpu 99_nothing --on modal\n1",
    "dies": "%%gpu\nimport os\nos._exit(3)",
    "survives": "print(x)",
    "alarm": "import signal, threading\nthreading.Timer(1.5, os.kill, (os.getpid(), 2)).start()",
    "interrupted": "%%gpu\nimport os, time\nopen('pid', 'w').write(str(os.getpid()))\n"
    "print('begun')\ntime.sleep(60)",
    "goes on": "print(x)",
    "rent": RENT,
    "rented": SHOWS_ALL.replace("99_shows", "99_shows --gpu L4"),
}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """The outputs of the cells of ``LIVE`` by name; the GPU is a stand-in; and their folder."""
    folder = stand_in.put(tmp_path_factory.mktemp("live"), "NVIDIA Stand-in")
    found = outputs(folder, LIVE.values(), TRIMUL_GPU="auto")
    return dict(zip(LIVE, found, strict=True)) | {"folder": folder}


def test_a_live_cell_first_says_where_it_ran(live):
    first, *_ = live["shows"]
    assert first.output_type == "display_data"
    assert re.fullmatch(
        r"ran on NVIDIA Stand-in, 20\d\d-\d\d-\d\d, torch 1.2.stand.in, triton 3.stand.in, "
        r"driver \w+, live, \d+\.\d s",
        first.data["text/plain"],
    )


def test_a_line_for_the_shell_is_refused_with_a_reason(live):
    (_, error) = live["shell"]
    assert error.evalue.startswith("SyntaxError")
    assert error.traceback[-1] == "A %%gpu cell is plain Python: no lines with ! or %."


def test_a_live_cell_shows_its_outputs_in_order(live):
    _, *shown = live["shows"]
    assert [o.get("name") or sorted(o.data) for o in shown] == [
        "stdout",
        "stderr",
        ["text/plain"],
        ["image/png", "text/plain"],
        "stdout",
        ["text/plain"],
    ]
    texts = [o.get("text") or o.data["text/plain"] for o in shown]
    figure = "<Figure size 640x480 with 1 Axes>"
    assert texts == ["one\n", "error\n", "{'two': 2}", figure, "three\n", "42"]


def test_a_rented_gpu_gives_the_same_outputs_and_says_what_they_cost(live):
    first, *shown = live["rented"]
    assert shown == live["shows"][1:]
    words = first.data["text/plain"]
    assert words.startswith("ran on L4, 20") and words.endswith(" s, about $0.012"), words


def test_nothing_of_a_cell_leaks_into_the_kernel(live):
    assert text(live["after again"]) == "set() True False\n"


def test_what_was_kept_is_measured_here_and_now(live):
    kept = eval(text(live["kept"]))
    assert (kept["speed"], kept["names"], kept["live"]) == (4.5, ["a"], True)
    assert (kept["gpu"], kept["recorded_on"]) == ("NVIDIA Stand-in", "")
    assert text(live["holds"]).startswith("claim holds: fast [measured: NVIDIA Stand-in, 20")
    assert text(live["does not hold"]).startswith("not so on this GPU: faster [measured: NVIDIA")


def test_a_cell_that_misses_a_variable_of_the_notebook_is_told(live):
    _, failed = live["misses"]
    assert failed.ename == "CellError"
    assert failed.traceback[1:] == [
        '  File "%%gpu cell", line 4, in <module>',
        "    print(x)",
        "          ^",
        "NameError: name 'x' is not defined",
        "`x` is a variable of the notebook. A %%gpu cell is a program of its own and sees none of "
        "them: define it in the cell.",
    ]
    assert text(live["misses nobody's"]).endswith("NameError: name 'nobodys' is not defined")
    assert text(live["misses IPython's"]).endswith("name 'get_ipython' is not defined")


def test_a_notebook_that_misses_a_variable_of_a_cell_is_told(live):
    assert "NameError" in text(live["misses here"])
    assert (
        "`y` was defined in the %%gpu cell 99_misses, a program of its own. Import or define it "
        "here too; or, if it is data, hand it over with keep(y=…) there and kept(name of the cell) "
        "here, both from trimul.gpu.\n"
    ) in text(live["misses here"])


def test_the_traceback_is_the_learners_own(live):
    _, printed, failed = live["fails"]
    assert printed.text == "before\n"
    frames = [line for line in failed.traceback if "File" in line]
    assert frames == [
        '  File "%%gpu cell", line 5, in <module>',
        '  File "%%gpu cell", line 3, in f',
    ]
    assert failed.traceback[-1] == "ZeroDivisionError: division by zero"


def test_a_wrong_first_line_is_answered_with_the_right_form(live):
    for case, said in {"option": "--fast", "name": "'shows' is not a name like 04_clock"}.items():
        (failed,) = live[case]
        (line,) = failed.traceback
        assert line.startswith("UsageError: ") and said in line and "--on auto|local|" in line


def test_where_a_recording_is_asked_for_nothing_runs(live):
    assert text(live["recording"]).startswith("not run, and the cell 99_nothing has no recording:")
    assert text(live["modal"]).startswith(
        "not run (no GPU is rented in this session), and the cell 99_nothing has no recording"
    )


def test_the_kernel_survives_a_cell_that_dies_and_an_interrupt(live):
    assert text(live["dies"]).endswith(
        "the cell's process ended by itself, with exit status 3; the notebook is unharmed"
    )
    assert text(live["survives"]) == text(live["goes on"]) == "1\n"
    first, begun, interrupted = live["interrupted"]
    assert (first.data["text/plain"], begun.text) == ("stopped", "begun\n")
    assert interrupted.ename == "KeyboardInterrupt"
    assert not Path("/proc", (live["folder"] / "pid").read_text()).exists()


# --- replayed -------------------------------------------------------------------------------------

SET_UP = """import trimul
from pathlib import Path
from trimul import claim
from trimul.gpu import kept, recording
recording.FOLDER, recording.ROOT = Path("recordings"), Path()"""

REPLAYED = {
    "set up": SET_UP,
    "shows": SHOWS_ALL,
    "layout": SHOWS_ALL.replace('print("one")', 'print( "one")  # the first'),
    "edited": SHOWS_ALL.replace("one", "uno"),
    "not Python": "%%gpu 99_shows\ndef f(:",
    "kept": "print(kept('99_shows'))",
    "holds": "claim('fast', kept('99_shows')['speed'] > 4, data=kept('99_shows'))",
    "does not hold": "claim('faster', False, data=kept('99_shows'))",
    "stale": "%%gpu 99_stale\nprint('stale')",
    "missing": "%%gpu 99_missing\n1",
    "kept missing": "kept('99_missing')",
    "unnamed": "%%gpu\n1",
    "corrupt": "%%gpu 99_corrupt\n1",
    "cut": "%%gpu 99_cut\nprint('cut')",
    "touched": "%%gpu 99_touched\nprint('touched')",
    "foreign": "%%gpu 99_foreign\nprint('stale')",
    "kept foreign": "kept('99_foreign')",
    "no list": "%%gpu 99_list\n1",
}


def store(folder, text, document):
    """Save a recording of a cell, as a GPU would have given it, in ``folder``."""
    whole = {"kept": None, "files": {}, "seconds": 1.0, "outputs": []} | STAMP | document
    recorded = cell.read(text, notebook="99_test.ipynb", id="a")
    return recording.save(recorded, whole)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory, live):
    """A folder with recordings, right and wrong ones; the first has what the live cell showed."""
    folder = tmp_path_factory.mktemp("replayed")
    stand_in.put(folder, "NVIDIA Stand-in")
    (folder / "library.py").write_text("x = 1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "FOLDER", folder / "recordings")
        kept = {"speed": 4.5, "names": ["a"]}
        store(folder, SHOWS_ALL, {"outputs": live["shows"][1:], "kept": kept})
        moved = {"library.py": "0000", "deleted.py": "0000"}
        printed = {"output_type": "stream", "name": "stdout"}
        stale = store(
            folder,
            REPLAYED["stale"],
            {"files": moved, "outputs": [printed | {"text": "stale\n"}]},
        )
        cut, touched = (
            store(folder, REPLAYED[name], {"outputs": [printed | {"text": f"{name}\n"}]})
            for name in ("cut", "touched")
        )
    cut.write_text(cut.read_text()[:-20])
    touched.write_text(touched.read_text().replace("touched\\n", "better\\n"))
    stale.with_stem("99_foreign").write_text(stale.read_text())
    stale.with_stem("99_corrupt").write_bytes(b"\xff{")
    stale.with_stem("99_list").write_text("[1]")
    return folder


@pytest.fixture(scope="module")
def replayed(recordings):
    """The outputs of the cells of ``REPLAYED`` by name, where there is a GPU to be left alone."""
    found = outputs(recordings, REPLAYED.values(), TRIMUL_GPU="recording")
    return dict(zip(REPLAYED, found, strict=True))


HEADER = "recorded on NVIDIA Recorded, 2026-11-30, torch r, triton r, driver r\n"
DAMAGED = "not run, and assets/recordings/99_{}.json {}: restore it from the repository, or record"


def test_a_recording_shows_what_the_live_cell_showed(live, replayed):
    first, *others = replayed["shows"]
    assert first.text == HEADER + "one\n"  # one stream, so one output
    assert [first | {"text": "one\n"}, *others] == live["shows"][1:]


def test_layout_and_comments_do_not_matter_and_other_edits_do(replayed):
    assert text(replayed["layout"]).startswith(HEADER + "one\n")
    for edited in ("edited", "not Python"):
        (said,) = replayed[edited]
        assert said.text == (
            "not run: the cell was edited, and its recording is of the cell as the course has it. "
            "To run it, use a machine with an NVIDIA GPU, or rent one (lesson 05).\n"
        )


def test_what_was_recorded_is_replayed_and_fails_where_it_no_longer_holds(replayed):
    kept = eval(text(replayed["kept"]))
    assert (kept["speed"], kept["live"], kept["recorded_on"]) == (4.5, False, "NVIDIA Recorded")
    assert text(replayed["holds"]) == (
        "claim holds: fast [replayed: NVIDIA Recorded, 2026-11-30]\n"
    )
    assert replayed["does not hold"][0].ename == "ClaimFailed"


def test_a_stale_recording_is_shown_with_the_files_that_moved(replayed):
    assert text(replayed["stale"]) == HEADER + (
        "since then library.py, deleted.py changed: a run today may show something else\nstale\n"
    )


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("missing", "not run, and the cell 99_missing has no recording: on a machine with a GPU"),
        ("unnamed", "not run: it has no recording either, since it has no name."),
        ("corrupt", DAMAGED.format("corrupt", "is damaged or was edited")),
        ("cut", DAMAGED.format("cut", "is damaged or was edited")),
        ("touched", DAMAGED.format("touched", "is damaged or was edited")),
        ("no list", DAMAGED.format("list", "is damaged or was edited")),
        ("foreign", DAMAGED.format("foreign", "is of another cell, 99_stale")),
    ],
)
def test_what_cannot_be_replayed_is_said_and_raises_nothing(replayed, case, said):
    (only,) = replayed[case]
    assert only.output_type == "stream" and only.text.startswith(said), only
    assert "rent one (lesson 05)" in only.text


def test_what_was_not_kept_cannot_be_had(replayed):
    for case, said in {"missing": "has no recording", "foreign": "is of another cell"}.items():
        (failed,) = replayed[f"kept {case}"]
        assert failed.ename == "RecordingError" and said in failed.evalue


# --- nbval ----------------------------------------------------------------------------------------


def test_nbval_replays_where_there_are_a_gpu_and_a_token(recordings, replayed, monkeypatch):
    names = ("set up", "shows", "kept", "holds")
    cells = [
        v4.new_code_cell(REPLAYED[name], outputs=replayed[name], execution_count=number)
        for number, name in enumerate(names, 1)
    ]
    path = recordings / "99_test.ipynb"
    nbformat.write(v4.new_notebook(cells=cells), path)
    monkeypatch.setenv("TRIMUL_GPU", "local")
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-1")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-1")
    settings = clean_environment(str(recordings / "home"))
    assert not any(key.startswith("MODAL_TOKEN") for key in settings)
    options = ["--nbval", "--nbval-current-env", "-c", os.devnull, "--rootdir=.", path.name]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=recordings,
        env=settings,
        capture_output=True,
        text=True,
    )
    assert "4 passed" in done.stdout, done.stdout
