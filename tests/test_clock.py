"""The experiments on timing: their arithmetic, with a device whose clock the test moves."""

from contextlib import contextmanager

import pytest
import torch

from trimul import clock, measure
from trimul.problem import Case, make_data


@pytest.fixture
def gpu(monkeypatch):
    """Just enough of a GPU: launches go to a queue, events and waiting follow a virtual clock."""
    device = FakeGPU()
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: "another")
    monkeypatch.setattr(torch.cuda, "stream", device.stream)
    monkeypatch.setattr(clock.time, "perf_counter", lambda: device.host / 1e6)
    monkeypatch.setattr(clock, "_is_gpu", lambda device: True)
    monkeypatch.setattr(measure, "timer", lambda call, _: device.timer(call))
    return device


class FakeGPU:
    """A launch takes the host 5 us; the kernels of a call take 100 us on their stream."""

    def __init__(self):
        self.host, self.done, self.current = 0.0, {"main": 0.0, "another": 0.0}, "main"

    def launch(self, us=100.0):
        self.host += 5
        self.done[self.current] = max(self.done[self.current], self.host) + us

    def synchronize(self):
        self.host = max(self.host, *self.done.values())

    def event(self, enable_timing):
        gpu = self

        class Event:
            def record(self):
                self.at = max(gpu.done["main"], gpu.host)

            def elapsed_time(self, other):
                return (other.at - self.at) / 1e3

        return Event()

    def stream(self, name):
        @contextmanager
        def on():
            self.current = name
            yield
            self.current = "main"

        return on()

    def timer(self, call):
        start, end = self.event(True), self.event(True)

        def timed():
            self.synchronize()
            start.record()
            call()
            end.record()
            self.synchronize()
            return start.elapsed_time(end) * 1e3

        return timed


@pytest.fixture
def reference(gpu, monkeypatch):
    monkeypatch.setattr(clock, "_reference", lambda case, device: gpu.launch)
    return gpu


def test_three_clocks(reference):
    row = clock.clocks("cpu")[-1]
    assert row == {
        "what": "einsum N=1024",
        "unsynchronised_us": pytest.approx(5),
        "event_us": pytest.approx(105),
        "synchronised_us": pytest.approx(105),
    }


def test_another_stream_hides_from_events(reference):
    honest, sneaked = clock.side_stream("cpu")
    assert honest["event_us"] == pytest.approx(105)
    assert sneaked["event_us"] == pytest.approx(5)
    assert sneaked["synchronised_us"] == pytest.approx(105)


def test_behind_a_queue_there_are_no_gaps(reference, monkeypatch):
    monkeypatch.setattr(torch, "zeros", lambda *a, **k: torch.empty(1, 1))
    monkeypatch.setattr(torch, "mm", lambda a, b, out: reference.launch(2500))
    before = []
    timed = clock._behind_a_queue(reference.launch, lambda: before.append(1), "cpu")
    assert timed() == pytest.approx(100)
    assert before == [1]
    fake = {"kernels": [{"mean_us": 30.0}, {"mean_us": 60.0}]}
    monkeypatch.setattr(measure, "profile", lambda *_: fake)
    row = clock.gaps("cpu")[0]
    assert row == {
        "n": 16,
        "event_us": pytest.approx(105),
        "queued_us": pytest.approx(100),
        "host_us": pytest.approx(5),
        "kernels": 2,
        "kernel_us": 90.0,
    }


def test_caches_measures_both_states(reference, monkeypatch):
    warm = []
    monkeypatch.setattr(measure, "l2_scrubber", lambda device: "scrub")
    monkeypatch.setattr(
        clock, "_behind_a_queue", lambda call, before, _: lambda: warm.append(before == call) or 1.0
    )
    real = torch.rand
    monkeypatch.setattr(torch, "rand", lambda *a, **k: real(1))
    rows = clock.caches("cpu")
    assert rows[0]["bytes"] == 2 * clock.MIB
    assert set(warm[:20]) == {True} and set(warm[20:40]) == {False}


def test_examine_on_this_cpu(monkeypatch):
    monkeypatch.setattr(clock.time, "sleep", lambda s: None)
    monkeypatch.setattr(clock, "CPU_CASE", Case(n=4, dim=8, hidden=8, seed=1))
    monkeypatch.setattr(clock, "ANYWHERE", (clock.series, clock.contest))
    document = clock.examine("cpu")
    assert document["kind"] == "clock" and document["gpu"] == "none"
    assert [len(row["us"]) for row in document["series"]] == [100]
    assert [row["how"] for row in document["contest"]] == ["forward", "autograd", "module"]
    assert all(row["mean_us"] > 0 for row in document["contest"])


def test_fresh_processes_report_their_first_calls():
    (row,) = clock.first_calls("cpu", processes=1, calls=3)
    assert len(row["us"]) == 3 and min(row["us"]) > 0


def test_a_fresh_module_computes_the_same():
    case = Case(n=3, dim=4, hidden=8, seed=5)
    data = make_data(case)
    forward = clock.rungs.load("einsum").forward
    parameters = clock.fresh_module(case, data)
    assert all(p.requires_grad for p in parameters.values())
    assert torch.equal(forward(data.x, data.mask, parameters), forward(*data))
