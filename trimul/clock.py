"""What does a clock show, and what does it hide? Experiments on timing itself, with the reference.

Each returns rows of plain numbers, in microseconds. A call "behind a queue" is one that the host
launched while the GPU was still busy with something else: its kernels then follow one another
without the gaps that launching them leaves.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from trimul import measure, rungs
from trimul.problem import BENCHMARK_CASES, Case, Data, make_data

RUNG = "einsum"
MIB = 2**20
CPU_CASE = Case(n=16, dim=128, seed=2000)


def clocks(device: str) -> list[dict]:
    """One call by three clocks: the host's, without waiting and with; and events (GPU)."""
    number = torch.zeros(32, device=device)
    calls = {"nothing": lambda: None, "add 32 numbers": lambda: number.add_(1)}
    calls |= {f"{RUNG} N={n}": _reference(Case(n=n, seed=2000), device) for n in (32, 256, 1024)}
    return [
        {
            "what": what,
            "unsynchronised_us": _median(_host(call, wait=False), call),
            "event_us": _median(measure.timer(call, device), call),
            "synchronised_us": _median(_host(call, wait=True), call),
        }
        for what, call in calls.items()
    ]


def first_calls(device: str, processes: int = 3, calls: int = 10) -> list[dict]:
    """The first calls in a fresh process, by the host's clock with waiting; a row per process.

    The device is in use and the data are drawn before the first.
    """
    program = f"from trimul import clock; clock.print_first_calls({device!r}, {calls})"
    command = [sys.executable, "-c", program]
    root = Path(__file__).parent.parent
    outputs = [subprocess.check_output(command, cwd=root) for _ in range(processes)]
    return [{"us": json.loads(output)} for output in outputs]


def print_first_calls(device: str, calls: int) -> None:
    """What ``first_calls`` runs in a process of its own: a list of microseconds, as JSON."""
    timed = _host(_reference(_case(device), device), wait=True, device=device)
    print(json.dumps([timed() for _ in range(calls)]))


def series(device: str, calls: int = 100) -> list[dict]:
    """The times of ``calls`` calls in a row, after a second in which the device had no work."""
    cases = [Case(n=n, seed=2000) for n in (32, 256, 1024)] if _is_gpu(device) else [CPU_CASE]
    rows = []
    for case in cases:
        call = _reference(case, device)
        _warm(call)
        timed = measure.timer(call, device)
        time.sleep(1)
        rows.append({"case": case.as_dict(), "us": [timed() for _ in range(calls)]})
    return rows


def caches(device: str) -> list[dict]:
    """Copies of growing size, and the reference, with what they read still in L2 and without (GPU).

    Both behind a queue, so that no launch hides the difference. ``bytes``: read plus written by the
    copy; by the reference, x and y.
    """
    calls = {}
    for size in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        a = torch.rand(size * MIB // 4, device=device)
        b = torch.empty_like(a)
        calls["copy", 2 * size * MIB] = lambda a=a, b=b: b.copy_(a)
    for n in (32, 64, 128, 256, 512):
        case = Case(n=n, seed=2000)
        calls[f"{RUNG} N={n}", 2 * 4 * n * n * case.dim] = _reference(case, device)
    scrub = measure.l2_scrubber(device)
    return [
        {
            "what": what,
            "bytes": size,
            "warm_us": _median(_behind_a_queue(call, call, device), call),
            "flushed_us": _median(_behind_a_queue(call, scrub, device), call),
        }
        for (what, size), call in calls.items()
    ]


def gaps(device: str) -> list[dict]:
    """Where launching is slower than computing: the reference at growing N (GPU).

    ``event_us``: on an idle device, gaps included. ``queued_us``: the same, behind a queue.
    ``host_us``: the host's time to launch it. ``kernel_us``: sum of its ``kernels`` kernels' times.
    """
    rows = []
    for n in (16, 32, 64, 128, 256, 512, 1024):
        case = Case(n=n, seed=2000)
        call = _reference(case, device)
        ran = measure.profile(RUNG, case, device)["kernels"]
        rows.append(
            {
                "n": n,
                "event_us": _median(measure.timer(call, device), call),
                "queued_us": _median(_behind_a_queue(call, call, device), call),
                "host_us": _median(_host(call, wait=False), call),
                "kernels": len(ran),
                "kernel_us": sum(kernel["mean_us"] for kernel in ran),
            }
        )
    return rows


def contest(device: str) -> list[dict]:
    """What a call holds besides the operator when GPU MODE times its own reference.

    ``how``: "forward" (the rung), "autograd" (weights that require gradients, so that intermediates
    are kept), "module" (an nn.Module drawn at random on the CPU, moved, and given the weights in
    every call, as gpu-mode/reference-kernels, problems/bioml/trimul/reference.py, does).
    """
    rows = []
    forward = rungs.load(RUNG).forward
    for case in BENCHMARK_CASES if _is_gpu(device) else [CPU_CASE]:
        data = make_data(case, device)
        parameters = {name: nn.Parameter(weight) for name, weight in data.weights.items()}
        calls = {
            "forward": lambda d=data: forward(*d),
            "autograd": lambda d=data, p=parameters: forward(d.x, d.mask, p),
            "module": lambda d=data, c=case: forward(d.x, d.mask, fresh_module(c, d)),
        }
        for how, call in calls.items():
            with torch.enable_grad():
                samples = measure.time_call(call, device)
            rows.append({"case": case.as_dict(), "how": how, **measure.summarise(samples)})
    return rows


def fresh_module(case: Case, data: Data) -> dict[str, nn.Parameter]:
    """The operator's layers made anew, moved to the data's device, and given the data's weights."""
    dim, hidden = case.dim, case.hidden
    inner = ("left_proj", "right_proj", "left_gate", "right_gate", "out_gate")
    layers = nn.ModuleDict(
        {name: nn.Linear(dim, hidden, bias=False) for name in inner}
        | {"norm": nn.LayerNorm(dim), "to_out_norm": nn.LayerNorm(hidden)}
        | {"to_out": nn.Linear(hidden, dim, bias=False)}
    ).to(data.x.device)
    for name, weight in data.weights.items():
        layer, attribute = name.split(".")
        setattr(layers[layer], attribute, nn.Parameter(weight))
    return dict(layers.named_parameters())


def side_stream(device: str) -> list[dict]:
    """The reference by two clocks: honest, and on a stream that nobody waits for (GPU)."""
    call = _reference(Case(n=256, seed=2000), device)
    elsewhere = torch.cuda.Stream()

    def sneak():
        with torch.cuda.stream(elsewhere):
            call()

    return [
        {
            "what": what,
            "event_us": _median(measure.timer(one, device), one),
            "synchronised_us": _median(_host(one, wait=True), one),
        }
        for what, one in {"honest": call, "another stream": sneak}.items()
    ]


ANYWHERE = (first_calls, series, contest)
ON_A_GPU = (clocks, caches, gaps, side_stream)


def examine(device: str = "cuda", progress: Callable[[str], None] = lambda line: None) -> dict:
    """All experiments that this device can run, as one document with provenance."""
    document = {
        "kind": "clock",
        **measure.provenance(device),
        "rung": RUNG,
        "case": _case(device).as_dict(),
    }
    for experiment in ANYWHERE + (ON_A_GPU if _is_gpu(device) else ()):
        progress(experiment.__name__)
        document[experiment.__name__] = experiment(device)
    return document


def _case(device: str) -> Case:
    return Case(n=256, seed=2000) if _is_gpu(device) else CPU_CASE


def _reference(case: Case, device: str) -> Callable[[], torch.Tensor]:
    return measure.caller(rungs.load(RUNG), make_data(case, device), "packed")


def _is_gpu(device: str) -> bool:
    return torch.device(device).type == "cuda"


def _warm(call) -> None:
    for _ in range(measure.WARM_UP):
        call()


def _median(timed: Callable[[], float], call, runs: int = 20) -> float:
    _warm(call)
    return statistics.median(timed() for _ in range(runs))


def _host(call, wait: bool, device: str = "cuda") -> Callable[[], float]:
    """The host's clock around a call; with ``wait``, stopped once the device is done."""
    synchronize = torch.cuda.synchronize if _is_gpu(device) else lambda: None

    def timed():
        synchronize()
        start = time.perf_counter()
        call()
        if wait:
            synchronize()
        us = (time.perf_counter() - start) * 1e6
        synchronize()
        return us

    return timed


def _behind_a_queue(call, before, device: str) -> Callable[[], float]:
    """Events around a call launched while the device is busy, with ``before`` right before it."""
    a = torch.zeros(4096, 4096, device=device)
    b = torch.empty_like(a)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed():
        torch.cuda.synchronize()
        for _ in range(2):  # some five milliseconds on an H200
            torch.mm(a, a, out=b)
        before()
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3

    return timed
