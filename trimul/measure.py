"""How long does it take? One timing protocol, and results as data that say where they come from.

A row of a measurement has the fields ``ROW_FIELDS``; a result file holds one document of one run.
Ratios compare rows of one run on one machine only.
"""

from __future__ import annotations

import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from trimul import check, digest, rungs, source
from trimul.files import write_whole
from trimul.gpu.provenance import FIELDS, provenance
from trimul.problem import BENCHMARK_CASES, Case, make_data

RESULTS = Path(__file__).parent.parent / "assets" / "results"

#: "call": packing the weights is part of every call and nothing is kept, as GPU MODE times.
#: "packed": the weights were packed once beforehand, as a module in a model would run.
PROTOCOLS = ("call", "packed")

ROW_FIELDS = (
    *("rung", "case", "protocol"),
    *("mean_us", "median_us", "p20_us", "p80_us", "runs", "max_error", "l2_flushed"),
    *(*FIELDS, "source_hash"),
)

WARM_UP = 3
MIN_RUNS, MAX_RUNS = 10, 100
STANDARD_ERROR = 1e-3  # stop once the mean is known to 0.1 %
TIME_LIMIT_S = 10.0

# Taken when this module is imported, before anyone's code can replace them.
_clock = time.perf_counter


class StoredDataError(ValueError):
    """A result file that cannot be read, or is not one."""


def time_call(
    call: Callable[[], object], device: str = "cpu", max_runs: int = MAX_RUNS, flush_l2=False
) -> list[float]:
    """Times of single calls in microseconds, after three untimed ones.

    On a GPU: CUDA events around the call with the device synchronised before and after, so gaps
    between launches and the host's work count, as they do for GPU MODE. ``flush_l2`` overwrites the
    L2 cache before each call, outside the timed region. On a CPU: the clock around the call. Stops
    after ``max_runs`` calls, ten seconds, or once the standard error of the mean is 0.1 %.
    """
    timed = timer(call, device)
    scrub = l2_scrubber(device) if flush_l2 else None
    for _ in range(WARM_UP):
        call()
    samples: list[float] = []
    deadline = _clock() + TIME_LIMIT_S
    while len(samples) < max_runs:
        if scrub is not None:
            scrub()
        samples.append(timed())
        if len(samples) >= MIN_RUNS and (_clock() > deadline or _is_settled(samples)):
            break
    return samples


def timer(call, device) -> Callable[[], float]:
    if torch.device(device).type != "cuda":

        def timed():
            start = _clock()
            call()
            return (_clock() - start) * 1e6

        return timed

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed():
        torch.cuda.synchronize()
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3

    return timed


def l2_scrubber(device) -> Callable[[], object]:
    """Write twice the size of the L2 cache, so that nothing of the last call is left in it."""
    if torch.device(device).type != "cuda":
        raise ValueError("flush_l2 is for a GPU: a CPU's caches are not flushed here")
    size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    return torch.empty(size, dtype=torch.uint8, device=device).zero_


def _is_settled(samples: list[float]) -> bool:
    error = statistics.stdev(samples) / math.sqrt(len(samples))
    return error < STANDARD_ERROR * statistics.fmean(samples)


def summarise(samples: list[float]) -> dict:
    """mean, median, 20th and 80th percentile in microseconds, and the number of runs."""
    fifths = statistics.quantiles(samples, n=5, method="inclusive") if samples[1:] else samples * 4
    return {
        "mean_us": statistics.fmean(samples),
        "median_us": statistics.median(samples),
        "p20_us": fifths[0],
        "p80_us": fifths[3],
        "runs": len(samples),
    }


def processor() -> str:
    """The name of this machine's CPU, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def bench(
    names: Iterable[str],
    cases: Iterable[Case] = BENCHMARK_CASES,
    device: str = "cuda",
    protocols: Iterable[str] = PROTOCOLS,
    flush_l2: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> list[dict]:
    """Check, then time each rung on each case: rows of one run, with ``ROW_FIELDS``.

    Raises ValueError if a rung's result is wrong: a wrong result has no time.
    """
    names, protocols = list(names), list(protocols)
    max_runs = MAX_RUNS if torch.device(device).type == "cuda" else MIN_RUNS
    stamp = provenance(device)
    rows = []
    for case in cases:
        data = make_data(case, device)
        expected = check.exact(*data)
        for name in names:
            rung = rungs.load(name)
            compared = check.compare(rung.forward(*data[:2], rung.pack(data.weights)), expected)
            if not compared.ok:
                raise ValueError(
                    f"{name} is wrong on {case}: {compared}. Run: python -m trimul check {name}"
                )
            for protocol in protocols:
                call = caller(rung, data, protocol)
                samples = time_call(call, device, max_runs, flush_l2)
                rows.append(
                    {
                        "rung": name,
                        "case": case.as_dict(),
                        "protocol": protocol,
                        **summarise(samples),
                        "max_error": compared.max_error,
                        "l2_flushed": flush_l2,
                        **stamp,
                        "source_hash": digest.of_file(source.path_of(name)),
                    }
                )
                progress(f"{name:14} {case!s:36} {protocol:7} {rows[-1]['mean_us']:10.0f} us")
    return rows


def caller(rung, data, protocol: str) -> Callable[[], torch.Tensor]:
    """The call that a protocol times. Raises ValueError for an unknown protocol."""
    x, mask, weights = data
    if protocol == "call":
        return lambda: rung.forward(x, mask, rung.pack(weights))
    if protocol == "packed":
        packed = rung.pack(weights)
        return lambda: rung.forward(x, mask, packed)
    raise ValueError(f"protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")


def profile(name: str, case: Case, device: str = "cuda", calls: int = 5) -> dict:
    """What runs during one call of a rung: each kernel (or CPU operator) in order, with its time.

    Returns a document with ``kernels``, a list of ``{op, within, shapes, kernel, mean_us}`` in
    order (``within`` is the outermost operator, as the rung called it), means over ``calls`` calls,
    and ``span_us``, the mean time from the first kernel's start to the last one's end. On a CPU,
    ``kernel`` is the operator itself and its time is exclusive of others.
    """
    rung = rungs.load(name)
    call = caller(rung, make_data(case, device), "call")
    for _ in range(WARM_UP):
        call()
    runs = [_profile_once(call, device) for _ in range(calls)]
    kernels = [
        {**steps[0], "mean_us": statistics.fmean(step["us"] for step in steps)}
        for steps in zip(*(kernels for kernels, _ in runs), strict=True)
    ]
    for kernel in kernels:
        del kernel["us"]
    return {
        "kind": "profile",
        "rung": name,
        "case": case.as_dict(),
        **provenance(device),
        "source_hash": digest.of_file(source.path_of(name)),
        "span_us": statistics.fmean(span for _, span in runs),
        "kernels": kernels,
    }


def profile_table(document: dict) -> str:
    """A profile as text: microseconds, the operator as the rung called it, the kernel that ran."""
    kernels = document["kernels"]
    place = f"{document['gpu']}, {document['date'][:10]}" if document["gpu"] != "none" else "CPU"
    total = sum(kernel["mean_us"] for kernel in kernels)
    return "\n".join(
        [
            f"{document['rung']}, {Case(**document['case'])}, {place}: "
            f"{len(kernels)} steps, sum {total:.0f} us, end to end {document['span_us']:.0f} us",
            *(
                f"{k['mean_us']:10.1f} us  {k['within'] or k['op']:18}{k['kernel'][:72]}"
                for k in kernels
            ),
        ]
    )


def _profile_once(call, device) -> tuple[list[dict], float]:
    from torch.profiler import ProfilerActivity, profile

    on_gpu = torch.device(device).type == "cuda"
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    with profile(activities=activities, record_shapes=True) as recorded:
        call()
        if on_gpu:
            torch.cuda.synchronize()
    events = sorted(recorded.events(), key=lambda event: event.time_range.start)
    operators = [event for event in events if event.name.startswith("aten::")]
    if on_gpu:
        ran = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
        launched = [(k.name, k.duration, op) for op in operators for k in op.kernels]
        steps = []
        for event in ran:
            us = event.time_range.elapsed_us()
            same = [one for one in launched if one[0] == event.name and abs(one[1] - us) < 1e-3]
            if same:  # two launches may look alike, so each serves once
                launched.remove(same[0])
            operator = same[0][2] if same else None
            steps.append({**_who(operator), "kernel": event.name, "us": us})
    else:
        ran = operators
        steps = [{**_who(op), "kernel": op.name, "us": op.self_cpu_time_total} for op in operators]
    span = max(event.time_range.end for event in ran) - ran[0].time_range.start
    return steps, span


def _who(operator) -> dict:
    """The operator that launched a kernel, the outermost one it runs within, and its shapes."""
    if operator is None:
        return {"op": "", "within": "", "shapes": ""}
    outermost = operator
    while outermost.cpu_parent is not None and outermost.cpu_parent.name.startswith("aten::"):
        outermost = outermost.cpu_parent
    return {
        "op": operator.name.removeprefix("aten::"),
        "within": outermost.name.removeprefix("aten::"),
        "shapes": str(operator.input_shapes),
    }


def save(document: dict | list, path: Path | str) -> Path:
    """Write a document as JSON, whole or not at all. Raises FileExistsError: nothing is lost."""
    path = Path(path)
    refuse_to_replace(path)
    write_whole(path, json.dumps(document, indent=1) + "\n")
    return path


def refuse_to_replace(path: Path | str) -> None:
    """Raises FileExistsError if there is a file already: ask before measuring for a minute."""
    if Path(path).exists():
        raise FileExistsError(f"{path} exists and is kept: choose another name, or move it away")


def document(rows: list[dict]) -> dict:
    """Rows of a benchmark as the document that ``save`` writes and ``stored`` finds."""
    return {"kind": "bench", "date": max((row["date"] for row in rows), default=""), "rows": rows}


def stored(kind: str, folder: Path | str = RESULTS) -> list[dict]:
    """The committed documents of one kind ("bench", "check", "profile", "machine"), by date.

    Raises StoredDataError, naming the file, for one that cannot be read.
    """
    if not Path(folder).is_dir():
        raise StoredDataError(f"{folder} is not here: run this from a checkout of the course")
    documents = []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            document = json.loads(path.read_text())
            if document["kind"] == kind:
                documents.append(document)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoredDataError(
                f"{path} is not a result file ({error!r}): restore it from the repository"
            ) from None
    return sorted(documents, key=lambda document: document["date"])


def recorded_rows(folder: Path | str = RESULTS) -> list[dict]:
    """All committed rows of benchmarks, oldest run first.

    Raises StoredDataError for a row that lacks a field.
    """
    rows = [row for document in stored("bench", folder) for row in document["rows"]]
    for row in rows:
        missing = [field for field in ROW_FIELDS if field not in row]
        if missing:
            raise StoredDataError(f"a row of run {row.get('run')} lacks {', '.join(missing)}")
    return rows


def newest_run(rows: list[dict]) -> list[dict]:
    """The rows of the latest run among these; none of none."""
    last = max(rows, key=lambda row: row["date"], default={"run": None})["run"]
    return [row for row in rows if row["run"] == last]


def select(rows: Iterable[dict], case: Case | None = None, **fields) -> list[dict]:
    """The rows of a case (its seed aside) whose fields have the given values."""
    wanted = dict(fields) if case is None else {**fields, "case": case.as_dict()}
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def ratio(slow: dict, fast: dict, field: str = "mean_us") -> float:
    """How many times longer one row took than another of the same run.

    Raises ValueError for rows of two runs: clocks, temperature and versions differ between runs.
    """
    if slow["run"] != fast["run"]:
        raise ValueError(
            f"these rows come from two runs ({slow['gpu']} {slow['date']} and "
            f"{fast['gpu']} {fast['date']}): measure both in one"
        )
    return slow[field] / fast[field]


def geometric_mean(values: Iterable[float]) -> float:
    """The score of the contest over the seven benchmark cases."""
    return statistics.geometric_mean(values)
