"""Lesson 04: the toy GPU keeps time, profiles add up, the charts draw what they are given."""

import copy
import math

import pytest
from drawn import words
from matplotlib.colors import same_color

from trimul import measure, profiles, roofline, submission
from trimul.exercises import WrongAnswer, attempt
from trimul.figures import timing
from trimul.figures.style import BOUND, COLOURS
from trimul.problem import Case, operator
from trimul.toy_gpu import Span, ToyGPU

H200 = roofline.HARDWARE["H200"]


def line(axes, index):
    return [tuple(point) for point in axes.lines[index].get_xydata().tolist()]


# --- the toy GPU -------------------------------------------------------------------------------


@pytest.fixture
def gpu():
    """A warm ToyGPU with an empty queue and an empty log, its clock at 0."""
    gpu = ToyGPU(launch_us=5, compile_us=1000)
    gpu.launch("k", 1)
    gpu.synchronize()
    gpu.log.clear()
    gpu.now, gpu._idle_from = 0.0, 0.0
    return gpu


def test_a_launch_returns_at_once_and_kernels_follow_one_another(gpu):
    gpu.launch("k", 20)
    gpu.launch("k", 30)
    assert gpu.now == 10
    gpu.synchronize()
    assert gpu.now == 5 + 20 + 30
    assert [span for span in gpu.log if span.where == "device"] == [
        Span("device", "k", 5, 25),
        Span("device", "k", 25, 55),
    ]
    assert gpu.log[-1] == Span("host", "wait", 10, 55)


def test_a_kernel_waits_for_its_launch(gpu):
    gpu.launch("k", 2)
    gpu.launch("k", 2)
    gpu.synchronize()
    assert gpu.now == 12
    gpu.synchronize()  # nothing to wait for
    assert gpu.now == 12 and [span.what for span in gpu.log].count("wait") == 1


def test_a_kernel_is_compiled_once(gpu):
    gpu.launch("new", 1)
    assert gpu.now == 1005
    gpu.launch("new", 1)
    assert gpu.now == 1010


def test_events_measure_the_device_and_not_the_host(gpu):
    gpu.launch("older", 0)
    gpu.launch("k", 100)
    start, end = gpu.event(), gpu.event()
    with pytest.raises(RuntimeError, match="record both"):
        start.elapsed_us(end)
    start.record()
    gpu.launch("k", 40)
    end.record()
    with pytest.raises(RuntimeError, match="synchronize first"):
        start.elapsed_us(end)
    gpu.synchronize()
    assert start.elapsed_us(end) == 40


# --- profiles ----------------------------------------------------------------------------------


@pytest.fixture
def profile():
    newest = max(measure.stored("profile"), key=lambda document: document["case"]["n"])
    return copy.deepcopy(newest)


def test_the_steps_hold_every_kernel_once(profile):
    steps = profiles.steps(profile, H200)
    assert sum(step.us for step in steps) == pytest.approx(profiles.total_us(profile))
    assert [step.us for step in steps] == sorted((step.us for step in steps), reverse=True)
    assert sum(step.flops for step in steps) == operator(Case(n=1024)).flops
    number = {step.name: step.operators for step in steps}
    assert number == {
        "layout copies": 3,
        "six projections": 6,
        "contraction": 1,
        "two LayerNorms": 2,
        "mask and gate products": 5,
        "three sigmoids": 3,
    }


def test_bounds_of_the_steps_by_hand(profile):
    found = {step.name: step for step in profiles.steps(profile, H200)}
    tensor = 4 * 1024**2 * 128
    assert found["layout copies"].bytes == 3 * 2 * tensor
    assert found["layout copies"].bound_us == pytest.approx(6 * tensor / 4.8e12 * 1e6)
    assert found["contraction"].flops == 2 * 1024**3 * 128
    assert found["contraction"].bound_us == pytest.approx(2 * 1024**3 * 128 / 67e12 * 1e6)
    half = {step.name: step for step in profiles.steps(profile, H200, "fp16")}
    assert half["contraction"].bound_us == pytest.approx(3 * tensor / 4.8e12 * 1e6)


def test_a_longer_kernel_lengthens_its_own_step(profile):
    before = {step.name: step.us for step in profiles.steps(profile, H200)}
    (product,) = (k for k in profile["kernels"] if k["op"] == "bmm")
    product["mean_us"] += 1e6
    after = profiles.steps(profile, H200)
    assert after[0].name == "contraction"
    for step in after:
        extra = 1e6 if step.name == "contraction" else 0
        assert step.us == pytest.approx(before[step.name] + extra)


def test_an_operator_without_a_step_is_named(profile):
    profile["kernels"][0]["op"] = "softmax"
    with pytest.raises(ValueError, match="'softmax': add it to profiles.STEPS"):
        profiles.steps(profile, H200)


def test_ceilings_are_the_fastest_product_and_the_fastest_copy_beyond_l2():
    copies = [(4, 9e12), (400, 9e12), (401, 3e12), (800, 4e12), (900, 2e12)]
    products = [("fp32", 1e12), ("fp32", 5e12), ("fp32", 3e12), ("fp16", 7e12)]
    machine = {
        "gpu": "G",
        "date": "2026-01-02T03:04:05Z",
        "l2_bytes": 100,
        "copy_bandwidth": [{"bytes": size, "bytes_per_s": rate} for size, rate in copies],
        "matmul_rate": [{"kind": kind, "flop_per_s": rate} for kind, rate in products],
    }
    ceilings = roofline.measured(machine, H200)
    assert (ceilings.name, ceilings.source) == ("G", "measured, 2026-01-02")
    assert ceilings.bandwidth == 4e12
    assert ceilings.flops == {"fp32": 5e12, "fp16": 7e12}
    assert ceilings.processors == H200.processors


# --- figures -----------------------------------------------------------------------------------


def test_the_timeline_draws_each_span_and_clock():
    log = [
        Span("host", "launch", 100, 105),
        Span("host", "wait", 105, 205),
        Span("device", "product", 105, 205),
    ]
    (axes,) = timing.timeline(log, {"early": (100, 105), "right": (100, 205)}).axes
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches[:3]]
    assert bars == [(0, 5), (5, 100), (5, 100)]  # from the first span on
    heights = [bar.get_y() + bar.get_height() / 2 for bar in axes.patches[:3]]
    assert heights[0] == heights[1] > heights[2]
    shown = words(axes)
    assert {"launch", "wait", "product", "early: 5 µs", "right: 105 µs"} <= set(shown)


def test_the_timeline_names_short_spans_once():
    log = [Span("device", "k", 10.0 * i, 10.0 * i + 1) for i in range(5)]
    (axes,) = timing.timeline(log, {"c": (0, 41)}).axes
    assert words(axes).count("k") == 1 and len(axes.patches) >= 5


def test_spread_is_relative_to_the_median():
    rows = [
        {"case": {"n": 8}, "us": [10.0, 30.0, 20.0]},
        {"case": {"n": 16}, "us": [4000.0, 2000.0, 1000.0, 2000.0]},
    ]
    left, right = timing.spread(rows).axes
    assert line(left, 0) == [(1, 0.5), (2, 1.5), (3, 1.0)]
    assert line(right, 0) == [(1, 2.0), (2, 1.0), (3, 0.5), (4, 1.0)]
    assert (left.get_title(), right.get_title()) == ("N=8: median 20 µs", "N=16: median 2.0 ms")


def test_caches_draws_rates_of_copies_only():
    mib = 2**20
    rows = [
        {"what": "copy", "bytes": mib * size, "warm_us": 1.0 * size, "flushed_us": 2.0 * size}
        for size in (1, 2, 4)
    ]
    other = {"what": "einsum", "bytes": 9 * mib, "warm_us": 1, "flushed_us": 1}
    (axes,) = timing.caches([*rows, other], 3 * mib).axes
    assert line(axes, 0) == [(size, pytest.approx(mib / 1e6)) for size in (1, 2, 4)]
    assert line(axes, 1) == [(size, pytest.approx(mib / 2e6)) for size in (1, 2, 4)]
    assert axes.lines[2].get_xdata()[0] == 3
    assert words(axes) == ["still in L2", "L2 flushed", "  L2: 3 MiB"]


def test_gaps_draws_events_launching_and_kernels():
    rows = [{"n": n, "event_us": n + 1, "host_us": n + 2, "kernel_us": n + 3} for n in (16, 32, 64)]
    (axes,) = timing.gaps(rows).axes
    for index, more in enumerate((1, 2, 3)):
        assert line(axes, index) == [(n, n + more) for n in (16, 32, 64)]
    assert words(axes) == ["events on an idle GPU", "launching, on the host", "sum of its kernels"]


def test_profile_bars_show_share_and_bound():
    steps = [
        profiles.Step("layout copies", 75.0, 30.0, 1, 0, 1),
        profiles.Step("contraction", 25.0, 24.5, 1, 1, 1),
    ]
    (axes,) = timing.profile_bars(steps).axes
    assert [bar.get_width() for bar in axes.patches] == [75.0, 25.0]
    assert same_color(axes.patches[1].get_facecolor(), COLOURS["out"])
    assert [line(axes, i)[0][0] for i in (0, 1)] == [30.0, 24.5]
    assert {"75%, 2.5 x its bound", "25%, at its bound"} <= set(words(axes))
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["layout copies", "contraction"]


def test_the_roofline_puts_points_where_they_were_measured():
    case = Case(n=1024)
    measured = roofline.replace(H200, bandwidth=4e12, flops={**H200.flops, "fp16": 800e12})
    (axes,) = timing.roofline(measured, H200, {"here": (30.0, 2e13)}, case).axes
    dots = {
        line.get_marker(): line.get_xydata().tolist()
        for line in axes.lines
        if line.get_marker() == "o"
    }
    assert dots == {"o": [[30.0, 2e13]]}
    roofs = {tuple(l.get_ydata()) for l in axes.lines if len(l.get_xdata()) == 2}  # noqa: E741
    assert (800e12, 800e12) in roofs and (H200.flops["fp16"],) * 2 in roofs
    slopes = [y1 for y0, y1 in roofs if y0 == 4 * 4e12]
    assert max(slopes) == 800e12
    shown = words(axes)
    assert {"here", "fp16 800 TFLOP/s", "memory 4.0 TB/s", "the operator"} <= set(shown)
    diamonds = [dot for dot in axes.lines if dot.get_marker() == "D"]
    assert len(diamonds) == 2 and all(same_color(dot.get_color(), BOUND) for dot in diamonds)


def test_floors_lie_on_or_below_the_roof():
    case = Case(n=1024)
    points = timing.floor_points(H200, case)
    flops = operator(case).flops
    intensity, rate = points["the operator"]
    assert intensity == operator(case).intensity and rate == pytest.approx(H200.flops["fp16"])
    intensity, rate = points["three kernels"]
    assert flops / rate == pytest.approx(roofline.floors(case, H200).three_kernels)
    assert rate < min(H200.flops["fp16"], intensity * H200.bandwidth) * (1 + 1e-9)


# --- a function as a contest's file ------------------------------------------------------------

FACTOR, SEEN = 3, {"a": "tensor too large for a file"}


def helper(value):
    return math.floor(value) * FACTOR


def kernel(data):
    def inner(value):
        SEEN[value] = helper(value)
        return SEEN

    return inner(data)


def test_a_function_is_written_with_what_it_names(tmp_path):
    names = {}
    exec(submission.write(kernel, tmp_path).read_text(), names)
    assert names["custom_kernel"](2.5) == {2.5: 6}  # containers start empty
    assert "a" in SEEN and names["math"] is math
    assert "Case" not in names


THING = object()


def uses_a_thing(data):
    return THING


def test_what_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ValueError, match="THING cannot be written.*define it inside"):
        submission.write(uses_a_thing, tmp_path)


def wrong(data):
    return data[0] * 0


def test_the_grader_judges_a_function():
    found = submission.judged(wrong)
    assert set(found) == {"strided", "values"} and "wrong values" in found["values"]
    with pytest.raises(KeyError, match="nothing replayed; it found .*wrong values"):
        found["replayed"]


# --- exercises ---------------------------------------------------------------------------------


def test_the_timer_may_use_events():
    def time_calls(gpu, call, runs):
        call()
        times = []
        for _ in range(runs):
            gpu.synchronize()
            start, end = gpu.event(), gpu.event()
            start.record()
            call()
            end.record()
            gpu.synchronize()
            times.append(start.elapsed_us(end))
        return times

    assert attempt("04.timer", time_calls)


@pytest.mark.parametrize(
    ("warm_up", "before", "after", "why"),
    [
        (False, True, True, "holds the compilation"),
        (True, False, True, "queue was not empty"),
        (True, True, False, "stopped before the device was done"),
    ],
)
def test_a_wrong_timer_is_told_what_it_lacks(warm_up, before, after, why):
    def time_calls(gpu, call, runs):
        times = []
        if warm_up:
            call()
        for _ in range(runs):
            if before:
                gpu.synchronize()
            start = gpu.now
            call()
            if after:
                gpu.synchronize()
            times.append(gpu.now - start)
        return times

    with pytest.raises(WrongAnswer, match=why):
        attempt("04.timer", time_calls)
