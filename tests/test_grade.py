"""The grader, graded: a planted fault of each kind is rejected in its own words, right ones pass.

Each fault in ``faults`` begins with the words that the verdict must say: the first line first of
all, the others somewhere. ``right_*`` are right, ``bench_*`` show only when timed, ``gpu_*`` and
the full sizes need a GPU: ``python -m pytest -m gpu tests/test_grade.py``.
"""

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from trimul import grade, observe, probes

FAULTS = Path(__file__).parent / "faults"
KINDS = ("right_gpu", "right", "bench", "gpu")  # beginnings of file names; others are plain faults


def files(kind):
    def kind_of(path):
        return next((k for k in KINDS if path.name.startswith(f"{k}_")), "fault")

    paths = sorted(path for path in FAULTS.glob("[a-z]*.py") if kind_of(path) == kind)
    assert paths
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def words(path):
    return ast.get_docstring(ast.parse(path.read_text())).splitlines()


def assert_rejected(report, path):
    first, *others = words(path)
    assert report.status == 1 and not report.ok, report.verdict
    assert first in report.verdict.split(" (also:")[0], report.verdict
    assert all(line in report.verdict for line in others), report.verdict


@pytest.fixture
def few_cases(monkeypatch):
    """Of the 18 cases of the contest four, one of each kind, and no large N on a CPU."""
    contest, corners = probes.contest, probes.corners
    monkeypatch.setattr(
        probes, "contest", lambda *args: [contest(*args)[index] for index in (0, 3, 11, 12)]
    )
    monkeypatch.setattr(
        probes, "corners", lambda gpu: [p for p in corners(gpu) if gpu or p.case.n < 65]
    )


@files("fault")
def test_a_planted_fault_is_named(path, few_cases):
    assert_rejected(grade.grade(path, time_limit=4 if path.stem == "hangs" else None), path)


@files("bench")
def test_a_fault_that_only_timing_shows(path, few_cases):
    assert grade.grade(path).ok
    assert_rejected(grade.grade(path, bench=True), path)


@files("right")
def test_a_right_kernel_passes(path):
    report = grade.grade(path)
    assert report.ok and report.status == 0, report.verdict
    assert len(report.rows) > 40 and all(row["ok"] for row in report.rows)


@pytest.mark.parametrize("name", ["einsum", "loops"])
def test_the_rungs_pass_the_same_probes(name):
    report = grade.check_rung(name)
    assert report.ok, report.verdict
    assert max(row["max_error"] for row in report.rows) < 1e-4
    assert {row["like"] for row in report.rows} == {"float32"}
    if name == "loops":
        assert max(row["case"]["n"] for row in report.rows) == 16


def test_times_of_a_right_kernel(few_cases):
    report = grade.grade(FAULTS / "right_with_bmm.py", bench=True)
    assert report.ok, report.verdict
    assert [row["probe"] for row in report.times] == [f"benchmark {i}" for i in range(1, 8)]
    assert all(row["mean_us"] > 0 and row["wall_us"] > 0 for row in report.times)


@pytest.mark.parametrize(
    "condition", ["N % 32 == 31", "N > 64", "B > 1 and D == 384", "len(calls) % 40 == 0"]
)
def test_a_fault_of_few_sizes_or_calls_is_found(tmp_path, condition):
    (tmp_path / "_right.py").write_text((FAULTS / "_right.py").read_text())
    path = tmp_path / "submission.py"
    path.write_text(
        "from _right import trimul\n\ncalls = []\n\n\ndef custom_kernel(data):\n"
        "    B, N, _, D = data[0].shape\n    calls.append(N)\n    y = trimul(*data[:3])\n"
        f"    y[-1, -1, -1, -1] += {condition}\n    return y\n"
    )
    report = grade.grade(path)
    assert report.status == 1, report.verdict


# --- what cannot be loaded ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def custom_kernel(data:\n    return 1\n", "SyntaxError"),
        ("import no_such_module_at_all\n", "No module named 'no_such_module_at_all'"),
        ("def kernel(data):\n    return data[0]\n", "no function custom_kernel"),
        ("raise RuntimeError('no compiler: install g++')\n", "no compiler: install g++"),
        ("import sys\nsys.exit(0)\n", "SystemExit"),
    ],
)
def test_not_loaded(tmp_path, source, said):
    path = tmp_path / "submission.py"
    path.write_text(source)
    report = grade.grade(path)
    assert report.status == 2 and report.verdict.startswith("not loaded") and said in report.verdict


def test_no_file(tmp_path):
    report = grade.grade(tmp_path / "nothing.py")
    assert report.status == 2 and "there is no file" in report.verdict


def test_an_import_that_kills_the_process_is_wrong(tmp_path):
    path = tmp_path / "submission.py"
    path.write_text("import os\nos.kill(os.getpid(), 9)\n")
    report = grade.grade(path)
    assert report.status == 1 and "SIGKILL" in report.verdict and "import" in report.verdict


def test_only_the_own_frames_of_an_error_are_shown(tmp_path, few_cases):
    path = tmp_path / "submission.py"
    path.write_text(
        "import torch\n\n\ndef custom_kernel(data):\n    return torch.ones(2) @ torch.ones(3)\n"
    )
    raised = grade.grade(path).raised
    assert "torch.ones(2) @ torch.ones(3)" in raised and "observe.py" not in raised
    assert raised.count("File ") == 1


def test_a_rung_that_raises_shows_its_own_frames(monkeypatch):
    """What a rung refuses is shown where it refuses."""
    too_large = next(probe for probe in probes.corners(False) if probe.case.n == 33)
    monkeypatch.setattr(probes, "contest", lambda full, max_n: [too_large])
    monkeypatch.setattr(probes, "corners", lambda full, max_n: [])
    report = grade.check_rung("loops")  # at N=33
    assert report.status == 1 and "loops is limited to N <= 16" in report.verdict
    assert "rungs/loops.py" in report.raised and "observe.py" not in report.raised


def test_results_that_are_not_handed_over_are_not_right(few_cases, monkeypatch):
    """An answer without results must not pass for one without faults."""
    monkeypatch.setattr(grade.Worker, "ask", lambda *_: {"calls": []})
    report = grade.grade(FAULTS / "right_with_bmm.py")
    assert report.status == 1 and "left out some results" in report.verdict


@pytest.mark.parametrize("answer", [[], {}, {"calls": [1]}, {"calls": [{"faults": [3]}]}])
def test_an_answer_out_of_form_is_not_right(few_cases, monkeypatch, answer):
    """Code in the child can say anything: the parent still comes to a verdict."""
    monkeypatch.setattr(grade.Worker, "ask", lambda *_: answer)
    report = grade.grade(FAULTS / "right_with_bmm.py")
    assert report.status == 1 and "no proper answer" in report.verdict


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.skipif(sys.platform == "win32", reason="there it cannot be told to stop")
def test_nothing_runs_on_when_it_is_stopped(tmp_path, stop):
    began = tmp_path / "began"
    path = tmp_path / "submission.py"
    path.write_text(
        f"import os, pathlib, time\npathlib.Path({str(began)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "trimul", "grade", str(path), "--device", "cpu"]
    process = subprocess.Popen(command, cwd=FAULTS.parents[1], stderr=subprocess.PIPE, text=True)
    child = _when(lambda: int(began.read_text()))
    process.send_signal(stop)
    assert process.communicate(timeout=60)[1].endswith("trimul: stopped\n")
    assert process.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def _when(get, limit=60):
    """The first value that ``get`` gives without a ValueError or a missing file."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with contextlib.suppress(ValueError, FileNotFoundError):
            return get()
        time.sleep(0.05)
    raise TimeoutError


def test_what_it_prints_is_kept_apart(tmp_path, few_cases, capfd):
    path = tmp_path / "submission.py"
    path.write_text(
        "import os, sys\nfrom right_one import custom_kernel\nprint('loud')\n"
        "os.write(1, b'louder\\n')\nprint('loudest', file=sys.stderr)\n"
    )
    (tmp_path / "right_one.py").write_text((FAULTS / "right_with_bmm.py").read_text())
    report = grade.grade(path)
    assert report.ok and all(word in report.printed for word in ("loud\n", "louder", "loudest"))
    assert capfd.readouterr() == ("", "")
    json.dumps(report.as_dict(), allow_nan=False)
    assert "loudest" in report.table()


def test_a_report_with_nan_is_json(few_cases):
    report = grade.grade(FAULTS / "nan_somewhere.py")
    json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert "nan" in report.table()


def test_nothing_is_left_behind(few_cases, monkeypatch):
    made, make = [], grade._roomy_folder
    monkeypatch.setattr(grade, "_roomy_folder", lambda todo: made.append(make(todo)) or made[-1])
    threads, settings = threading.active_count(), observe.settings()
    grade.grade(FAULTS / "exits_with_zero.py")
    grade.grade(FAULTS / "sets_default_dtype.py")
    assert len(made) == 2 and not any(map(os.path.exists, made))
    assert threading.active_count() == threads and observe.settings() == settings
    assert "submission" not in sys.modules


def test_it_runs_from_an_unguarded_script(tmp_path):
    """The child does not import the caller's script: with no guard, that would recurse."""
    empty = tmp_path / "empty.py"
    empty.write_text("")
    code = f"from trimul import grade\nprint(grade.grade({str(empty)!r}).status)\n"
    script = tmp_path / "script.py"
    script.write_text(code)
    root = str(FAULTS.parents[1])
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.stdout == "2\n", done.stderr


# --- the data -------------------------------------------------------------------------------------


def test_every_probe_is_drawn_the_same_twice():
    for probe in probes.corners(False):
        for turn in range(len(probe.turns)):
            once, again = (probes.draw(probe, turn, "cpu") for _ in range(2))
            assert torch.equal(once.x, again.x) and torch.equal(once.mask, again.mask)


def test_the_probes_are_what_they_say():
    by_name = {probe.name: probes.draw(probe, 0, "cpu") for probe in probes.corners(False)}
    assert not by_name["x transposed"].x.is_contiguous()
    assert by_name["x a slice"].x.storage_offset() > 0
    assert not by_name["x a slice"].x.is_contiguous()
    assert 0 in by_name["mask expanded over rows"].mask.stride()
    assert by_name["mask expanded over batches"].mask.stride(0) == 0
    assert not by_name["mask transposed"].mask.is_contiguous()
    assert by_name["padding mask (bool)"].mask.dtype == torch.bool
    soft = by_name["soft mask"].mask
    assert ((soft > 0) & (soft < 1)).any() and (soft == 0).any()
    assert by_name["x above 65504"].x.abs().max() > 65504
    variance = by_name["x of tiny variance"].x.var(-1)
    assert (variance < 1e-5).all()
    assert len({case.case.n for case in probes.contest(False)}) == 18


def test_large_and_tiny_out():
    """out itself, from left and right by the formula: beyond fp16, and near the norm's epsilon."""
    for name, low, high in (("out above 65504", 65504, 1e9), ("out of tiny variance", 1e-4, 1e-2)):
        probe = next(p for p in probes.corners(False) if p.name == name)
        x, mask, w = probes.draw(probe, 0, "cpu")
        n = torch.nn.functional.layer_norm(x, x.shape[-1:], w["norm.weight"], w["norm.bias"])
        sides = [
            (n @ w[f"{s}_proj.weight"].T)
            * (n @ w[f"{s}_gate.weight"].T).sigmoid()
            * mask[..., None]
            for s in ("left", "right")
        ]
        out = torch.einsum("bikh,bjkh->bijh", *sides)
        size = out.abs().max() if low > 1 else out.std(-1).median()
        assert low < size < high


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
@files("gpu")
def test_a_planted_fault_of_the_gpu_is_named(path, few_cases):
    assert_rejected(grade.grade(path, "cuda"), path)


@pytest.mark.gpu
@files("right_gpu")
def test_a_right_kernel_of_the_gpu_passes(path, few_cases):
    report = grade.grade(path, "cuda")
    assert report.ok, report.verdict


#: Faults whose words, or whose making, name the CPU's sizes and threads.
CPU_ONLY = ("background_thread", "flat_result", "hangs", "sets_threads")


@pytest.mark.gpu
@files("fault")
def test_the_same_faults_are_named_on_a_gpu(path, few_cases):
    if path.stem in CPU_ONLY:
        pytest.skip("speaks of the CPU's sizes or threads")
    assert_rejected(grade.grade(path, "cuda"), path)


@pytest.mark.gpu
@files("right")
def test_right_kernels_pass_at_full_size(path):
    report = grade.grade(path, "cuda", bench=True)
    assert report.ok, report.verdict
    assert {row["case"]["n"] for row in report.rows} >= {768, 1024}
    assert len(report.times) == 7
