"""Renting from a notebook: the opt-in, the ledger, a cell's way to a container and back."""

import json
import os
import socket
import sys
from datetime import date, timedelta
from pathlib import Path

import fake_modal
import pytest
import torch
from forks import REFUSED, Forks
from modal import exception

from trimul.gpu import backends, cell, local, prices, rented
from trimul.gpu.explain import SENTENCES, RentFailed, explain
from trimul.gpu.rented import rent

ROOT = Path(__file__).parents[1]
TODAY = date.today().isoformat()
WORST = prices.dollars("H100!", prices.START_S + 120 + rented.STOP_S + rented.IDLE_S)


@pytest.fixture(autouse=True)
def session(monkeypatch):
    """A reader with an account, who has rented nothing so far."""
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-test")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-test")
    monkeypatch.setenv("TRIMUL_GPU", "auto")
    yield
    rented.give_back()


@pytest.fixture(scope="module")
def forks():
    forks = Forks({**os.environ, "MODAL_CONFIG_PATH": os.devnull})
    yield forks
    forks.close()


def spend(dollars: float, day: str = TODAY, call: str = "a") -> None:
    rented._note(call=call, gpu="T4", name="", date=day, seconds=1.0, dollars=dollars)


# --- prices ---------------------------------------------------------------------------------------


def test_gpus_have_modals_names_in_any_case():
    assert prices.check_gpu("h100!") == "H100!" and prices.check_gpu("rtx-pro-6000")
    for name in ("H1000", "H100:2", "B200+", "", None, 5):
        with pytest.raises(ValueError, match="T4, L4, A10, L40S, A100, .* H100!, H200, B200"):
            prices.check_gpu(name)


def test_a_price_has_gpu_cores_and_memory():
    assert prices.dollars("H100!", 1) == pytest.approx(0.001097 + 4 * 0.0000131 + 16 * 0.00000222)
    assert prices.dollars("t4", 7200) == pytest.approx(7200 * prices.dollars("T4", 1))
    assert all(0.0001 < price < 0.002 for price in prices.GPUS.values())
    words = prices.estimate("H100", 2, 100)
    assert "2 calls on H100" in words and f"${2 * prices.dollars('H100', 220):.2f}" in words


# --- the opt-in -----------------------------------------------------------------------------------


def test_as_stored_it_says_what_to_do_and_rents_nothing(capsys):
    rent(dollars=None, on="")
    assert 'rent(dollars=1, on="YYYY-MM-DD")' in capsys.readouterr().out
    assert not rented.is_rented()


@pytest.mark.parametrize("day", ["", "today", str(date.today() - timedelta(1))])
def test_only_a_yes_of_today_counts(capsys, day):
    rent(dollars=1, on=day)
    out = capsys.readouterr().out
    assert "Nothing is rented" in out and f'on="{TODAY}"' in out and not rented.is_rented()


def test_a_yes_of_today_is_void_tomorrow(monkeypatch):
    rent(dollars=1, on=TODAY)
    assert rented.is_rented()
    monkeypatch.setattr(rented, "_today", lambda: str(date.today() + timedelta(1)))
    assert not rented.is_rented()
    with pytest.raises(RentFailed, match="nothing is rented today"):
        rented.run("1")


def test_recordings_alone_means_that_nothing_is_rented(capsys, monkeypatch):
    monkeypatch.setenv("TRIMUL_GPU", "recording")
    rent(dollars=1, on=TODAY)
    assert "TRIMUL_GPU=recording" in capsys.readouterr().out and not rented.is_rented()


@pytest.mark.parametrize("sum_", [0, -1, True, "1", float("nan"), 1e6])
def test_what_is_no_sum_for_a_day_is_refused(sum_):
    with pytest.raises(ValueError, match="a sum for one day"):
        rent(dollars=sum_, on=TODAY)


def test_an_unknown_gpu_is_refused_with_the_list():
    with pytest.raises(ValueError, match="'H1000' is not a GPU to rent.*H100!"):
        rent(dollars=1, on=TODAY, gpu="H1000")
    rent(dollars=1, on=TODAY)
    with pytest.raises(RentFailed, match="'H1000' is not a GPU to rent"):
        rented.run("1", gpu="H1000")


def test_renting_says_what_the_sum_is_worth(capsys):
    spend(0.25)
    rent(dollars=1, on=TODAY, gpu="h100!")
    minutes = 0.75 / prices.dollars("H100!", 60)
    out = capsys.readouterr().out
    assert "up to $1.00 today, of which $0.75 is left" in out and f"{minutes:.0f} minutes" in out
    assert backends.choose(cell.Cell("", "1")) == ("modal", "")


def test_without_a_token_or_the_client_it_says_what_to_do(monkeypatch):
    monkeypatch.delenv("MODAL_TOKEN_ID")
    with pytest.raises(RentFailed, match="no Modal token here.*modal token new"):
        rent(dollars=1, on=TODAY)
    monkeypatch.setitem(sys.modules, "modal.config", None)
    with pytest.raises(RentFailed, match="client is not installed: `make env`"):
        rent(dollars=1, on=TODAY)
    assert not rented.is_rented()


def test_a_notebook_shows_the_sentence_alone():
    assert RentFailed("no")._render_traceback_() == ["RentFailed: no"]


# --- what was spent -------------------------------------------------------------------------------


def test_the_ledger_counts_today_and_each_call_once():
    assert rented.spent_today() == 0
    spend(5.0, day="2026-01-01", call="old")
    spend(0.5), spend(0.2)  # the same call: agreed on, then settled
    spend(0.1, call="b")
    with rented._ledger().open("a") as file:
        file.write('{"half\n[1]\n{"date": 5}\n')
    assert rented.spent_today() == pytest.approx(0.3)


def test_a_cell_that_could_cost_more_than_is_left_is_not_sent(monkeypatch):
    monkeypatch.setattr(rented, "_opened", lambda *a: pytest.fail("it was sent"))
    rent(dollars=1, on=TODAY)
    spend(1 - WORST + 0.01)
    with pytest.raises(RentFailed, match=r"can cost \$0.34, and of today's \$1.00 there is \$0.33"):
        rented.run("1")
    assert rented.spent_today() == pytest.approx(1 - WORST + 0.01)


def test_a_call_that_never_came_back_counts_in_full(monkeypatch):
    def dies(session, tick):
        assert rented.spent_today() == pytest.approx(WORST)  # were the process to end here
        raise ValueError("as far as that")

    monkeypatch.setattr(rented, "_opened", dies)
    rent(dollars=1, on=TODAY)
    with pytest.raises(RentFailed, match="as far as that"):
        rented.run("1", name="05_x")
    assert rented.spent_today() == 0  # nothing was started


def test_without_a_ledger_nothing_is_sent(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRIMUL_HOME", str(tmp_path / "file"))
    with pytest.raises(RentFailed, match="set TRIMUL_HOME to a folder"):
        rent(dollars=1, on=TODAY)
    assert not rented.is_rented()


def test_a_ledger_that_vanishes_stops_the_next_cell(monkeypatch, tmp_path):
    rent(dollars=1, on=TODAY)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRIMUL_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(rented, "_opened", lambda *a: pytest.fail("it was sent"))
    with pytest.raises(RentFailed, match="set TRIMUL_HOME to a folder"):
        rented.run("1")


def test_nothing_in_the_ledger_makes_the_sum_larger():
    spend(0.5, call="a"), spend(-5.0, call="b")
    with rented._ledger().open("ab") as file:
        file.write(b'\xff{"torn')
    spend(0.25, call="c")
    assert rented.spent_today() == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("again", "recording"),
    [({}, False), ({"dollars": 1, "on": "2026-01-01"}, False), ({"dollars": 1, "on": TODAY}, True)],
)
def test_to_rent_again_ends_what_was_rented_before(monkeypatch, again, recording):
    rent(dollars=1, on=TODAY)
    closed = []
    rented._session.open.callback(lambda: closed.append(True))
    if recording:
        monkeypatch.setenv("TRIMUL_GPU", "recording")
    rent(**again)
    assert closed and not rented.is_rented()


def test_a_call_that_could_not_be_ended_counts_in_full(monkeypatch):
    class Call:
        def get(self, timeout):
            raise ConnectionError("gone")

        def cancel(self, terminate_containers):
            raise ConnectionError("gone")

    function = type("Function", (), {"spawn": lambda self, *a: Call()})()
    app = type("App", (), {"run_cell": function})
    monkeypatch.setattr(rented, "_opened", lambda session, tick: app)
    rent(dollars=1, on=TODAY)
    with pytest.raises(RentFailed):
        rented.run("1")
    assert rented.spent_today() == pytest.approx(WORST)


def test_a_short_time_limit_costs_what_modals_own_limit_does():
    rent(dollars=1, on=TODAY)
    assert rented._within(rented._session, "H100!", 1.0) == pytest.approx(WORST)


# --- a cell's way to a container and back ---------------------------------------------------------

PROGRAM = """
import sys, trimul.problem
from trimul.gpu import display, keep
print("out"); print("err", file=sys.stderr)
display({"text/plain": "shown"})
keep(n=len(trimul.problem.BENCHMARK_CASES))
1 / 0
"""

NOTEBOOK = f"""
import asyncio, json, warnings
warnings.simplefilter("error")
from trimul.gpu import rented

async def cells():  # a notebook's cell runs inside an event loop
    rented.rent(dollars=2, on={TODAY!r})
    ticks = []
    tick = lambda seconds, state: ticks.append(state)
    try:
        document = rented.run({PROGRAM!r}, "05_x", 60, tick=tick)
    finally:
        rented.give_back()
    print("RESULT" + json.dumps([document, sorted(set(ticks)), rented.is_rented()]))

asyncio.run(cells())
"""


def run(forks, fake, code, tmp_path):
    env = {**os.environ, **fake.env, "TRIMUL_HOME": str(tmp_path / "home")}
    return forks.start(code, env=env, cwd=tmp_path, path=[ROOT], out=tmp_path / "printed")


def ledger(tmp_path) -> list[dict]:
    return [json.loads(line) for line in (tmp_path / "home" / "rented.jsonl").open()]


def test_a_cell_gives_there_what_it_gives_here(forks, tmp_path):
    with fake_modal.serve(forks) as fake:
        process = run(forks, fake, NOTEBOOK, tmp_path)
        assert process.wait(90) == 0, process.output
        assert len(fake.ended_apps) == 1 and fake.requests["AppCreate"] == 1
    before, _, result = process.output.partition("RESULT")
    assert before.count("\n") == 1 and REFUSED not in before  # what rent says, and nothing of Modal
    there, ticks, still = json.loads(result)
    here = local.run(PROGRAM, "05_x", 60)
    for key in ("outputs", "kept", "files", "undefined", "gpu", "torch", "triton"):
        assert there[key] == here[key], key
    assert there["outputs"][-1]["output_type"] == "error" and there["kept"] == {"n": 7}
    assert not still
    assert ticks == ["making the image (minutes, the first time) and starting", "queued or running"]
    agreed, settled = ledger(tmp_path)
    assert agreed["seconds"] is None and agreed["dollars"] > settled["dollars"] == there["dollars"]
    assert (settled["gpu"], settled["name"], settled["date"]) == ("H100!", "05_x", TODAY)
    assert settled["dollars"] == pytest.approx(
        prices.dollars("H100!", settled["seconds"] + rented.IDLE_S), rel=0.01
    )


SEVERAL = f"""
from trimul.gpu import rented
rented.rent(dollars=2, on={TODAY!r})
sources = iter("aaab")
rented._sources = lambda: next(sources)
for gpu, timeout in (("", 120), ("l4", 120), ("", 200), ("H100!", 5)):
    print(rented.run("1", "05_x", timeout, gpu)["timeout"])
"""


def test_cells_share_one_app_until_an_edit_and_ask_for_another_gpu_or_more_time(forks, tmp_path):
    before = "module.run_cell.local = lambda s, n, t: {'torch': '2.13.0+cu130', 'timeout': t}"
    with fake_modal.serve(forks, before=before) as fake:
        process = run(forks, fake, SEVERAL, tmp_path)
        assert process.wait(20) == 0, process.output
    assert process.output.splitlines()[1:] == ["120", "120", "200", "5"]
    assert fake.requests["AppCreate"] == len(fake.ended_apps) == 2
    asked = [options for _, options in fake.options.values()]
    assert [o.resources.gpu_config.gpu_type for o in asked] == ["L4", ""]
    assert [o.timeout_secs for o in asked] == [0, 230]
    assert [entry["gpu"] for entry in ledger(tmp_path)[1::2]] == ["H100!", "L4", "H100!", "H100!"]


def test_an_edit_is_seen(monkeypatch, tmp_path):
    monkeypatch.setattr(rented, "ROOT", tmp_path)
    (tmp_path / "trimul" / "__pycache__").mkdir(parents=True)
    app, kernel = tmp_path / "modal_app.py", tmp_path / "trimul" / "x.cu"
    seen = set()
    for change in (app.touch, kernel.touch, lambda: os.utime(kernel, ns=(0, 5)), kernel.unlink):
        change()
        seen.add(rented._sources())
    assert len(seen) == 3  # the last is as the first
    (tmp_path / "trimul" / "__pycache__" / "x.pyc").touch()
    assert rented._sources() in seen


def test_an_app_that_was_broken_by_an_edit_is_named(monkeypatch, tmp_path):
    (tmp_path / "modal_app.py").write_text("app = 1 / 0")
    monkeypatch.setattr(rented, "ROOT", tmp_path)
    monkeypatch.delitem(sys.modules, "modal_app", raising=False)
    rent(dollars=1, on=TODAY)
    with pytest.raises(RentFailed, match="modal_app.py cannot be loaded: ZeroDivisionError"):
        rented.run("1")
    assert rented.spent_today() == 0


FAILS = f"""
from trimul.gpu import rented
rented.rent(dollars=2, on={TODAY!r})
for _ in range(2):
    try:
        rented.run("1", "05_x")
    except rented.RentFailed as error:
        print("SAID", error)
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"before": "1 / 0"}, "the program in the container raised ZeroDivisionError"),
        ({"before": "import os; os._exit(1)"}, "the container died before it answered"),
        ({"before": "import time; time.sleep(60)", "limit": 0.2}, "the time limit was up"),
        (
            {"before": "module.run_cell.local = lambda *a: {'torch': '2.11.0', 'outputs': []}"},
            "the container had torch 2.11.0, and modal_app.py pins 2.13.0",
        ),
    ],
    ids=["raised", "died", "time limit", "another torch"],
)
def test_a_failure_is_one_sentence_and_is_paid_for(forks, tmp_path, options, words):
    with fake_modal.serve(forks, **options) as fake:
        process = run(forks, fake, FAILS, tmp_path)
        assert process.wait(20) == 0, process.output
        # started afresh after a call that failed, and given back at the end of the session
        assert len(fake.ended_apps) == fake.requests["AppCreate"] == 2 - ("torch" in words)
    assert process.output.count(f"SAID {words}") == 2
    assert len(ledger(tmp_path)) == 4 and ledger(tmp_path)[1]["dollars"] > 0.02


def test_an_interrupt_ends_the_container_and_is_paid_for(forks, tmp_path):
    code = FAILS.replace("rented.RentFailed as error", "KeyboardInterrupt as error").replace(
        "2)", "1)"
    )
    with fake_modal.serve(forks, before="import time; time.sleep(60)") as fake:
        process = run(forks, fake, code, tmp_path)
        while not any(fake.containers.values()):
            assert process.wait(0.05) is None, process.output
        process.interrupt()
        assert process.wait(40) == 0 and "SAID" in process.output, process.output
        (container,) = [one for many in fake.containers.values() for one in many]
        assert fake.cancelled == list(fake.containers) and container.wait(30) == -9
    assert 0.02 < ledger(tmp_path)[1]["dollars"] < ledger(tmp_path)[0]["dollars"]


# --- what went wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named 'modal'"), "client is not installed"),
        (ModuleNotFoundError("No module named 'trimul'"), "is not in the container"),
        (exception.AuthError("Token missing. Could"), "no Modal token here"),
        (exception.AuthError("invalid"), "does not accept the token (invalid)"),
        (exception.ConflictError("The client version is too old"), "do not fit"),
        (exception.VersionError("needs 2"), "client is too old"),
        (exception.FunctionTimeoutError("hit"), "time limit was up"),
        (exception.ImageBuildError("pip failed", "im-1"), "image could not be built: pip failed"),
        (exception.RemoteError("Image build for im-1 failed"), "image could not be built"),
        (exception.RemoteError("Container ran out of memory"), "memory ran out, of which"),
        (exception.RemoteError("exit code 1"), "the container died"),
        (exception.ResourceExhaustedError("budget"), "spending limit"),
        (exception.PermissionDeniedError("no"), "does not allow this"),
        (exception.InvalidError("Unknown GPU type"), "does not have that GPU"),
        (exception.ExecutionError("Could not deserialize result"), "different versions"),
        (exception.DeserializationError("x"), "not plain data"),
        (exception.SerializationError("x"), "not plain data"),
        (exception.ConnectionError("x"), "cannot be reached"),
        (socket.gaierror("x"), "cannot be found"),
        (exception.InternalFailure("x"), "failure of its own (InternalFailure: x)"),
        (exception.ServiceError("x"), "failure of its own"),
        (exception.ClientClosed("x"), "connection to Modal was closed"),
        (exception.InputCancellation("x"), "cancelled"),
        (torch.OutOfMemoryError("x"), "memory of the GPU ran out"),
        (MemoryError(), "memory ran out"),
        (KeyboardInterrupt(), "stopped"),
        (RentFailed("a sentence"), "a sentence"),
        (ZeroDivisionError("by zero"), "the program in the container raised ZeroDivisionError"),
        (json.JSONDecodeError("a\n b", "", 0), "raised json.decoder.JSONDecodeError: a b"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_each_failure_has_its_sentence(error, words):
    assert words in explain(error) and "\n" not in explain(error)


def test_no_sentence_is_out_of_reach():
    """An earlier one with the same type and a wider pattern would hide it."""
    assert len({(name, pattern) for name, pattern, _ in SENTENCES}) == len(SENTENCES)
    for index, (name, _, _) in enumerate(SENTENCES):
        assert (name, "") not in [(n, p) for n, p, _ in SENTENCES[:index]], name
