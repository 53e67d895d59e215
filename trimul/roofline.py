"""What could it take at best? Hardware figures with their sources, and the traffic of each rung."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from trimul import rungs
from trimul.problem import Case, Stage, operator, stages, weight_shapes


@dataclass(frozen=True)
class Hardware:
    """Peak rates of one processor.

    ``bandwidth`` in bytes per second, ``flops`` in FLOP per second by type of the operands (dense,
    half of a datasheet's rates with sparsity), ``l2`` in bytes, ``processors`` the number of SMs or
    cores, ``clock`` in Hz, the one at which the tensor rates are stated: they are processors x
    FLOP per clock of one SM x clock. ``source`` says where the figures stand.
    """

    name: str
    bandwidth: float
    flops: dict[str, float]
    l2: int
    processors: int
    clock: float
    source: str

    def flops_per_clock(self, dtype: str = "fp16") -> float:
        """FLOP per clock of one SM, at the clock of the tensor rates."""
        return self.flops[dtype] / (self.processors * self.clock)

    def ridge(self, dtype: str = "fp16") -> float:
        """The intensity, in FLOP per byte, at which memory and arithmetic take equally long."""
        return self.flops[dtype] / self.bandwidth

    def seconds(self, work: Stage, dtype: str = "fp16") -> float:
        """The least time for some work: the larger of its memory time and its arithmetic time."""
        return max(work.bytes / self.bandwidth, work.flops / self.flops[dtype])

    def limit(self, work: Stage, dtype: str = "fp16") -> str:
        """Which of the two is the larger: "memory" or "arithmetic"."""
        return "arithmetic" if work.intensity > self.ridge(dtype) else "memory"


#: Datasheet figures. Sustained rates are lower: see the measured ceilings in assets/results.
#: fp32 is the rate of the CUDA cores, fp64 that of the tensor cores.
HARDWARE = {
    "H100": Hardware(
        name="NVIDIA H100 SXM",
        bandwidth=3.35e12,
        flops={
            "fp16": 989.4e12,
            "bf16": 989.4e12,
            "tf32": 494.7e12,
            "fp32": 66.9e12,
            "fp64": 66.9e12,
        },
        l2=50 * 2**20,
        processors=132,
        clock=1.83e9,
        source="NVIDIA H100 Tensor Core GPU Architecture whitepaper, SXM5 (fp32 at 1.98 GHz): "
        "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper",
    ),
    "H200": Hardware(
        name="NVIDIA H200 SXM",
        bandwidth=4.8e12,
        flops={
            "fp16": 989.5e12,
            "bf16": 989.5e12,
            "tf32": 494.5e12,
            "fp32": 67e12,
            "fp64": 67e12,
        },
        l2=60 * 2**20,
        processors=132,
        clock=1.83e9,
        source="NVIDIA H200 specifications, SXM (SMs and L2 as the driver reports them, "
        "the clock as on the H100): https://www.nvidia.com/en-us/data-center/h200/",
    ),
    "A100": Hardware(
        name="NVIDIA A100 SXM 80 GB",
        bandwidth=2.039e12,
        flops={
            "fp16": 312e12,
            "bf16": 312e12,
            "tf32": 156e12,
            "fp32": 19.5e12,
            "fp64": 19.5e12,
        },
        l2=40 * 2**20,
        processors=108,
        clock=1.41e9,
        source="NVIDIA A100 datasheet, 80 GB SXM: https://www.nvidia.com/content/dam/en-zz/"
        "Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf "
        "(SMs, L2 and clock: https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/"
        "nvidia-ampere-architecture-whitepaper.pdf)",
    ),
    "B200": Hardware(
        name="NVIDIA B200 (HGX)",
        bandwidth=7.7e12,
        flops={
            "fp16": 2250e12,
            "bf16": 2250e12,
            "tf32": 1100e12,
            "fp32": 75e12,
            "fp64": 37e12,
        },
        l2=126 * 2**20,
        processors=148,
        clock=1.856e9,  # not in the datasheet: 2250e12 / (148 x 8192)
        source="NVIDIA Blackwell datasheet, HGX B200, per GPU: "
        "https://resources.nvidia.com/en-us-blackwell-architecture/datasheet (SMs and L2: "
        "https://chipsandcheese.com/p/nvidias-b200-keeping-the-cuda-juggernaut)",
    ),
    "laptop": Hardware(
        name="laptop CPU (8 cores, AVX2, 2 channels DDR5-5600)",
        bandwidth=2 * 8 * 5600e6,
        flops={"fp32": 8 * 2 * 8 * 2 * 3.5e9, "fp64": 8 * 2 * 4 * 2 * 3.5e9},
        l2=16 * 2**20,
        processors=8,
        clock=3.5e9,
        source="arithmetic: 2 channels x 8 B x 5.6 GT/s; "
        "8 cores x 2 FMA units x 8 lanes x 2 x 3.5 GHz",
    ),
}


#: What a driver calls the GPUs of the table. An H100 PCIe or an A100 40 GB is another machine.
DEVICE_NAMES = {
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H200": "H200",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA B200": "B200",
}


def hardware_of(gpu: str) -> Hardware | None:
    """The table's figures for a GPU as its driver names it; None if the table does not have it."""
    return HARDWARE.get(DEVICE_NAMES.get(gpu, ""))


def measured(machine: dict, datasheet: Hardware) -> Hardware:
    """The ceilings that a GPU reached, from a stored document of kind "machine".

    ``bandwidth`` is that of the fastest copy too large for the L2 cache; ``flops`` those of the
    fastest matrix product of each type. The rest is the datasheet's.
    """
    far = [row for row in machine["copy_bandwidth"] if row["bytes"] > 4 * machine["l2_bytes"]]
    flops: dict[str, float] = {}
    for row in machine["matmul_rate"]:
        flops[row["kind"]] = max(row["flop_per_s"], flops.get(row["kind"], 0))
    return replace(
        datasheet,
        name=machine["gpu"],
        bandwidth=max(row["bytes_per_s"] for row in far),
        flops=flops,
        source=f"measured, {machine['date'][:10]}",
    )


@dataclass(frozen=True)
class Floors:
    """The two floors of a case, in seconds."""

    three_kernels: float
    operator: float


#: The floors, as charts and tables name them.
FLOORS = {"three kernels through memory": "three_kernels", "the operator itself": "operator"}


def floors(case: Case, hardware: Hardware, dtype: str = "fp16") -> Floors:
    """Three kernels that meet in memory (each at its own bound, summed), and the operator itself.

    The second reads x and mask, writes y, does all FLOPs and overlaps the two perfectly.
    """
    return Floors(
        three_kernels=sum(hardware.seconds(stage, dtype) for stage in stages(case)),
        operator=hardware.seconds(operator(case), dtype),
    )


def traffic(rung: str, case: Case) -> list[Stage]:
    """Every operator that a PyTorch rung calls, with its FLOPs and the bytes of its operands.

    Counted on tensors without storage, so at any size and on any machine. Views cost nothing and
    are left out. FLOPs are those of matrix products; bytes count each operand once, as if no cache
    kept anything from one operator to the next. A copy that a library makes inside an operator is
    not seen here; the profile on a GPU shows it. Raises ValueError for a rung that computes outside
    PyTorch's operators, as loops does.
    """
    module = rungs.load(rung)
    shape = (case.batch, case.n, case.n)
    with torch.device("meta"):
        x, mask = torch.empty(*shape, case.dim), torch.empty(shape)
        weights = {k: torch.empty(s) for k, s in weight_shapes(case.dim, case.hidden).items()}
    with _Recorder() as recorder:
        try:
            module.forward(x, mask, module.pack(weights))
        except NotImplementedError:
            raise ValueError(f"{rung} computes outside PyTorch's operators: not counted") from None
    return recorder.operators


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators: list[Stage] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not _is_view(func):
            flops = flop_registry.get(func.overloadpacket, lambda *a, **k: 0)
            self.operators.append(
                Stage(
                    name=func.overloadpacket.__name__,
                    flops=int(flops(*args, **(kwargs or {}), out_val=result)),
                    bytes_read=_bytes(args),
                    bytes_written=_bytes(result),
                )
            )
        return result


def _is_view(func) -> bool:
    if func is torch.ops.aten._unsafe_view.default:  # a view in all but its declaration
        return True
    aliases = [r.alias_info for r in func._schema.returns if r.alias_info is not None]
    return bool(aliases) and not any(alias.is_write for alias in aliases)


def _bytes(value) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, list | tuple):
        return sum(_bytes(item) for item in value)
    return 0
