"""``modal_app.py`` run by Modal's own client, against a stand-in for Modal's server on loopback.

No line of these tests has met Modal itself: they show what the client sends, and what a reader is
told. The stand-in speaks the internal protocol of the client that the lock pins.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fake_modal
import modal
import pytest
from forks import REFUSED, Forks
from grpclib import GRPCError, Status

import modal_app
from trimul import rungs
from trimul.gpu import prices

ROOT = Path(__file__).parents[1]
TESTS = Path(__file__).parent
CLIENT = "from modal.__main__ import main; main()"
#: The client tries for about a minute; here its pauses are cut to a hundredth.
IMPATIENT = "import asyncio; s = asyncio.sleep; asyncio.sleep = lambda t, *a: s(t / 100, *a)"
#: A few of the grader's probes are enough to see that an answer comes back; and the stranger's
#: process is forked from the container's, which has torch, not from a new one.
FEW_PROBES = """
import multiprocessing
from trimul import grade, probes
grade._context = lambda: multiprocessing.get_context("fork")
contest, corners = probes.contest, probes.corners
probes.contest = lambda *a, **k: contest(*a, **k)[:4]
probes.corners = lambda *a, **k: corners(*a, **k)[:2]
"""
RIGHT = """
from trimul.rungs import einsum

def custom_kernel(data):
    x, mask, weights, config = data
    return einsum.forward(x, mask, einsum.pack(weights))
"""


@pytest.fixture(scope="module")
def forks():
    forks = Forks({**os.environ, "MODAL_CONFIG_PATH": os.devnull})
    yield forks
    forks.close()


@pytest.fixture
def serve(forks):
    return lambda **options: fake_modal.serve(forks, **options)


@pytest.fixture
def command(forks, tmp_path):
    """Run ``modal run modal_app.py`` with these words: its exit status and all that it printed."""

    def run(fake, *words, entry="", checkout=ROOT, env=None, client=CLIENT):
        out = tmp_path / "client.txt"
        env = {**os.environ, **(fake.env if env is None else env)}
        argv = ["modal", "run", f"modal_app.py{entry}", *words]
        process = forks.start(client, argv, env, checkout, out=out)
        status = process.wait(30)
        process.kill()
        assert REFUSED not in process.output
        assert "Traceback" not in process.output
        return status, " ".join(re.sub("[│╭╮╰╯─]", " ", process.output).split())

    return run


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the app needs, to be changed."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "trimul", folder / "trimul", ignore=shutil.ignore_patterns("__pyc*"))
    shutil.copy(ROOT / "modal_app.py", folder)
    return folder


def pinned(name: str) -> str:
    lock = (ROOT / "requirements.lock").read_text()
    return re.search(rf"^{name}==(\S+)", lock, re.MULTILINE)[1]


# --- the app, as it stands ------------------------------------------------------------------------


def test_the_client_is_the_one_whose_protocol_the_stand_in_speaks():
    assert modal.__version__ == pinned("modal"), (
        "the stand-in (tests/fake_modal.py) speaks the internal protocol of the client in the "
        "lock; with another client, see first that these tests still pass"
    )


def test_the_image_has_the_versions_of_the_lock_and_the_cuda_of_its_torch():
    assert {name: pinned(name) for name in modal_app.PINS} == modal_app.PINS
    assert {"torch", "triton", "numpy", "matplotlib", "ninja"} == set(modal_app.PINS)


def test_the_gpu_of_the_app_is_the_default_of_every_command():
    assert modal_app.SETTINGS["gpu"] == prices.GPU == "H100!"


# --- the ladder -----------------------------------------------------------------------------------


def test_the_ladder_as_a_reader_runs_it(serve, tmp_path):
    """A process of its own, as from a terminal; the other tests fork theirs."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys; sys.path.append({str(TESTS)!r})\n"
        "from forks import loopback_alone; sys.addaudithook(loopback_alone)\n"
    )
    kept = tmp_path / "new" / "ladder.json"
    with serve() as fake:
        words = ["-m", "modal", "run", "modal_app.py", "--out", str(kept)]
        path = {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, **fake.env, **path},
            capture_output=True,
            text=True,
            timeout=60,
        )
    out = done.stdout + done.stderr
    assert done.returncode == 0 and REFUSED not in out and "arning" not in out, out
    assert "7 calls on H100!" in out and "GPU-seconds" in out and out.count(": done") == 7
    assert "N=20" in out and "say nothing about a GPU" in out

    document = json.loads(kept.read_text())
    assert document["kind"] == "bench"
    assert {row["gpu"] for row in document["rows"]} == {"none"}
    assert len({row["run"] for row in document["rows"]}) == 7
    assert {row["rung"] for row in document["rows"]} == set(rungs.at_full_size())
    assert_the_definitions_are_as_meant(fake)


def assert_the_definitions_are_as_meant(fake):
    functions = {f.function_name: f for f in fake.functions.values()}
    assert set(functions) == {"run_cell", "bench_case", "check_rung", "grade_source"}
    for function in functions.values():
        assert function.resources.gpu_config.gpu_type == "H100!"
        assert function.block_network and function.untrusted and not function.secret_ids
        assert function.autoscaler_settings.max_containers == 2
        assert function.startup_timeout_secs == prices.START_S
        assert (function.resources.milli_cpu, function.resources.memory_mb) == (4000, 16384)
    retried = {name for name, f in functions.items() if f.retry_policy.retries}
    assert retried == {"bench_case", "check_rung"}  # never a stranger's code
    once = {name for name, f in functions.items() if f.single_use_containers}
    assert once == {"bench_case", "check_rung", "grade_source"}
    assert functions["run_cell"].autoscaler_settings.scaledown_window == 20
    dockerfile = "\n".join(
        line for image in fake.images.values() for line in image.dockerfile_commands
    )
    assert "FROM nvidia/cuda:13.0.3-devel-ubuntu24.04" in dockerfile
    assert all(f"{name}=={version}" in dockerfile for name, version in modal_app.PINS.items())


#: Rows in no time: of two GPUs, and from one container that dies.
QUICK_ROWS = """
import os
from trimul import measure
def bench(names, cases, device):
    gpu = "NVIDIA H200" if cases[0].n == 8 else "NVIDIA H100 80GB HBM3"
    return [{"gpu": gpu, "case": cases[0].as_dict(), "date": "2026-12-01"}]
measure.bench = bench
"""
ONE_DIES = """
def dies(names, cases, device):
    return os._exit(1) if cases[0].n == 14 else bench(names, cases, device)
measure.bench = dies
"""


def test_sources_are_uploaded_and_nothing_else(serve, command, checkout):
    sources = {p.relative_to(ROOT).as_posix() for p in (ROOT / "trimul").rglob("*.py")}
    for name in ("rungs/x.cu", "rungs/y.cuh", "cuda/z.h"):
        (checkout / "trimul" / name).parent.mkdir(exist_ok=True)
        (checkout / "trimul" / name).write_text("")
        sources.add(f"trimul/{name}")
    for name in (".env", "token.toml", "x.ipynb", "x.json", "__pycache__/x.cpython-311.pyc"):
        (checkout / "trimul" / name).parent.mkdir(exist_ok=True)
        (checkout / "trimul" / name).write_text("secret")
    with serve() as fake:
        command(fake, "--rung", "none of them", entry="::app.check", checkout=checkout)
    for function in fake.functions.values():
        assert set(fake.uploaded(function)) == {f"/root/{p}" for p in (*sources, "modal_app.py")}


def test_rows_of_two_gpus_are_kept_and_not_compared(serve, command, tmp_path):
    kept = tmp_path / "ladder.json"
    with serve(before=QUICK_ROWS) as fake:
        status, out = command(fake, "--gpu", "H100", "--out", str(kept))
    assert status == 1
    assert "rows of NVIDIA H100 80GB HBM3 and of NVIDIA H200 do not compare" in out
    assert len(json.loads(kept.read_text())["rows"]) == 7


# --- check, grade, record -------------------------------------------------------------------------


def test_check_a_rung(serve, command, tmp_path):
    kept = tmp_path / "check.json"
    with serve(before=FEW_PROBES) as fake:
        status, out = command(fake, "--rung", "einsum", "--out", str(kept), entry="::app.check")
    assert status == 0 and "einsum: right: 8 of 8 calls" in out
    document = json.loads(kept.read_text())
    assert (document["kind"], document["name"], document["gpu"]) == ("check", "einsum", "none")
    assert fake.started == ["check_rung"]


def test_check_an_unknown_rung_names_the_known_ones_and_starts_nothing(serve, command):
    with serve() as fake:
        status, out = command(fake, "--rung", "einsun", entry="::app.check")
    assert status == 2 and "the ladder has loops, einsum" in out and not fake.started


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        (RIGHT, 0, "mine.py: right: 8 of 8 calls"),
        (RIGHT + "    .neg()\n".lstrip("\n"), 2, "not loaded"),
        ("def custom_kernel(data): raise KeyError('nothing')", 1, "raises KeyError: 'nothing'"),
        ("def custom_kernel(data): return data[0]", 1, "mine.py: wrong"),
    ],
    ids=["right", "not Python", "raises", "wrong"],
)
def test_grade_a_file(serve, command, tmp_path, source, status, words):
    (tmp_path / "mine.py").write_text(source)
    with serve(before=FEW_PROBES) as fake:
        found, out = command(fake, "--file", str(tmp_path / "mine.py"), entry="::app.grade")
    assert (found, words in out) == (status, True), out


def test_a_missing_file_and_one_that_would_be_replaced_are_told_first(serve, command, tmp_path):
    kept = tmp_path / "kept.json"
    kept.write_text("mine")
    with serve() as fake:
        missing = command(fake, "--file", "nowhere.py", entry="::app.grade")
        taken = command(fake, "--out", str(kept))
    assert missing[0] == 2 and "modal_app: there is no file nowhere.py" in missing[1]
    assert taken[0] == 2 and "choose another name" in taken[1] and kept.read_text() == "mine"
    assert not fake.started and not fake.requests["FunctionMap"]


def notebook(*cells: str) -> str:
    code = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps(
        {"cells": [{**code, "id": f"c{n}", "source": c} for n, c in enumerate(cells)]}
    )


#: What ``local.run`` gives, without the seconds that it takes (test_rented.py has the real one).
ON_A_GPU = """
from trimul.gpu import local
def run(source, name, timeout):
    fault = [local.failure("ZeroDivisionError", "division by zero")] * ("1 / 0" in source)
    text = {"output_type": "stream", "name": "stdout", "text": source}
    rest = dict.fromkeys(("driver", "torch", "triton", "date", "run"), "580")
    rest |= {"outputs": [text, *fault], "kept": {"timeout": timeout}, "files": {}, "seconds": 1.5}
    return {"gpu": "NVIDIA H100 80GB HBM3", **rest}
local.run = run
"""


def test_record_keeps_what_the_cells_gave(serve, command, checkout):
    (checkout / "notebooks").mkdir()
    cells = [
        "%%gpu 05_sum\n1 + 2",
        "%%gpu 05_fails\n1 / 0",
        "%%gpu 05_long --timeout 200 --gpu T4\n3",
    ]
    (checkout / "notebooks" / "05_x.ipynb").write_text(notebook(*cells))
    with serve(before=ON_A_GPU) as fake:
        status, out = command(fake, entry="::app.record", checkout=checkout)
    assert status == 1 and "05_fails failed (ZeroDivisionError: division by zero)" in out
    assert "05_sum: 1.5 s" in out and "1 call on T4" in out
    folder = checkout / "assets" / "recordings"
    kept = {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}
    assert set(kept) == {"05_long", "05_sum"}
    assert kept["05_sum"]["outputs"][0]["text"] == "1 + 2"
    assert (kept["05_sum"]["kept"], kept["05_long"]["kept"]) == ({"timeout": 120}, {"timeout": 200})
    (options,) = [options for _, options in fake.options.values()]
    assert (options.resources.gpu_config.gpu_type, options.timeout_secs) == ("T4", 230)


def test_a_run_without_a_gpu_is_not_recorded(serve, command, checkout):
    (checkout / "05_x.ipynb").write_text(notebook("%%gpu 05_x\n1"))
    with serve(before=ON_A_GPU.replace("NVIDIA H100 80GB HBM3", "none")) as fake:
        words = ["--notebooks", "05_x.ipynb"]
        status, out = command(fake, *words, entry="::app.record", checkout=checkout)
    assert status == 1 and "05_x ran without a GPU: nothing is recorded" in out
    assert not (checkout / "assets").exists()


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_wrong_gpu_is_told_with_the_list_before_anything_is_sent(serve, command):
    with serve() as fake:
        for name in ("H1000", "H100:2", "B300"):
            status, out = command(fake, "--gpu", name)
            assert status == 2 and f"'{name}' is not one of" in out and "'RTX-PRO-6000'" in out
    assert not fake.requests


def test_another_gpu_is_asked_for(serve, command):
    with serve(before=FEW_PROBES) as fake:
        status, out = command(fake, "--gpu", "L40S", "--rung", "einsum", entry="::app.check")
    (options,) = [options for _, options in fake.options.values()]
    assert status == 0 and "1 call on L40S" in out
    assert options.resources.gpu_config.gpu_type == "L40S"


def test_no_token(serve, command):
    with serve() as fake:
        address = {"MODAL_SERVER_URL": fake.env["MODAL_SERVER_URL"]}
        status, out = command(fake, env=address)
    assert status == 1 and "Token missing" in out and "modal token new" in out
    assert not fake.requests


@pytest.mark.parametrize(
    ("call", "code", "said", "words"),
    [
        ("AppCreate", Status.UNAUTHENTICATED, "Token not valid", "Token not valid"),
        ("AppCreate", Status.FAILED_PRECONDITION, "The client version is too old", "too old"),
        ("ImageGetOrCreate", Status.INVALID_ARGUMENT, "no such image", "no such image"),
        ("FunctionCreate", Status.INVALID_ARGUMENT, "unknown GPU", "unknown GPU"),
        ("FunctionMap", Status.RESOURCE_EXHAUSTED, "limit", "spending limit is reached"),
        ("FunctionMap", Status.PERMISSION_DENIED, "no", "does not allow this (no)"),
    ],
)
def test_modal_refuses(serve, command, call, code, said, words):
    with serve(refuse={call: GRPCError(code, said)}) as fake:
        status, out = command(fake)
    assert (status, words in out) == (1, True), out
    assert not fake.started


def test_no_server(serve, command):
    env = {
        "MODAL_SERVER_URL": "http://127.0.0.1:9",
        "MODAL_TOKEN_ID": "a",
        "MODAL_TOKEN_SECRET": "s",
    }
    status, out = command(None, env=env, client=f"{IMPATIENT}; {CLIENT}")
    assert status == 1 and "Could not connect to the Modal server" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"before": "from trimul import measure; measure.bench = lambda *a: 1 / 0"},
         "the program in the container raised ZeroDivisionError: division by zero"),
        ({"before": "1 / 0"}, "the program in the container raised ZeroDivisionError"),
        ({"before": "import time; time.sleep(60)", "limit": 0.2}, "the time limit was up"),
        ({"before": "import os; os._exit(3)"}, "the container died before it answered (ended with"),
        ({"before": "import os; os.kill(os.getpid(), 9)"}, "the container died"),
        ({"before": "import torch; raise torch.OutOfMemoryError('CUDA out of memory')"},
         "the memory of the GPU ran out"),
    ],
    ids=["raised inside", "raised outside", "time limit", "died", "killed", "GPU memory"],
)  # fmt: skip
def test_a_call_fails(serve, command, tmp_path, options, words):
    with serve(**options) as fake:
        status, out = command(fake, "--out", str(tmp_path / "none.json"))
    assert (status, words in out) == (1, True), out
    assert out.count(": failed") == 7 and "modal_app: N=256 B=2" in out
    assert not (tmp_path / "none.json").exists()


def test_one_call_of_seven_fails_and_the_others_are_kept(serve, command, tmp_path):
    kept = tmp_path / "ladder.json"
    before = QUICK_ROWS.replace("NVIDIA H200", "NVIDIA H100 80GB HBM3") + ONE_DIES
    with serve(before=before) as fake:
        status, out = command(fake, "--out", str(kept))
    assert status == 1 and "modal_app: N=512 B=1 D=128 normal: the container died" in out
    assert (out.count(": done"), out.count(": failed")) == (6, 1)
    assert len(json.loads(kept.read_text())["rows"]) == 6


def test_a_forgotten_upload_is_named(serve, command, checkout):
    app = checkout / "modal_app.py"
    text, count = re.subn(r"\.add_local_dir\(.*?\n    \)", "", app.read_text(), flags=re.DOTALL)
    assert count == 1
    app.write_text(text)
    with serve() as fake:
        status, out = command(fake, checkout=checkout)
    assert status == 1 and "No module named 'trimul'" in out
    assert "uploads the folder trimul/ with `add_local_dir`" in out


def test_an_interrupt_ends_with_130_and_stops_the_app(serve, forks, tmp_path):
    with serve(before="import time; time.sleep(60)") as fake:
        process = forks.start(
            CLIENT,
            ["modal", "run", "modal_app.py"],
            {**os.environ, **fake.env},
            ROOT,
            out=tmp_path / "client.txt",
        )
        while not fake.started:
            assert process.wait(0.05) is None
        process.interrupt()
        assert process.wait(40) == 130
        assert "modal_app: stopped" in process.output and "Traceback" not in process.output
        assert fake.ended_apps


def test_who_leaves_the_loopback_range_is_refused(forks, tmp_path):
    for n, code in enumerate(
        (
            "import socket; socket.create_connection(('192.0.2.1', 80), 1)",
            "import socket; socket.getaddrinfo('modal.com', 443)",
            "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 53))",
        )
    ):
        process = forks.start(code, env=os.environ, out=tmp_path / str(n))
        assert process.wait(40) == 1 and REFUSED in process.output


def test_a_failure_comes_back_as_data_for_modal_would_repeat_what_is_raised(monkeypatch):
    monkeypatch.setattr("trimul.measure.bench", lambda *a: 1 / 0)
    result = modal_app.bench_case.local(0)
    assert set(result) == {"failed", "seconds"} and "raised ZeroDivisionError" in result["failed"]


def test_a_function_runs_here_without_an_account():
    rows = modal_app.bench_case.local(0)["rows"]
    assert {row["gpu"] for row in rows} == {"none"} and rows[0]["case"]["n"] == 8
