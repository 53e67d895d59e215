"""Recordings: made whole or not at all, stale when what they rest on changed; ``record``."""

import compileall
import json
import shutil
import subprocess
import sys

import pytest
import stand_in
from nbformat import v4

from trimul import __main__ as command
from trimul.gpu import backends, cell, handover, local, recording

USES = """%%gpu 99_uses
import trimul.protein
from trimul.gpu import keep
from trimul.figures import style
open(trimul.protein.__file__.replace("protein.py", "kernel.cu")).read()
open("elsewhere.txt", "w").close()
open(trimul.protein.__file__.replace("protein.py", "written.txt"), "w").close()
keep(x=1)
print("used")"""
PLAIN = "%%gpu 99_plain\nprint('plain')"
FAILS = "%%gpu 99_fails\nprint('shown')\n1 / 0"


def work_in(project, patch):
    """From now on ``project`` is the project, and there is a GPU."""
    patch.chdir(project)
    for module in (local, recording):
        patch.setattr(module, "ROOT", project)
    patch.setattr(recording, "FOLDER", project / "recordings")
    patch.setattr(command, "_has_gpu", lambda: True)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A copy of the project where the GPU is a stand-in, with the recordings of two cells."""
    project = tmp_path_factory.mktemp("original")
    package = project / "trimul"
    shutil.copytree(recording.ROOT / "trimul", package, ignore=shutil.ignore_patterns("__pyc*"))
    (package / "kernel.cu").write_text("// one\n")
    compileall.compile_dir(package, quiet=1)  # then Python opens no source to import one
    stand_in.put(project, "NVIDIA Stand-in")
    notebook(project, USES, PLAIN)
    with pytest.MonkeyPatch.context() as patch:
        work_in(project, patch)
        assert command.main(["record", "99_test.ipynb"]) == 0
    return project


@pytest.fixture
def recorded(original, tmp_path, monkeypatch):
    """The project, to be changed."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    work_in(tmp_path, monkeypatch)
    return tmp_path


def notebook(folder, *sources, name="99_test.ipynb"):
    cells = [v4.new_code_cell(s, id=f"cell-{i}") for i, s in enumerate(sources)]
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(v4.new_notebook(cells=cells)))
    return folder / name


def check(*more):
    return command.main(["record", "--check", "99_test.ipynb", *more])


def stored(name):
    return (recording.FOLDER / f"{name}.json").read_bytes()


# --- made -----------------------------------------------------------------------------------------


def test_record_keeps_what_a_cell_gave_and_check_is_content(recorded, capsys):
    found = recording.load("99_uses")
    assert (found["gpu"], found["notebook"], found["kept"]) == (
        "NVIDIA Stand-in",
        "99_test.ipynb",
        {"x": 1},
    )
    assert found["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "used\n"}]
    assert check() == 0
    assert capsys.readouterr().out == "2 recordings are of the cells and the code as they are\n"


def test_a_recording_lists_the_projects_files_that_its_cell_used(recorded):
    files = recording.load("99_uses")["files"]
    assert {"trimul/protein.py", "trimul/figures/style.py", "trimul/kernel.cu"} <= set(files)
    assert all(name.startswith("trimul/") for name in files)
    assert not any("gpu/" in name or "__pycache__" in name or "written" in name for name in files)
    assert recording.load("99_plain")["files"] == {}


def test_a_cell_that_fails_keeps_its_old_recording(recorded, capsys):
    before = stored("99_plain")
    notebook(recorded, "%%gpu 99_plain\nprint('new')\n1 / 0", FAILS, "%%gpu\n1")
    assert command.main(["record", "99_test.ipynb"]) == 1
    said = capsys.readouterr().err
    assert "99_test.ipynb#cell-0: not recorded: 99_plain failed (ZeroDivisionError: div" in said
    assert "99_test.ipynb#cell-2: not recorded" in said and "has a name" in said
    assert stored("99_plain") == before
    assert recording.find("99_fails") is None


def test_a_run_without_a_gpu_is_not_recorded(recorded, capsys):
    stand_in.put(recorded, "none")
    assert command.main(["record", "99_test.ipynb"]) == 1
    assert "99_plain ran without a GPU: nothing is recorded" in capsys.readouterr().err
    assert recording.load("99_plain")["gpu"] == "NVIDIA Stand-in"


def test_record_stale_runs_those_alone_that_check_names(recorded):
    untouched, edited = stored("99_uses"), stored("99_plain")
    notebook(recorded, USES, PLAIN + "\n1")
    assert command.main(["record", "--stale", "99_test.ipynb"]) == 0
    assert stored("99_uses") == untouched and stored("99_plain") != edited


def test_a_save_killed_halfway_leaves_the_old_recording(recorded):
    before = stored("99_plain")
    program = """if True:
        import os, signal, sys
        from pathlib import Path
        from trimul.gpu import cell, recording
        recording.FOLDER = Path(sys.argv[1])
        document = recording.load("99_plain") | {"outputs": [], "kept": None}
        (plain,) = [c for c in cell.cells("99_test.ipynb") if c.name == "99_plain"]
        os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
        recording.save(plain, document)
    """
    killed = subprocess.run([sys.executable, "-c", program, str(recording.FOLDER)])
    assert killed.returncode == -9
    assert stored("99_plain") == before
    assert recording.load("99_plain")["outputs"][0]["text"] == "plain\n"


def test_record_needs_a_gpu_and_says_so(recorded, monkeypatch, capsys):
    monkeypatch.setattr(command, "_has_gpu", lambda: False)
    monkeypatch.setattr(local, "run", lambda *_: pytest.fail("ran a cell"))
    assert command.main(["record", "99_test.ipynb"]) == 2
    assert "no GPU can be used here, and recordings are made where" in capsys.readouterr().err


def test_the_real_command_without_a_gpu_exits_2():
    done = subprocess.run(
        [sys.executable, "-m", "trimul", "record"],
        cwd=local.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "no GPU can be used here" in done.stderr


def test_what_is_no_notebook_is_named(recorded, capsys):
    (recorded / "bad.ipynb").write_text("{")
    assert command.main(["record", "--check", "bad.ipynb"]) == 2
    assert "bad.ipynb cannot be read as a notebook" in capsys.readouterr().err


# --- checked --------------------------------------------------------------------------------------


def edit(path, old, new):
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new, 1))


def test_docstrings_and_layout_leave_a_recording_fresh(recorded):
    package = recorded / "trimul"
    edit(package / "protein.py", '"""', '"""Other words. ')
    edit(package / "figures" / "style.py", "import matplotlib\n", "import matplotlib  # other\n")
    edit(package / "gpu" / "mime.py", "import base64", "import base64, shutil")
    notebook(recorded, USES.replace('open("elsewhere', '# why\nopen( "elsewhere'), PLAIN)
    assert check() == 0


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("trimul/protein.py", "def ", "y = 1\ndef "),
        ("trimul/figures/style.py", "#222222", "#222223"),
        ("trimul/kernel.cu", "one", "two"),
    ],
)
def test_a_change_of_what_a_cell_used_is_named(recorded, capsys, file, old, new):
    edit(recorded / file, old, new)
    capsys.readouterr()
    assert check() == 1
    assert capsys.readouterr().out == (
        f"99_test.ipynb#cell-0: {file} changed since it was recorded: `python -m trimul record`\n"
    )


@pytest.mark.parametrize("content", [None, "def f(:", "\xff"])
def test_a_file_that_is_gone_or_no_program_is_a_change(recorded, capsys, content):
    path = recorded / "trimul" / "protein.py"
    path.unlink() if content is None else path.write_text(content, "latin-1")
    assert check() == 1
    assert "trimul/protein.py changed since" in capsys.readouterr().out
    assert recording.moved(recording.load("99_uses")) == ["trimul/protein.py"]


def plant(fault):
    """Put a fault into the recording of 99_plain."""
    path = recording.path_of("99_plain")
    whole = path.read_text()
    if fault == "missing":
        path.unlink()
    elif fault == "corrupt":
        path.write_text("{")
    elif fault == "cut":
        path.write_text(whole[: len(whole) // 2])
    elif fault == "touched":
        path.write_text(whole.replace("plain\\n", "better\\n"))
    elif fault == "foreign":
        path.write_bytes(stored("99_uses"))
    elif fault == "without a GPU":
        document = recording.load("99_plain") | {"gpu": "none"}
        path.write_text(json.dumps(document | {"whole": recording._hash(document)}))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("missing", "the cell 99_plain has no recording"),
        ("corrupt", "99_plain.json is damaged or was edited"),
        ("cut", "99_plain.json is damaged or was edited"),
        ("touched", "99_plain.json is damaged or was edited"),
        ("foreign", "99_plain.json is of another cell, 99_uses"),
        ("without a GPU", "99_plain.json was made without a GPU"),
    ],
)
def test_check_names_the_cell_and_what_is_wrong(recorded, capsys, fault, said):
    plant(fault)
    capsys.readouterr()
    assert check() == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("99_test.ipynb#cell-1: ") and said in line


def test_check_names_an_edited_cell_one_without_a_name_and_another_notebooks(recorded, capsys):
    notebook(recorded, USES, PLAIN + "\n1", "%%gpu\n1")
    other = notebook(recorded, PLAIN, name="98_other.ipynb")
    capsys.readouterr()
    assert check(other.name) == 1
    edited, unnamed, foreign = capsys.readouterr().out.splitlines()
    assert edited == (
        "99_test.ipynb#cell-1: the cell changed since it was recorded: `python -m trimul record`"
    )
    assert unnamed.startswith("99_test.ipynb#cell-2: has no name")
    assert foreign == "98_other.ipynb#cell-0: 99_plain.json is of a cell in 99_test.ipynb"


def test_check_of_everything_finds_recordings_of_no_cell(recorded, capsys):
    notebook(recorded, USES, PLAIN, name="notebooks/99_test.ipynb")
    assert command.main(["record", "--check"]) == 0
    (recording.FOLDER / "99_old.json").write_text("{}")
    (recording.FOLDER / ".99_plain.json-half").mkdir()
    capsys.readouterr()
    assert command.main(["record", "--check"]) == 1
    half, old = capsys.readouterr().out.splitlines()
    assert "99_old.json: no cell of the notebooks has this name" in old
    assert ".99_plain.json-half: no cell" in half


# --- handed over ----------------------------------------------------------------------------------


def test_keep_is_for_cells_and_for_what_json_knows():
    with pytest.raises(RuntimeError, match="out of a %%gpu cell"):
        handover.keep(x=1)
    with pytest.raises(TypeError, match=r"keep\(x=…\) takes numbers.*keep tensor.tolist"):
        handover.keep(x={1, 2})
    for name in ("gpu", "driver", "torch", "triton", "date", "run", "live", "recorded_on"):
        with pytest.raises(ValueError, match=f"{name}: taken by the provenance"):
            handover.keep(**{name: 1})


def test_a_failed_run_keeps_nothing_and_gives_nothing_older(recorded, monkeypatch):
    document = local.run("1 / 0")
    monkeypatch.setattr(handover, "_session", {"99_uses": document})
    with pytest.raises(recording.RecordingError, match="the last run of 99_uses failed"):
        handover.kept("99_uses")
    handover.forget("99_uses")
    assert not handover.kept("99_uses")["live"]


def test_a_cell_of_one_text_is_not_another_of_another():
    texts = [cell.Cell("99_a", f"{text!r}").digest for text in ("one", "two")]
    assert texts[0] != texts[1]
    assert cell.Cell("", "x = 1  # one").digest == cell.Cell("", "x = 1").digest


def test_what_is_kept_live_comes_before_what_is_recorded(recorded, monkeypatch):
    monkeypatch.setattr(handover, "_session", {})
    before = handover.kept("99_uses")
    assert (before["x"], before["live"], before["recorded_on"]) == (1, False, "NVIDIA Stand-in")
    live = recording.load("99_uses") | {"kept": {"x": 2}, "gpu": "NVIDIA Other"}
    handover.remember("99_uses", live)
    after = handover.kept("99_uses")
    assert (after["x"], after["live"], after["recorded_on"]) == (2, True, "NVIDIA Stand-in")
    assert after["gpu"] == "NVIDIA Other"
    handover.remember("99_new", live)
    assert handover.kept("99_new")["recorded_on"] == ""
    with pytest.raises(recording.RecordingError, match="99_never has no recording"):
        handover.kept("99_never")


# --- where a cell runs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "on", "there", "chosen"),
    [
        ("", "", {"modal", "local"}, "modal"),
        ("auto", "", {"local"}, "local"),
        ("auto", "", set(), "recording"),
        ("auto", "recording", {"modal", "local"}, "recording"),
        ("auto", "local", {"modal", "local"}, "local"),
        ("local", "", {"modal", "local"}, "local"),
        ("local", "", {"modal"}, "recording"),
        ("local", "modal", {"modal", "local"}, "modal"),
        ("local", "auto", {"modal", "local"}, "modal"),
        ("modal", "", {"modal", "local"}, "modal"),
        ("modal", "", {"local"}, "recording"),
        ("recording", "", {"modal", "local"}, "recording"),
        ("recording", "modal", {"modal", "local"}, "recording"),
    ],
)
def test_the_back_end_that_a_cell_gets(monkeypatch, setting, on, there, chosen):
    monkeypatch.setenv("TRIMUL_GPU", setting)
    why_not = {
        name: lambda name=name: "" if name in there else f"no {name}" for name in ("modal", "local")
    }
    assert list(backends._WHY_NOT) == ["modal", "local"]
    monkeypatch.setattr(backends, "_WHY_NOT", why_not)
    name, reason = backends.choose(cell.parse(f"99_x --on {on}" if on else "99_x", ""))
    assert name == chosen
    missing = [f"no {name}" for name in ("modal", "local") if name not in there]
    asked_for_more = chosen == "recording" and "recording" not in (setting, on)
    assert reason in (["; ".join(missing), *missing] if asked_for_more else [""])
    assert bool(reason) == asked_for_more


def test_a_setting_that_there_is_not_is_refused(monkeypatch):
    monkeypatch.setenv("TRIMUL_GPU", "cloud")
    with pytest.raises(
        ValueError, match="TRIMUL_GPU is 'cloud': it may be auto, local, modal, rec"
    ):
        backends.choose(cell.parse("99_x", ""))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("99_x --timeout 0", "in seconds, up to 3600"),
        ("99_x --timeout nan", "in seconds, up to 3600"),
        ("99_x --on cloud", "invalid choice: 'cloud'"),
        ("99_x 'open", "No closing quotation"),
        ("../x", "is not a name like 04_clock"),
    ],
)
def test_a_first_line_that_cannot_be_read_is_answered(line, said):
    with pytest.raises(ValueError, match=said):
        cell.parse(line, "")
