"""Bounds, floors and the traffic of a rung."""

import pytest

from trimul import roofline
from trimul.problem import BENCHMARK_CASES, Case, Stage, stages
from trimul.roofline import HARDWARE, Hardware, floors, traffic

TOY = Hardware(
    "toy", bandwidth=100.0, flops={"fp16": 1000.0}, l2=1, processors=1, clock=1, source=""
)


def test_the_larger_of_two_times_bounds():
    assert TOY.ridge() == 10
    memory, arithmetic = Stage("m", 1000, 150, 50), Stage("a", 4000, 100, 100)
    assert TOY.seconds(memory) == 2 and TOY.limit(memory) == "memory"
    assert TOY.seconds(arithmetic) == 4 and TOY.limit(arithmetic) == "arithmetic"


def test_floors_by_hand():
    case = Case(n=1024)
    measured = Hardware("H200", 4.3e12, {"fp16": 780e12}, 0, 132, 0, "")
    three = floors(case, measured).three_kernels
    project = (1024**2 * (512 + 4) + 3 * 1024**2 * 256) / 4.3e12
    contract = 2 * 1024**3 * 128 / 780e12
    output = (2 * 1024**2 * 256 + 1024**2 * 512) / 4.3e12
    assert three == pytest.approx(project + contract + output)
    assert floors(case, measured).operator == pytest.approx(481.04e9 / 780e12, rel=1e-3)


@pytest.mark.parametrize("case", BENCHMARK_CASES, ids=str)
@pytest.mark.parametrize("hardware", [h for k, h in HARDWARE.items() if k != "laptop"], ids=str)
def test_the_operators_floor_lies_below_that_of_three_kernels(case, hardware):
    both = floors(case, hardware)
    assert 0 < both.operator < both.three_kernels


def test_a_gpu_gets_its_own_figures_or_none():
    assert roofline.hardware_of("NVIDIA H200") is HARDWARE["H200"]
    assert roofline.hardware_of("NVIDIA H100 80GB HBM3") is HARDWARE["H100"]
    for other in ("NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA L4", "none"):
        assert roofline.hardware_of(other) is None


def test_traffic_of_the_reference():
    case = Case(n=1024)
    operators = traffic("einsum", case)
    assert sum(o.flops for o in operators) == sum(s.flops for s in stages(case))
    names = [o.name for o in operators]
    assert names.count("mm") == 6 and names.count("bmm") == 1
    assert names.count("native_layer_norm") == 2 and names.count("sigmoid") == 3
    bmm = operators[names.index("bmm")]
    assert bmm.bytes == stages(case, itemsize=4)[1].bytes
    assert not {"view", "permute", "_unsafe_view", "unsqueeze"} & set(names)


def test_traffic_is_counted_far_beyond_any_memory():
    operators = traffic("einsum", Case(n=65_536))
    assert max(o.bytes for o in operators) > 2**42


def test_what_computes_outside_pytorch_is_not_counted():
    with pytest.raises(ValueError, match="loops computes outside"):
        traffic("loops", Case(n=4))


def test_every_figure_names_its_source():
    for hardware in HARDWARE.values():
        assert len(hardware.source) > 20, hardware.name
    assert roofline.HARDWARE["H200"].bandwidth / roofline.HARDWARE["H100"].bandwidth == (
        pytest.approx(1.43, abs=0.01)
    )
