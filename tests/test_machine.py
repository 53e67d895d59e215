"""The experiments on the machine: their arithmetic on a fake time, and a run on this CPU."""

import sys
from types import SimpleNamespace

import pytest
import torch

from trimul import machine


@pytest.fixture
def ten_us(monkeypatch):
    """Every call takes 10 microseconds; the calls are made, and listed."""
    calls = []

    def median_us(call, device):
        calls.append((call(), device))
        return 10.0

    monkeypatch.setattr(machine, "_median_us", median_us)
    return calls


def test_a_copy_reads_and_writes_each_byte(ten_us):
    size = 2 * machine.MIB
    (row,) = machine.copy_bandwidth(sizes=[size])
    ((copies, device),) = ten_us
    assert device == "cpu" and len(copies) == 4  # 8 MiB in all
    assert row == {"bytes": size, "bytes_per_s": pytest.approx(2 * size * 4 / 10e-6)}
    assert copies[0].numel() * copies[0].element_size() == size
    assert copies[0].ne(0).any()


def test_a_copy_larger_than_the_budget_is_made_once(ten_us):
    machine.copy_bandwidth(sizes=[16 * machine.MIB])
    ((copies, _),) = ten_us
    assert len(copies) == 1


def test_a_matrix_product_has_two_flop_per_multiply_add(ten_us):
    rows = machine.matmul_rate(sizes=[4, 8])
    assert [(row["kind"], row["n"]) for row in rows] == [("fp32", 4), ("fp32", 8)]
    assert [row["flop_per_s"] for row in rows] == pytest.approx([128 / 10e-6, 1024 / 10e-6])
    assert [call[0].shape for call in ten_us] == [(4, 4), (8, 8)]


@pytest.fixture
def products():
    """PyTorch's settings of matrix products, put back behind the test."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    yield settings
    settings.fp32_precision = before


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_the_precision_of_products_is_put_back(monkeypatch, products, precision):
    products.fp32_precision = precision
    seen = []

    def fail(call, device):
        seen.append(products.fp32_precision)
        raise MemoryError

    monkeypatch.setattr(machine, "_median_us", fail)
    with pytest.raises(MemoryError):
        machine.matmul_rate(sizes=[2])
    assert (seen, products.fp32_precision) == (["ieee"], precision)


def test_launch_cost_is_per_operator(ten_us):
    assert machine.launch_cost(launches=20) == {"each_us": pytest.approx(0.5)}


def test_sizes_grow_by_a_factor_and_end_at_the_largest():
    assert machine._doublings(1, 8) == [1, 2, 4, 8]
    assert machine._doublings(2, 40, factor=4) == [2, 8, 32]


def test_each_experiment_runs_on_this_cpu():
    (row,) = machine.copy_bandwidth(sizes=[64 * machine.KIB])
    assert 1e6 < row["bytes_per_s"] < 1e14
    (row,) = machine.matmul_rate(sizes=[16])
    assert 1e3 < row["flop_per_s"] < 1e15
    assert 1e-3 < machine.launch_cost(launches=10)["each_us"] < 1e4


def test_a_document_of_a_cpu_names_it_and_holds_what_it_can_measure(monkeypatch):
    for name in ("copy_bandwidth", "matmul_rate", "launch_cost"):

        def experiment(device, name=name):
            return f"{name} on {device}"

        experiment.__name__ = name
        monkeypatch.setattr(machine, name, experiment)
    said = []
    document = machine.examine("cpu", said.append)
    assert (document["kind"], document["gpu"], bool(document["cpu"])) == ("machine", "none", True)
    assert said == ["copy_bandwidth", "matmul_rate", "launch_cost"]
    assert document["copy_bandwidth"] == "copy_bandwidth on cpu"
    assert "bytes_in_flight" not in document


class Kernel:
    """Stands for a Triton kernel: ``kernel[grid](…)`` calls a function with the grid in front."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return lambda *args, **options: self.function(grid, *args, **options)


@pytest.fixture
def kernels(monkeypatch):
    """A GPU of three processors, and kernels for the test to plant."""
    planted = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "trimul.machine_kernels", planted)
    monkeypatch.setattr(machine, "MIB", 16)
    properties = SimpleNamespace(multi_processor_count=3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return planted


def test_bytes_in_flight_counts_programs_times_piece(ten_us, kernels):
    def copy(grid, source, target, count, PIECE):
        target.copy_(source)

    kernels.copy_in_pieces = Kernel(copy)
    rows = machine.bytes_in_flight("cpu")
    assert [row["programs"] for row in rows] == [3, 6, 12, 24, 48] * 2
    assert rows[0]["in_flight"] == 3 * 512 * 4 and rows[-1]["in_flight"] == 48 * 2048 * 4
    assert rows[0]["bytes_per_s"] == pytest.approx(2 * 4 * 256 * 16 / 10e-6)


def test_a_kernel_that_does_not_copy_has_no_bandwidth(ten_us, kernels):
    kernels.copy_in_pieces = Kernel(lambda *args, PIECE: None)
    with pytest.raises(RuntimeError, match="not equal to its source"):
        machine.bytes_in_flight("cpu")


def test_the_chain_of_loads_visits_every_line_once(ten_us, kernels, monkeypatch):
    monkeypatch.setattr(machine, "_doublings", lambda *a, **k: [128 * 50])

    def chase(grid, next_index, end, hops, num_warps):
        at, seen = int(end[0]), set()
        for _ in range(50):
            assert at % 32 == 0  # one index per line of 128 bytes
            seen.add(at)
            at = int(next_index[at])
        assert len(seen) == 50 and at == int(end[0])

    kernels.chase = Kernel(chase)
    assert machine.load_latency("cpu", hops=100) == [{"bytes": 6400, "ns": pytest.approx(100.0)}]
