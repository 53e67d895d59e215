"""The models, the charts and the hardware figures that lesson 03 rests on."""

import copy
import math
import os
import subprocess
import sys

import numpy
import pytest
import torch
from matplotlib.figure import Figure

from trimul import measure, simulate
from trimul.figures import machine as draw
from trimul.roofline import HARDWARE
from trimul.simulate import IDLE, accumulate, busy, scheduler, sectors

H200 = HARDWARE["H200"]


@pytest.fixture
def recorded():
    documents = [d for d in measure.stored("machine") if d["gpu"] == "NVIDIA H200"]
    return copy.deepcopy(documents[-1])


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for axes in figure.axes for text in axes.texts)


# --- hardware ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype", "per_clock"),
    [
        ("A100", "fp16", 2048),
        ("A100", "bf16", 2048),
        ("A100", "tf32", 1024),
        ("H100", "fp16", 4096),
        ("H100", "bf16", 4096),
        ("H100", "tf32", 2048),
        ("H200", "fp16", 4096),
        ("H200", "bf16", 4096),
        ("H200", "tf32", 2048),
        ("B200", "fp16", 8192),
        ("B200", "bf16", 8192),
    ],
)
def test_a_tensor_rate_is_processors_times_flop_per_clock_times_clock(name, dtype, per_clock):
    assert HARDWARE[name].flops_per_clock(dtype) == pytest.approx(per_clock, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "lanes", "boost"),
    [("A100", 64, 1.41e9), ("H100", 128, 1.98e9), ("H200", 128, 1.98e9), ("B200", 128, 1.98e9)],
)
def test_the_fp32_rate_is_lanes_times_two_at_the_boost_clock(name, lanes, boost):
    hardware = HARDWARE[name]
    assert hardware.flops["fp32"] == pytest.approx(
        hardware.processors * lanes * 2 * boost, rel=5e-3
    )


def test_ridges_by_hand():
    ridges = {name: round(HARDWARE[name].ridge()) for name in ("A100", "H100", "H200", "B200")}
    assert ridges == {"A100": 153, "H100": 295, "H200": 206, "B200": 292}


def test_each_gpus_source_is_a_link():
    for name in ("H100", "H200", "A100", "B200"):
        assert "https://" in HARDWARE[name].source, name


def test_the_recorded_gpu_is_the_one_in_the_table(recorded):
    assert recorded["processors"] == H200.processors and recorded["l2_bytes"] == H200.l2
    assert draw.hbm_rate(recorded) < H200.bandwidth
    for row in recorded["matmul_rate"]:
        assert row["flop_per_s"] < H200.flops[row["kind"]], row


# --- models ------------------------------------------------------------------------------------


def test_the_scheduler_by_hand():
    assert scheduler(1, latency=2, work=2, cycles=8) == [0, 0, IDLE, IDLE, 0, 0, IDLE, IDLE]
    assert scheduler(2, latency=2, work=2, cycles=8) == [0, 0, 1, 1, 0, 0, 1, 1]
    assert scheduler(2, latency=3, work=1, cycles=8) == [0, 1, IDLE, IDLE, 0, 1, IDLE, IDLE]
    assert scheduler(3, latency=1, work=1, cycles=6) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(("latency", "work"), [(600, 20), (9, 3), (0, 4), (670, 40)])
def test_busy_is_littles_law(latency, work):
    for warps in (1, 2, 7, 18, 31, 64):
        assert busy(warps, latency, work) == pytest.approx(min(1, warps * work / (latency + work)))


def test_sectors_by_hand():
    lanes = numpy.arange(32)
    assert [sectors(lanes * stride * 4) for stride in (1, 2, 8, 128)] == [4, 8, 32, 32]
    assert sectors(lanes * 2) == 2 and sectors(lanes * 0) == 1
    assert sectors(lanes * 4 + 4) == 5, "a warp that starts inside a sector touches one more"


def test_a_sum_kept_in_fp16_loses_what_fp32_keeps():
    left = torch.full((1, 48), 1.0).half()
    right = torch.tensor([2048.0] + [0.0] * 15 + [1.0] + [0.0] * 15 + [1.0] + [0.0] * 15)
    right = right.half()[:, None]
    assert accumulate(left, right, torch.float32).item() == 2050
    assert accumulate(left, right, torch.float16).item() == 2048
    assert accumulate(left, right, torch.float16).dtype == torch.float64


def test_accumulate_takes_a_length_that_is_no_multiple_of_16():
    left, right = torch.ones(2, 21), torch.ones(21, 3)
    assert torch.equal(accumulate(left, right, torch.float32), torch.full((2, 3), 21.0).double())


# --- charts ------------------------------------------------------------------------------------


def test_the_memories_are_the_documents(recorded):
    levels = {level["name"]: level for level in draw.memory_levels(recorded)}
    assert levels["registers"]["bytes"] == 132 * 256 * 2**10
    assert levels["L1 / shared"]["rate"] == "33 TB/s" and levels["registers"]["rate"] == "401 TB/s"
    assert (
        levels["HBM"]["rate"] == f"{recorded['copy_bandwidth'][-1]['bytes_per_s'] / 1e12:.1f} TB/s"
    )
    shown = texts(draw.memories(recorded))
    assert "TB/s" in shown and "132 x 256 KiB" in shown
    for row in recorded["load_latency"]:
        row["ns"] = 777.0
    assert "777 ns" not in shown and texts(draw.memories(recorded)).count("777 ns") == 3


def test_the_l2s_rate_is_a_lower_bound_from_the_copy(recorded):
    row = next(row for row in recorded["copy_bandwidth"] if row["bytes"] == 2**24)
    row["bytes_per_s"] = 4.19e12
    levels = {level["name"]: level["rate"] for level in draw.memory_levels(recorded)}
    assert levels["L2"] == "over 4.1 TB/s"


def test_the_chase_follows_the_chain():
    pytest.importorskip("triton", reason="Triton has wheels for Linux only")
    code = """
import torch
from trimul.machine_kernels import chase
chain, end = torch.tensor([3, 0, 1, 2], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
chase[(1,)](chain, end, 2)
assert end.item() == 3, end
"""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


def test_the_processor_has_as_many_boxes_as_the_table():
    def boxes(name):
        return len(draw.processor(HARDWARE[name]).axes[0].patches)

    assert boxes("H200") - boxes("A100") == 132 - 108


def test_the_timelines_come_from_the_simulator():
    figure = draw.warp_timelines([1, 4], latency=60, work=4)
    assert [axes.get_title(loc="left").split(":")[0] for axes in figure.axes] == [
        "1 warp",
        "4 warps",
    ]
    assert f"{simulate.busy(4, 60, 4):.0%}" in figure.axes[1].get_title(loc="left")
    drawn = sum(path.get_extents().width for path in figure.axes[1].collections[-1].get_paths())
    issued = scheduler(4, 60, 4, 3 * 64)
    assert drawn == len(issued) - issued.count(IDLE)


def test_bytes_in_flight_are_drawn_from_the_document(recorded):
    def points(document):
        lines = draw.in_flight(document, H200).axes[0].lines
        return sorted(y for line in lines if line.get_marker() in "os" for y in line.get_ydata())

    halves = sorted(row["bytes_per_s"] / 2e12 for row in recorded["bytes_in_flight"])
    assert points(recorded) == pytest.approx(halves)
    recorded["bytes_in_flight"][0]["bytes_per_s"] *= 1.5
    assert points(recorded) != pytest.approx(halves)


def test_littles_line_bends_where_latency_times_bandwidth_says(recorded):
    slope, roof, *_ = draw.in_flight(recorded, H200).axes[0].lines
    corner = H200.bandwidth / 2 * draw.latency_ns(recorded, 256 * 2**20) * 1e-9
    assert slope.get_xdata()[1] == roof.get_xdata()[0] == pytest.approx(corner)
    assert list(roof.get_ydata()) == [H200.bandwidth / 2e12] * 2 == [slope.get_ydata()[1]] * 2
    x, y = slope.get_xdata()[0], slope.get_ydata()[0]
    assert y * 1e12 * draw.latency_ns(recorded, 256 * 2**20) * 1e-9 == pytest.approx(x)


def test_distance_shows_both_machines(recorded):
    here = [{"bytes": 2**16, "bytes_per_s": 5e10}, {"bytes": 2**25, "bytes_per_s": 1e10}]
    rates, waits = draw.distance(recorded, here).axes
    assert list(rates.lines[0].get_ydata()) == [
        row["bytes_per_s"] / 1e12 for row in recorded["copy_bandwidth"]
    ]
    assert list(rates.lines[1].get_ydata()) == [0.05, 0.01]
    assert list(waits.lines[0].get_ydata()) == [row["ns"] for row in recorded["load_latency"]]


def test_sectors_are_drawn_one_by_one():
    assert len(draw.sectors([1]).axes[0].patches) == 2 * 4
    figure = draw.sectors([2, 128])
    assert len(figure.axes[0].patches) == 2 * (8 + 32)
    assert "stride 128: 32 sectors" in texts(figure)
    full, used = figure.axes[0].patches[-2:]
    assert used.get_height() / full.get_height() == pytest.approx(1 / 8)


def test_the_tile_counts_its_own_flops():
    assert "4096 FLOP" in texts(draw.tensor_core_tile())
    figure = draw.tensor_core_tile(8, 8, 4)
    assert "512 FLOP" in texts(figure) and len(figure.axes[0].patches) == 32 + 32 + 64


def test_rates_are_the_best_of_each_type(recorded):
    bars = [bar.get_height() for bar in draw.matmul_rates(recorded, H200).axes[0].patches]
    best = [
        max(row["flop_per_s"] for row in recorded["matmul_rate"] if row["kind"] == kind) / 1e12
        for kind in ("fp32", "tf32", "fp16", "bf16")
    ]
    assert bars == pytest.approx(best) and math.isclose(bars[2] / bars[1], 1.9, rel_tol=0.1)
