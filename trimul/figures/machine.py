"""How a GPU runs code: its parts, the warps that hide latency, its memory, its arithmetic."""

from __future__ import annotations

import math

from matplotlib import pyplot
from matplotlib.patches import Rectangle

from trimul import simulate
from trimul.figures.style import BOUND, COLOURS, FAINT, INK, canvas, house_style
from trimul.roofline import Hardware

KIB, MIB, GIB = 2**10, 2**20, 2**30

# What one Hopper SM holds. Source: NVIDIA H100 Tensor Core GPU Architecture whitepaper.
REGISTERS = 256 * KIB
SHARED = 256 * KIB  # L1 cache and shared memory together; up to 228 KiB of it as shared memory
SHARED_PER_CLOCK = 128  # bytes; 32 banks of 4 bytes
SCHEDULERS = 4
WARPS = 64  # that an SM can hold at once
LANES = 128  # fp32 multiply-adds per clock
BOOST = 1.98e9  # Hz, of the H100 and H200: 66.9 TFLOP/s of fp32 / (132 SMs x 128 lanes x 2)

_NEAR, _FAR = COLOURS["left"], COLOURS["right"]
_STORE = "#e8eef6"


def processor(hardware: Hardware):
    """The GPU as a grid of SMs around one L2, and one Hopper SM opened up."""
    with house_style():
        figure, axes = canvas(8, 4.2, x=(-0.5, 80.5), y=(-0.5, 42.5))
    _box(axes, 0, 0, 27, 42, "none")
    axes.text(1, 39.4, f"the GPU: {hardware.processors} SMs", weight="bold")
    columns = 12
    for index in range(hardware.processors):
        row, column = divmod(index, columns)
        shade = _NEAR if index == columns - 1 else FAINT
        _box(axes, 1.5 + 2 * column, 36 - 2 * row, 1.6, 1.6, shade)
    _box(axes, 1.5, 7.5, 24, 6, _STORE, f"L2 cache, {hardware.l2 // MIB} MiB")
    _box(axes, 1.5, 1, 24, 5, _STORE, "HBM")
    axes.plot([25.1, 32], [37.6, 42], [25.1, 32], [36, 0], color=_NEAR, lw=0.8)

    _box(axes, 32, 0, 48, 42, "none", edge=_NEAR)
    axes.text(33, 39.4, "one SM: four partitions and a shared store", weight="bold")
    for part in range(SCHEDULERS):
        left = 33 + 11.6 * part
        _box(axes, left, 12, 11, 26, "white")
        rows = (
            (31.5, 5.5, FAINT, f"scheduler\n{WARPS // SCHEDULERS} warps"),
            (24.5, 6, _STORE, f"registers\n{REGISTERS // SCHEDULERS // KIB} KiB"),
            (19, 4.5, "white", f"{LANES // SCHEDULERS} lanes"),
            (13, 5, _FAR, "tensor\ncore"),
        )
        for bottom, height, shade, label in rows:
            _box(axes, left + 0.7, bottom, 9.6, height, shade, label, size=8)
    _box(axes, 33, 1, 45.8, 9.5, _STORE, f"L1 cache and shared memory, {SHARED // KIB} KiB")
    return figure


def memories(machine: dict):
    """The four memories of a Hopper GPU as areas to one scale, with their bandwidth and latency.

    ``machine`` is a stored document of kind "machine"; ``memory_levels`` says what comes from it.
    """
    levels = memory_levels(machine)
    with house_style():
        figure, axes = canvas(8, 3.4, x=(0, 80), y=(3, 37))
    per_side = math.sqrt(machine["l2_bytes"]) / 15  # bytes per unit of area, squared
    left = 1.0
    for level in levels[:3]:
        side = math.sqrt(level["bytes"]) / per_side
        if level["pieces"] > 1:
            columns, rows = 12, machine["processors"] / 12
            width, height = side / columns, side / rows
            for index in range(level["pieces"]):
                row, column = divmod(index, columns)
                at = (left + column * width, 15 + row * height)
                _box(axes, *at, 0.82 * width, 0.82 * height, _NEAR, edge="none")
        else:
            _box(axes, left, 15, side, side, _NEAR, edge="none")
        _caption(axes, left, level)
        left += 20.5
    _box(axes, left, 15, 80, 80, _FAR, edge="none")
    times = math.sqrt(levels[3]["bytes"] / levels[2]["bytes"])
    axes.text(
        left + 1, 26, f"goes on:\n{times:.0f} times as wide\nas the L2", weight="bold", va="center"
    )
    _caption(axes, left, levels[3])
    return figure


def _caption(axes, left, level):
    pieces = f"{level['pieces']} x {level['bytes'] / level['pieces'] / KIB:.0f} KiB"
    size = pieces if level["pieces"] > 1 else _bytes(level["bytes"])
    lines = (size, level["rate"], level["latency"])
    axes.text(left, 12.5, level["name"], weight="bold", va="center")
    axes.text(left, 9.8, "\n".join(lines), va="top", linespacing=1.5)


def memory_levels(machine: dict) -> list[dict]:
    """Name, bytes, pieces, rate and latency (both as text) of registers, L1/shared, L2 and HBM.

    Registers: three fp32 operands read per lane and clock. Shared memory: 128 bytes per clock and
    SM. Both at the boost clock. L2: a copy of 16 MiB, a lower bound as its launch takes nearly as
    long. HBM: the copy (read plus write) of the largest array. Latencies: the measured chains that
    fit (16 KiB, 16 MiB, 256 MiB).
    """
    count = machine["processors"]
    shared = count * SHARED_PER_CLOCK * BOOST
    registers = count * LANES * 3 * 4 * BOOST
    l2 = f"over {math.floor(copy_rate(machine, 16 * MIB) / 1e11) / 10} TB/s"
    hbm = _rate(hbm_rate(machine))
    rows = (
        ("registers", REGISTERS * count, count, _rate(registers), "no load needed"),
        ("L1 / shared", SHARED * count, count, _rate(shared), _latency(machine, 16 * KIB)),
        ("L2", machine["l2_bytes"], 1, l2, _latency(machine, 16 * MIB)),
        ("HBM", machine["memory_bytes"], 1, hbm, _latency(machine, 256 * MIB)),
    )
    keys = ("name", "bytes", "pieces", "rate", "latency")
    return [dict(zip(keys, row, strict=True)) for row in rows]


def latency_ns(machine: dict, size: int) -> float:
    """The measured nanoseconds of a dependent load within ``size`` bytes."""
    return next(row["ns"] for row in machine["load_latency"] if row["bytes"] == size)


def copy_rate(machine: dict, size: int) -> float:
    """The measured bytes per second, read plus written, of copying ``size`` bytes."""
    rows = machine["copy_bandwidth"]
    return next(row["bytes_per_s"] for row in rows if row["bytes"] == size)


def hbm_rate(machine: dict) -> float:
    """The measured bytes per second of copying the largest array."""
    return copy_rate(machine, max(row["bytes"] for row in machine["copy_bandwidth"]))


def _latency(machine, size):
    return f"{latency_ns(machine, size):.0f} ns a load"


def warp_timelines(warps: list[int], latency: int, work: int):
    """What one scheduler does with each number of warps, drawn from ``simulate.scheduler``."""
    cycles = 3 * (latency + work)
    heights = [count + 2.5 for count in warps]
    with house_style():
        figure, panels = pyplot.subplots(
            len(warps),
            1,
            figsize=(7.5, 0.16 * sum(heights) + 0.9),
            sharex=True,
            height_ratios=heights,
        )
    for axes, count in zip(panels, warps, strict=True):
        issued = simulate.scheduler(count, latency, work, cycles)
        for warp in range(count):
            axes.hlines(warp, 0, cycles, color=FAINT, lw=1, zorder=0)
            _spans(axes, issued, lambda who, warp=warp: who == warp, warp, _NEAR)
        _spans(axes, issued, lambda who: who != simulate.IDLE, count + 0.6, INK)
        share = simulate.busy(count, latency, work)
        axes.set(ylim=(count + 1.3, -0.8), yticks=[count + 0.6], yticklabels=["scheduler"])
        axes.set_title(
            f"{count} warp{'s' * (count > 1)}: the scheduler issues in {share:.0%} of the cycles",
            loc="left",
            fontsize=10,
        )
        axes.grid(False)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(left=False, bottom=axes is panels[-1])
    panels[-1].set_xlabel(f"cycles ({work} to issue, then {latency} waiting for a load)")
    return figure


def _spans(axes, issued, wanted, y, colour):
    spans, start = [], None
    for cycle, who in enumerate([*issued, simulate.IDLE - 1]):
        if wanted(who) and who >= 0 and start is None:
            start = cycle
        elif start is not None and not (wanted(who) and who >= 0):
            spans.append((start, cycle - start))
            start = None
    axes.broken_barh(spans, (y - 0.38, 0.76), color=colour, lw=0)


def in_flight(machine: dict, hardware: Hardware):
    """Read bandwidth of a copy against the bytes it keeps on their way, with Little's line."""
    rows = sorted(machine["bytes_in_flight"], key=lambda row: row["in_flight"])
    latency = latency_ns(machine, 256 * MIB)
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7, 3.8))
    low, high = rows[0]["in_flight"] / 1.6, rows[-1]["in_flight"] * 1.6
    roof = hardware.bandwidth / 2 / 1e12
    corner = hardware.bandwidth / 2 * latency * 1e-9
    axes.plot([low, corner], [low / latency / 1e3, roof], "--", color=BOUND)
    axes.plot([corner, high], [roof, roof], "--", color=BOUND)
    for piece, marker in ((512, "o"), (2048, "s")):
        some = [row for row in rows if row["in_flight"] == row["programs"] * piece * 4]
        axes.plot(
            [row["in_flight"] for row in some],
            [row["bytes_per_s"] / 2e12 for row in some],
            marker,
            color=_NEAR,
            fillstyle="full" if piece == 512 else "none",
            ms=7,
        )
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    _byte_ticks(axes, [2**k for k in range(18, 26)], low, high)
    axes.set(xlabel="bytes in flight", ylabel="read, TB/s", title=_origin(machine))
    axes.set_ylim(top=1.6 * roof)
    _plain_ticks(axes, (0.1, 0.2, 0.5, 1, 2, 4))
    _note(axes, 0.02, 0.8, f"no faster than\nbytes in flight\n/ {latency:.0f} ns")
    _note(axes, 0.38, 0.9, "no faster than half of the datasheet's bandwidth: the rest writes")
    return figure


def distance(machine: dict, here: list[dict]):
    """Copy bandwidth by size on this CPU (``here``) and on the GPU, and the GPU's load latency."""
    with house_style():
        figure, (rates, waits) = pyplot.subplots(1, 2, figsize=(8, 3.6), width_ratios=(3, 2))
    curves = ((machine["copy_bandwidth"], _NEAR, "o", "the GPU"), (here, _FAR, "s", "your CPU"))
    for rows, colour, marker, label in curves:
        sizes, values = ([row[k] for row in rows] for k in ("bytes", "bytes_per_s"))
        rates.plot(sizes, [v / 1e12 for v in values], marker + "-", color=colour, ms=4)
        top = max(zip(values, sizes, strict=True))
        at = (top[1], top[0] / 1e12)
        rates.annotate(label, at, (0, 8), textcoords="offset points", ha="right", color=colour)
    rates.set(xscale="log", yscale="log", xlabel="size of the array", ylabel="copied, TB/s")
    rates.set_ylim(top=2 * rates.get_ylim()[1])
    rates.axvline(machine["l2_bytes"] / 2, color=INK, lw=0.8, ls=":")
    edge = (machine["l2_bytes"] / 2, 0.55)
    rates.annotate(
        "two arrays\nfill the L2",
        edge,
        (4, 0),
        xycoords=rates.get_xaxis_transform(),
        textcoords="offset points",
        fontsize=8,
    )
    _plain_ticks(rates, (0.001, 0.01, 0.1, 1, 10))
    rates.set_title("bandwidth", loc="left")
    rows = machine["load_latency"]
    waits.plot([r["bytes"] for r in rows], [r["ns"] for r in rows], "o-", color=_NEAR, ms=4)
    waits.set(xscale="log", xlabel="bytes that the chain spans", ylabel="ns per dependent load")
    waits.set_ylim(0)
    waits.axvline(machine["l2_bytes"], color=INK, lw=0.8, ls=":")
    waits.text(machine["l2_bytes"] / 1.25, 0, "L2 ends", ha="right", va="bottom", fontsize=8)
    waits.set_title("latency (the GPU)", loc="left")
    for axes in (rates, waits):
        low, high = axes.get_xlim()
        _byte_ticks(axes, [16 * KIB, MIB, 64 * MIB, GIB], low, high)
    return figure


def sectors(strides: list[int], itemsize: int = 4, lanes: int = 32):
    """The 32-byte sectors that a warp touches at each stride, in elements, and what it uses."""
    per_sector = simulate.SECTOR // itemsize
    height = 2.3 * len(strides)
    with house_style():
        figure, axes = canvas(7.5, 0.15 * height, x=(-17, 33), y=(-height, 0))
    for row, stride in enumerate(strides):
        bottom = -2.3 * row - 2
        touched = simulate.sectors([lane * stride * itemsize for lane in range(lanes)])
        used = min(per_sector, lanes / touched) / per_sector
        for index in range(touched):
            _box(axes, index, bottom, 0.86, 1.7, FAINT, edge="none")
            _box(axes, index, bottom, 0.86, 1.7 * used, _NEAR, edge="none")
        label = f"stride {stride}: {touched} sector{'s' * (touched > 1)}"
        axes.text(-0.6, bottom + 0.85, label, ha="right", va="center")
    return figure


def tensor_core_tile(m: int = 16, n: int = 8, k: int = 16):
    """What one warp-wide mma instruction multiplies: left [m, k] times right [k, n]."""
    with house_style():
        figure, axes = canvas(6.4, 3.6, x=(-9, 43), y=(-m - 1, k + 3))
    for rows, columns, x, y, name in (
        (m, k, 0, -m, "left"),
        (k, n, k + 2, 2, "right"),
        (m, n, k + 2, -m, "out"),
    ):
        for i in range(rows):
            for j in range(columns):
                _box(axes, x + j, y + i, 0.9, 0.9, COLOURS[name], edge="none")
    axes.text(
        -0.8, -m / 2, f"left, fp16\n{m} x {k}", ha="right", va="center", color=COLOURS["left"]
    )
    axes.text(k + n + 3, 2 + k / 2, f"right, fp16\n{k} x {n}", va="center", color="#9a5a12")
    axes.text(k + n + 3, -m / 2, f"out, fp32\n{m} x {n}", va="center", color=COLOURS["out"])
    axes.text(0, k / 2 + 1, f"{2 * m * n * k} FLOP\nin one instruction\nof one warp", va="center")
    return figure


def matmul_rates(machine: dict, hardware: Hardware):
    """Measured rate of the largest square products by type, beside the datasheet's peak."""
    rows = machine["matmul_rate"]
    kinds = [
        kind for kind in ("fp32", "tf32", "fp16", "bf16") if any(r["kind"] == kind for r in rows)
    ]
    best = [max(r["flop_per_s"] for r in rows if r["kind"] == kind) for kind in kinds]
    with house_style():
        figure, axes = pyplot.subplots(figsize=(7, 3.4))
    for place, (kind, rate) in enumerate(zip(kinds, best, strict=True)):
        axes.bar(place, rate / 1e12, 0.6, color=FAINT if kind == "fp32" else _NEAR)
        axes.text(
            place,
            rate / 1e12 / 2,
            f"{rate / 1e12:.0f}",
            ha="center",
            va="center",
            color=INK if kind == "fp32" else "white",
            weight="bold",
        )
        peak = hardware.flops[kind] / 1e12
        axes.plot([place - 0.38, place + 0.38], [peak, peak], "--", color=BOUND)
        axes.text(place, peak + 12, f"datasheet {peak:g}", ha="center", color=BOUND, fontsize=9)
    axes.set_xticks(
        range(len(kinds)),
        [f"{kind}\n{'CUDA cores' if kind == 'fp32' else 'tensor cores'}" for kind in kinds],
    )
    axes.set(
        ylabel="TFLOP/s",
        title=_origin(machine),
        ylim=(0, max(hardware.flops[k] for k in kinds) / 1e12 * 1.1),
    )
    axes.grid(axis="x", visible=False)
    return figure


def _box(axes, x, y, width, height, colour, label="", edge=INK, size=9):
    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor=edge, lw=0.8))
    if label:
        axes.text(x + width / 2, y + height / 2, label, ha="center", va="center", fontsize=size)


def _origin(machine: dict) -> str:
    return f"{machine['gpu']}, {machine['date'][:10]}"


def _note(axes, x, y, text):
    axes.text(x, y, text, transform=axes.transAxes, color=BOUND, fontsize=9, va="center")


def _plain_ticks(axes, values):
    low, high = axes.get_ylim()
    shown = [value for value in values if low <= value <= high]
    axes.set_yticks(shown, [f"{value:g}" for value in shown])
    axes.minorticks_off()
    axes.set_ylim(low, high)


def _rate(bytes_per_s: float) -> str:
    tera = bytes_per_s / 1e12
    return f"{tera:.0f} TB/s" if tera >= 10 else f"{tera:.1f} TB/s"


def _bytes(size: float) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.0f} {name}"
    return f"{size:.0f} B"


def _byte_ticks(axes, sizes, low, high):
    ticks = [size for size in sizes if low <= size <= high]
    axes.set_xticks(ticks, [_bytes(size) for size in ticks])
    axes.minorticks_off()
    axes.set_xlim(low, high)
