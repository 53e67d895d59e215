"""What does this machine do? Small experiments on its memory, its arithmetic and its launches.

Each runs on a CPU and on a GPU, so that a reader sees the shape of the answer on a laptop and the
stored figures of a real GPU beside it. Each returns rows of plain numbers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from trimul import measure

KIB, MIB = 2**10, 2**20


def copy_bandwidth(device: str = "cpu", sizes: list[int] | None = None) -> list[dict]:
    """Bytes per second of ``b.copy_(a)``, read plus written, by the size of a in bytes."""
    largest = 2 * 1024 * MIB if _is_gpu(device) else 64 * MIB
    rows = []
    for size in sizes or _doublings(16 * KIB, largest):
        a = torch.rand(size // 4, device=device)
        b = torch.empty_like(a)
        repeats = max(1, (64 if _is_gpu(device) else 8) * MIB // size)  # a CPU copies more slowly
        us = _median_us(lambda a=a, b=b, r=repeats: [b.copy_(a) for _ in range(r)], device)
        rows.append({"bytes": size, "bytes_per_s": 2 * size * repeats / us * 1e6})
    return rows


def matmul_rate(device: str = "cpu", sizes: list[int] | None = None) -> list[dict]:
    """FLOP per second of a square matrix product on random data, by size and type.

    Types: fp32 (true fp32 products) on a CPU; also tf32, fp16 and bf16 on a GPU.
    """
    kinds = {"fp32": (torch.float32, "ieee")}
    if _is_gpu(device):
        kinds["tf32"] = (torch.float32, "tf32")
        kinds["fp16"] = (torch.float16, "ieee")
        kinds["bf16"] = (torch.bfloat16, "ieee")
    rows = []
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for kind, (dtype, precision) in kinds.items():
            torch.backends.cuda.matmul.fp32_precision = precision
            for n in sizes or ([256, 512, 1024, 2048, 4096, 8192] if _is_gpu(device) else [512]):
                a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
                us = _median_us(lambda a=a, b=b: a @ b, device)
                rows.append({"kind": kind, "n": n, "flop_per_s": 2 * n**3 / us * 1e6})
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    return rows


def launch_cost(device: str = "cpu", launches: int = 1000) -> dict:
    """Microseconds for an operator that has almost nothing to do (adds 1 to 32 numbers).

    ``each_us``: per operator when many follow one another. On a GPU also ``host_us``, the host's
    share of it; ``alone_us``, one launched and waited for; and ``graph_us``, replayed from a graph.
    """
    x = torch.zeros(32, device=device)

    def many():
        for _ in range(launches):
            x.add_(1)

    result = {"each_us": _median_us(many, device) / launches}
    if not _is_gpu(device):
        return result

    def host_only():
        torch.cuda.synchronize()
        start = time.perf_counter()
        many()
        return (time.perf_counter() - start) / launches * 1e6

    def alone():
        start = time.perf_counter()
        x.add_(1)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e6

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        many()
    torch.cuda.synchronize()
    return result | {
        "host_us": statistics.median(host_only() for _ in range(10)),
        "alone_us": statistics.median(alone() for _ in range(100)),
        "graph_us": _median_us(graph.replay, device) / launches,
    }


def bytes_in_flight(device: str = "cuda") -> list[dict]:
    """Bandwidth of a copy of 1 GiB against the bytes that are on their way at once (GPU only).

    ``in_flight`` is programs times bytes per piece: what the kernel asks for before it waits.
    """
    from trimul.machine_kernels import copy_in_pieces

    count = 256 * MIB
    source = torch.rand(count, device=device)
    target = torch.empty_like(source)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    rows = []
    for piece in (512, 2048):
        for per_processor in (1, 2, 4, 8, 16):
            grid = (processors * per_processor,)
            copy = partial(copy_in_pieces[grid], source, target, count, PIECE=piece)
            us = _median_us(copy, device)
            if not torch.equal(source, target):
                raise RuntimeError("the copy is not equal to its source: its time means nothing")
            rows.append(
                {
                    "in_flight": grid[0] * piece * 4,
                    "programs": grid[0],
                    "bytes_per_s": 8 * count / us * 1e6,
                }
            )
    return rows


def load_latency(device: str = "cuda", hops: int = 20_000) -> list[dict]:
    """Nanoseconds from one dependent load to the next, by the bytes of the chain (GPU only).

    One index per 128-byte line, in random order, so that neither a line nor a prefetch helps twice.
    """
    from trimul.machine_kernels import chase

    rows = []
    for size in _doublings(16 * KIB, 1024 * MIB, factor=4):
        lines = size // 128
        order = torch.randperm(lines, device=device, dtype=torch.int32) * 32
        next_index = torch.zeros(lines * 32, dtype=torch.int32, device=device)
        next_index[order.long()] = order.roll(-1)
        end = order[:1].clone()
        us = _median_us(lambda n=next_index, e=end: chase[(1,)](n, e, hops, num_warps=1), device)
        rows.append({"bytes": size, "ns": us * 1e3 / hops})
    return rows


def examine(device: str = "cuda", progress: Callable[[str], None] = lambda line: None) -> dict:
    """All experiments that this device can run, as one document with provenance."""
    experiments = [copy_bandwidth, matmul_rate, launch_cost]
    if _is_gpu(device):
        experiments += [bytes_in_flight, load_latency]
    document = {"kind": "machine", **measure.provenance(device)}
    if _is_gpu(device):
        properties = torch.cuda.get_device_properties(device)
        document["processors"] = properties.multi_processor_count
        document["l2_bytes"] = properties.L2_cache_size
        document["memory_bytes"] = properties.total_memory
    else:
        document["cpu"] = measure.processor()
    for experiment in experiments:
        progress(experiment.__name__)
        document[experiment.__name__] = experiment(device)
    return document


def _is_gpu(device: str) -> bool:
    return torch.device(device).type == "cuda"


def _doublings(first: int, last: int, factor: int = 2) -> list[int]:
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


def _median_us(call: Callable[[], object], device: str) -> float:
    return statistics.median(measure.time_call(call, device, max_runs=20))
