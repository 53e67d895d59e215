"""The timing protocol on a clock that the test moves, and what is kept of a measurement."""

import json
import math
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from trimul import ladder, measure, rungs
from trimul.problem import BENCHMARK_CASES, Case
from trimul.roofline import HARDWARE, floors

SMALL = Case(n=3, dim=4, hidden=8, seed=1)


@pytest.fixture
def timed(monkeypatch):
    """A function ``timed(durations, **options)``: what time_call gives for such calls."""

    def run(durations, **options):
        clock = SimpleNamespace(now=0.0, calls=0)
        monkeypatch.setattr(measure, "_clock", lambda: clock.now)

        def call():
            clock.now += durations(clock.calls)
            clock.calls += 1

        samples = measure.time_call(call, **options)
        return samples, clock.calls

    return run


# --- the protocol ------------------------------------------------------------------------------


def test_three_calls_are_not_timed_and_steady_times_stop_at_ten(timed):
    samples, calls = timed(lambda i: 1.0 if i < 3 else 2e-3)
    assert calls == 13
    assert samples == pytest.approx([2000.0] * 10)


def test_scattered_times_go_on_to_the_largest_number(timed):
    assert len(timed(lambda i: (1 + i % 2) * 1e-6)[0]) == measure.MAX_RUNS == 100
    assert len(timed(lambda i: (1 + i % 2) * 1e-6, max_runs=7)[0]) == 7


def test_it_stops_once_the_mean_is_known_to_a_thousandth(timed):
    scatter = 6e-3
    samples, _ = timed(lambda i: 1e-3 * (1 + scatter * (-1) ** i))
    assert len(samples) == pytest.approx((scatter / 1e-3) ** 2, abs=3)


def test_it_stops_after_ten_seconds_but_not_before_ten_calls(timed):
    samples, _ = timed(lambda i: 0.3 + 0.1 * (-1) ** i)
    assert sum(samples[:-1]) <= 10e6 < sum(samples)
    assert len(timed(lambda i: 3 + (-1) ** i)[0]) == measure.MIN_RUNS


@pytest.fixture
def gpu(monkeypatch):
    """Events and waiting that only note their order; between two events lie 1.5 ms."""
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")

        def elapsed_time(self, end):
            assert end is not self
            return 1.5

    properties = SimpleNamespace(L2_cache_size=1000)
    scrubbed = SimpleNamespace(zero_=lambda: log.append("scrub"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("wait"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch, "empty", lambda size, **_: log.append(size) or scrubbed)
    return log


def test_on_a_gpu_it_waits_before_the_first_event_and_after_the_second(gpu):
    timed = measure.timer(lambda: gpu.append("call"), "cuda")
    assert timed() == 1500.0
    assert gpu == ["wait", "event", "call", "event", "wait"]


def test_l2_is_flushed_before_each_timed_call_and_outside_of_its_events(gpu):
    measure.time_call(lambda: gpu.append("call"), "cuda", max_runs=2, flush_l2=True)
    once = ["scrub", "wait", "event", "call", "event", "wait"]
    assert gpu == [2000, *["call"] * 3, *once, *once]


def test_a_cpus_caches_are_not_flushed():
    with pytest.raises(ValueError, match="flush_l2 is for a GPU"):
        measure.time_call(lambda: None, flush_l2=True)


def test_summary_of_known_samples():
    samples = [10.0, 0, 9, 1, 8, 2, 7, 3, 6, 4, 500]
    assert measure.summarise(samples) == {
        "mean_us": 50.0,
        "median_us": 6.0,
        "p20_us": 2.0,
        "p80_us": 9.0,
        "runs": 11,
    }
    assert measure.summarise([4.0]) == dict.fromkeys(
        ("mean_us", "median_us", "p20_us", "p80_us"), 4.0
    ) | {"runs": 1}


# --- rungs -------------------------------------------------------------------------------------


def test_protocols_differ_in_when_they_pack():
    packs = []
    rung = SimpleNamespace(pack=lambda w: packs.append(w) or "packed", forward=lambda *a: a[2])
    call = measure.caller(rung, ("x", "mask", "weights"), "call")
    assert (packs, call(), call()) == (["weights"] * 2, "packed", "packed")
    packs.clear()
    call = measure.caller(rung, ("x", "mask", "weights"), "packed")
    assert (call(), call(), packs) == ("packed", "packed", ["weights"])
    with pytest.raises(ValueError, match="one of call, packed, not 'warm'"):
        measure.caller(rung, ("x", "mask", "weights"), "warm")


def test_bench_gives_a_whole_row_for_each_rung_case_and_protocol():
    cases = [SMALL, Case(n=2, dim=4, hidden=8, masked=True, seed=2)]
    said = []
    rows = measure.bench(["einsum", "loops"], cases, "cpu", progress=said.append)
    assert [(row["case"]["n"], row["rung"], row["protocol"]) for row in rows] == [
        (n, rung, protocol)
        for n in (3, 2)
        for rung in ("einsum", "loops")
        for protocol in ("call", "packed")
    ]
    assert len(said) == 8
    for row in rows:
        assert tuple(sorted(row)) == tuple(sorted(measure.ROW_FIELDS))
        assert 0 < row["p20_us"] <= row["median_us"] <= row["p80_us"]
        assert row["max_error"] < 1e-4 and row["gpu"] == "none" and row["l2_flushed"] is False
    assert len({row["run"] for row in rows}) == 1
    assert measure.provenance()["run"] != measure.provenance()["run"]


@pytest.mark.parametrize("planted", [1.05, math.nan])
def test_bench_refuses_a_rung_with_a_wrong_result(monkeypatch, planted):
    right = rungs.load("einsum")
    wrong = SimpleNamespace(
        pack=right.pack, forward=lambda *data: right.forward(*data) * planted + 0.1
    )
    monkeypatch.setattr(rungs, "load", lambda name: wrong)
    monkeypatch.setattr(measure, "time_call", lambda *_: pytest.fail("timed a wrong result"))
    with pytest.raises(ValueError, match="einsum is wrong on N=3.*trimul check einsum"):
        measure.bench(["einsum"], [SMALL], "cpu")


def test_a_profile_has_every_operator_in_order():
    document = measure.profile("einsum", SMALL, "cpu", calls=2)
    assert (document["kind"], document["rung"]) == ("profile", "einsum")
    assert document["case"] == SMALL.as_dict()
    kernels = document["kernels"]
    assert all(set(k) == {"op", "within", "shapes", "kernel", "mean_us"} for k in kernels)
    ops = [k["op"] for k in kernels]
    assert ops.count("mm") == 6 and ops.count("bmm") == 1 and ops.count("sigmoid") == 3
    assert ops.index("native_layer_norm") < ops.index("mm") < ops.index("bmm")
    (product,) = (k for k in kernels if k["op"] == "bmm")
    assert product["within"] == "einsum" and product["shapes"].startswith("[[8, 3, 3]")
    total = sum(k["mean_us"] for k in kernels)
    assert 0 < total <= document["span_us"]
    head, *steps = measure.profile_table(document).splitlines()
    assert len(steps) == len(kernels) and f"{len(kernels)} steps" in head


# --- what is kept ------------------------------------------------------------------------------


def row(run="a", date="2026-01-01T00:00:00Z", **fields):
    whole = dict.fromkeys(measure.ROW_FIELDS, 0) | {"gpu": "G", "case": SMALL.as_dict()}
    return whole | {"run": run, "date": date} | fields


def test_rows_come_back_as_they_were_saved_oldest_run_first(tmp_path):
    rows = {run: row(run, f"2026-01-0{day}") for run, day in (("new", 3), ("old", 1), ("mid", 2))}
    for run, one in rows.items():
        measure.save(measure.document([one]), tmp_path / "sub" / f"{run}.json")
    measure.save({"kind": "machine", "date": ""}, tmp_path / "sub" / "machine.json")
    found = measure.recorded_rows(tmp_path / "sub")
    assert found == [rows["old"], rows["mid"], rows["new"]]
    assert measure.newest_run(found) == [rows["new"]]
    assert measure.newest_run([]) == []


def test_the_newest_run_is_all_of_it_and_nothing_else():
    rows = [row("b", "2026-02", rung=1), row("a", "2026-01"), row("b", "2026-02", rung=2)]
    assert [r["rung"] for r in measure.newest_run(rows)] == [1, 2]


def test_select_by_case_and_fields():
    other = Case(n=5, dim=4, hidden=8, seed=1)
    rows = [row(protocol="call"), row(protocol="packed"), row(case=other.as_dict())]
    assert measure.select(rows, SMALL) == rows[:2]
    assert measure.select(rows, SMALL, protocol="packed") == [rows[1]]
    assert measure.select(rows, Case(n=3, dim=4, hidden=8, seed=77)) == rows[:2]
    assert measure.select(rows, Case(n=3, dim=4, hidden=8, masked=True)) == []
    with pytest.raises(KeyError, match="protokol"):
        measure.select(rows, protokol="call")


def test_a_ratio_compares_one_run_only():
    slow, fast = row(mean_us=30.0, median_us=8.0), row(mean_us=10.0, median_us=2.0)
    assert measure.ratio(slow, fast) == 3.0
    assert measure.ratio(slow, fast, "median_us") == 4.0
    with pytest.raises(ValueError, match="two runs .*2026-01-01.*2026-02.*measure both in one"):
        measure.ratio(slow, row("b", "2026-02", mean_us=10.0))


def test_the_geometric_mean_is_not_the_mean():
    assert measure.geometric_mean([1.0, 100.0]) == pytest.approx(10.0)


def test_saving_replaces_nothing(tmp_path):
    path = measure.save({"kind": "first"}, tmp_path / "result.json")
    with pytest.raises(FileExistsError, match="choose another name"):
        measure.save({"kind": "second"}, path)
    assert json.loads(path.read_text()) == {"kind": "first"}


class Broken(dict):
    """Stops whoever writes it, after what stands before it has been written."""

    def items(self):
        raise KeyboardInterrupt


def test_an_interrupted_save_leaves_no_result(tmp_path):
    document = {"kind": "bench", "rows": list(range(10_000)), "then": Broken(a=1)}
    with pytest.raises(KeyboardInterrupt):
        measure.save(document, tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []
    assert measure.save({"kind": "bench", "date": ""}, tmp_path / "result.json").exists()


def test_a_killed_save_leaves_no_result(tmp_path):
    program = """if True:
        import os, signal, sys
        from trimul import measure
        class Killed(dict):
            def items(self):
                os.kill(os.getpid(), signal.SIGKILL)
        rows = {"kind": "bench", "rows": list(range(10_000)), "then": Killed(a=1)}
        measure.save(rows, sys.argv[1])
    """
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "result.json")])
    assert killed.returncode == -9
    assert measure.stored("bench", tmp_path) == []


@pytest.mark.parametrize("content", ['{"kind": "bench", "ro', "[1, 2]", '{"date": ""}', "\xff"])
def test_a_corrupt_file_is_named(tmp_path, content):
    measure.save(measure.document([row()]), tmp_path / "good.json")
    (tmp_path / "bad.json").write_text(content, encoding="latin-1")
    with pytest.raises(measure.StoredDataError, match="bad.json.*restore it"):
        measure.stored("bench", tmp_path)


def test_a_row_that_lacks_a_field_is_named(tmp_path):
    short = row("cafe")
    del short["driver"], short["p80_us"]
    measure.save(measure.document([row(), short]), tmp_path / "short.json")
    with pytest.raises(measure.StoredDataError, match="row of run cafe lacks p80_us, driver"):
        measure.recorded_rows(tmp_path)


# --- the ladder --------------------------------------------------------------------------------


def gpu_rows(times, **fields):
    pairs = zip(BENCHMARK_CASES, times, strict=True)
    return [row(case=c.as_dict(), mean_us=us, rung="einsum", **fields) for c, us in pairs]


def test_the_gpu_ladder_shows_the_call_protocol_and_its_geometric_mean():
    times = [float(2**i) for i in range(7)]
    rows = gpu_rows([7e6] * 7, protocol="packed", l2_flushed=False)
    rows += gpu_rows(times, protocol="call", l2_flushed=False)
    origin, *heads, line = ladder.table(rows).splitlines()
    assert origin.startswith("G, 2026-01-01, torch 0") and "packing included" in origin
    assert [head.split()[:3] for head in heads] == [
        ["N256", "N768", "N256"],
        ["geomean", "B2", "D128"],
        ["masked", "masked"],
    ]
    assert line.split() == ["einsum", "8", *(f"{us:.0f}" for us in times)]


def test_the_ladder_of_a_known_gpu_ends_in_its_floors():
    rows = gpu_rows([1e5] * 7, protocol="call", l2_flushed=False, gpu="NVIDIA H200")
    *_, three, one = (line.split() for line in ladder.table(rows).splitlines())
    expected = [floors(case, HARDWARE["H200"]) for case in BENCHMARK_CASES]
    assert three[-7:] == [f"{floor.three_kernels * 1e6:.0f}" for floor in expected]
    assert one[-7:] == [f"{floor.operator * 1e6:.0f}" for floor in expected]


def test_the_newest_ladder_leaves_out_flushed_and_packed_rows(monkeypatch):
    old, new = (dict(protocol="call", l2_flushed=False, run=r, date=r) for r in ("1", "2"))
    wanted = gpu_rows([2.0] * 7, **new)
    others = gpu_rows([1.0] * 7, **old) + gpu_rows([3.0] * 7, **new | {"protocol": "packed"})
    flushed = gpu_rows([4.0] * 7, protocol="call", l2_flushed=True, run="3", date="3")
    monkeypatch.setattr(measure, "recorded_rows", lambda: others + wanted + flushed)
    assert ladder.newest() == wanted
    assert "1" not in ladder.recorded().splitlines()[-1].split()


def test_without_rows_the_ladder_says_so():
    assert ladder.table([]) == "nothing has been measured yet"


def test_on_a_gpu_the_ladder_leaves_out_what_cannot_run_at_full_size(monkeypatch):
    monkeypatch.setattr(measure, "bench", lambda names, *a, device="?", **k: (names, device))
    names, device = ladder.measure_here("cuda")
    assert "einsum" in names and "loops" not in names and device == "cuda"
