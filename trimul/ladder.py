"""The ladder at a glance: every rung on one page, measured here or as recorded."""

from __future__ import annotations

from collections.abc import Callable

from trimul import measure, roofline, rungs
from trimul.problem import BENCHMARK_CASES, Case

#: Small enough for five nested Python loops.
CPU_CASE = Case(n=16, dim=128, masked=True, seed=2000)


def measure_here(device: str, progress: Callable[[str], None] = lambda line: None) -> list[dict]:
    """Rows of every rung: on a GPU the seven benchmark cases, on a CPU one small case."""
    if device == "cpu":
        return measure.bench(rungs.NAMES, [CPU_CASE], "cpu", ["call"], progress=progress)
    names = [name for name in rungs.NAMES if not hasattr(rungs.load(name), "MAX_N")]
    return measure.bench(names, device=device, progress=progress)


def table(rows: list[dict]) -> str:
    """The rows of one run as text: times on a GPU, work and error on a CPU."""
    if not rows:
        return "nothing has been measured yet"
    return _cpu_table(rows) if rows[0]["gpu"] == "none" else _gpu_table(rows)


def newest() -> list[dict]:
    """The committed rows that the ladder shows: packing included, L2 left alone, newest run."""
    return measure.newest_run(
        measure.select(measure.recorded_rows(), protocol="call", l2_flushed=False)
    )


def recorded() -> str:
    """The ladder as committed."""
    return table(newest())


def origin(row: dict) -> str:
    """One line that says where and when a row was measured."""
    return (
        f"{row['gpu']}, {row['date'][:10]}, torch {row['torch']}, triton {row['triton']}, "
        f"driver {row['driver']}"
    )


def _gpu_table(rows: list[dict]) -> str:
    rows = measure.select(rows, protocol="call", l2_flushed=rows[0]["l2_flushed"])
    heads = [f"N{c.n} B{c.batch} D{c.dim}" for c in BENCHMARK_CASES]
    width = max(len(head) for head in heads) + 2
    lines = [
        f"{origin(rows[0])}: mean microseconds per call, packing included",
        f"{'rung':14}{'geomean':>10}" + "".join(f"{head:>{width}}" for head in heads),
    ]
    for name in dict.fromkeys(row["rung"] for row in rows):
        times = [measure.select(rows, case, rung=name)[0]["mean_us"] for case in BENCHMARK_CASES]
        score = measure.geometric_mean(times)
        lines.append(f"{name:14}{score:10.0f}" + "".join(f"{us:{width}.0f}" for us in times))
    return "\n".join(lines)


def _cpu_table(rows: list[dict]) -> str:
    case = Case(**rows[0]["case"])
    lines = [
        f"this machine's CPU, {case}; times on a CPU say nothing about a GPU",
        f"{'rung':14}{'largest error':>14}{'operators':>11}{'MB':>8}{'GFLOP':>8}{'CPU ms':>10}",
    ]
    for row in rows:
        try:
            operators = roofline.traffic(row["rung"], case)
            work = (
                f"{len(operators):11}{sum(o.bytes for o in operators) / 1e6:8.1f}"
                f"{sum(o.flops for o in operators) / 1e9:8.2f}"
            )
        except ValueError:
            work = f"{'Python':>11}{'-':>8}{'-':>8}"
        ms = row["mean_us"] / 1e3
        lines.append(f"{row['rung']:14}{row['max_error']:14.0e}{work}{ms:10.2f}")
    return "\n".join(lines)
