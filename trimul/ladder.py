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
    return measure.bench(rungs.at_full_size(), device=device, progress=progress)


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


def rung_times(rows: list[dict]) -> dict[str, list[float]]:
    """Rung -> mean microseconds on the seven benchmark cases, from rows of one run and protocol."""
    return {
        name: [measure.select(rows, case, rung=name)[0]["mean_us"] for case in BENCHMARK_CASES]
        for name in dict.fromkeys(row["rung"] for row in rows)
    }


def floor_times(gpu: str) -> dict[str, list[float]]:
    """Floor -> microseconds on the seven benchmark cases, by the datasheet of the GPU so named.

    Empty for a GPU that the hardware table does not have: no other GPU's floors stand in.
    """
    hardware = roofline.hardware_of(gpu)
    if hardware is None:
        return {}
    limits = [roofline.floors(case, hardware) for case in BENCHMARK_CASES]
    return {
        label: [getattr(limit, floor) * 1e6 for limit in limits]
        for label, floor in roofline.FLOORS.items()
    }


def _gpu_table(rows: list[dict]) -> str:
    rows = measure.select(rows, protocol="call", l2_flushed=rows[0]["l2_flushed"])
    floors = floor_times(rows[0]["gpu"])
    lines = rung_times(rows) | {f"floor: {label}": times for label, times in floors.items()}
    sizes = [(f"N{c.n}", f"B{c.batch} D{c.dim}", "masked" * c.masked) for c in BENCHMARK_CASES]
    heads = [
        f"{'geomean' * (row == 1):>45}" + "".join(f"{size[row]:>9}" for size in sizes)
        for row in range(3)
    ]
    body = [
        f"{name:36}{measure.geometric_mean(times):9.0f}" + "".join(f"{us:9.0f}" for us in times)
        for name, times in lines.items()
    ]
    first = f"{origin(rows[0])}: mean microseconds per call, packing included"
    return "\n".join(line.rstrip() for line in [first, *heads, *body])


def _cpu_table(rows: list[dict]) -> str:
    case = Case(**rows[0]["case"])
    lines = [
        f"this machine's CPU, {case}; times on a CPU say nothing about a GPU",
        f"{'rung':10}{'protocol':8}{'largest error':>14}{'operators':>11}{'MB':>8}{'GFLOP':>8}"
        f"{'CPU ms':>10}",
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
        ms = row["median_us"] / 1e3
        name = f"{row['rung']:10}{row['protocol']:8}"
        lines.append(f"{name}{row['max_error']:14.0e}{work}{ms:10.2f}")
    return "\n".join(lines)
