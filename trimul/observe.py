"""The side of the grader on which the stranger's code runs: make the calls, note what it breaks.

Runs in a process of its own, started by ``grade``. It hands over results as files of raw bytes and
never judges their values. What it uses was looked up before the stranger's code was imported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import threading
import time
import traceback
import types
import typing
import warnings
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from zlib import crc32

import torch

from trimul import rungs
from trimul.probes import TURNS, Probe, draw

Kernel = Callable[[tuple], torch.Tensor]


# --- settings -------------------------------------------------------------------------------------


def _attribute(path: str):
    *parents, name = path.split(".")

    def owner():
        found = sys.modules[parents[0]]
        for parent in parents[1:]:
            found = getattr(found, parent)
        return found

    return lambda: getattr(owner(), name), lambda value: setattr(owner(), name, value)


#: What outlasts a call and is no business of a kernel's: name -> (get, set or None).
SETTINGS = {
    path: _attribute(path)
    for path in [
        "torch.backends.fp32_precision",
        "torch.backends.cuda.matmul.allow_tf32",
        "torch.backends.cuda.matmul.fp32_precision",
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        "torch.backends.cuda.matmul.allow_fp16_accumulation",
        "torch.backends.cudnn.allow_tf32",
        "torch.backends.cudnn.fp32_precision",
        "torch.backends.cudnn.conv.fp32_precision",
        "torch.backends.cudnn.rnn.fp32_precision",
        "torch.backends.cudnn.benchmark",
        "torch.backends.cudnn.deterministic",
        "torch.backends.cudnn.enabled",
        "torch.backends.mkldnn.fp32_precision",
        "torch.backends.mkldnn.matmul.fp32_precision",
        "torch.backends.mkldnn.deterministic",
        "torch.backends.opt_einsum.enabled",
        "torch.utils.deterministic.fill_uninitialized_memory",
    ]
} | {
    "float32_matmul_precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default device": (torch.get_default_device, torch.set_default_device),
    "grad mode": (torch.is_grad_enabled, torch._C._set_grad_enabled),
    "inference mode": (torch.is_inference_mode_enabled, None),
    "autocast on the CPU": (lambda: torch.is_autocast_enabled("cpu"), None),
    "autocast on the GPU": (lambda: torch.is_autocast_enabled("cuda"), None),
    "anomaly mode": (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "deterministic algorithms": (lambda: _deterministic(), lambda mode: _set_deterministic(*mode)),
    "number of threads": (torch.get_num_threads, torch.set_num_threads),
    "number of inter-op threads": (torch.get_num_interop_threads, None),
    "flushing of denormal numbers": (
        lambda: (torch.tensor(1e-40, dtype=torch.float32, device="cpu") * 1).item() == 0,
        torch.set_flush_denormal,
    ),
    "current CUDA device": (
        lambda: torch.cuda.current_device() if torch.cuda.is_initialized() else 0,
        torch.cuda.set_device,
    ),
    "current CUDA stream": (
        lambda: torch.cuda.current_stream().cuda_stream if torch.cuda.is_initialized() else 0,
        lambda _: torch.cuda.set_stream(torch.cuda.default_stream()),
    ),
    "preferred BLAS library": (lambda: str(torch.backends.cuda.preferred_blas_library()), None),
}


def _deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _set_deterministic(on: bool, warn_only: bool) -> None:
    """``torch.use_deterministic_algorithms`` without the two seconds of imports that it brings."""
    torch._C._set_deterministic_algorithms(on, warn_only=warn_only)


#: Whose functions a submission might replace, to pass a check or to slow a clock.
OWNERS = {
    "time": time,
    "os": os,
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": torch.nn.functional,
    "torch.testing": torch.testing,
    "torch.cuda": torch.cuda,
    "torch.cuda.Event": torch.cuda.Event,
    __name__: sys.modules[__name__],
}
#: torch does so itself: when it imports its compiler, when the default dtype is set.
REPLACED_BY_TORCH = {"torch.manual_seed", "torch.Storage"}


def functions() -> dict:
    """Every function and method of the owners, as found now: (owner's name, name) -> object."""
    found = {}
    for path, owner in OWNERS.items():
        for scope in reversed(getattr(owner, "__mro__", [owner])):
            found |= {(path, name): f for name, f in vars(scope).items() if callable(f)}
    return found


def restore_functions(before: dict) -> list[tuple[str, str]]:
    """Put replaced functions back, and say which they were: a kind of fault and words."""
    after = functions()
    names = []
    for (path, name), function in before.items():
        full_name = f"{path}.{name}"
        if after.get((path, name)) is not function and full_name not in REPLACED_BY_TORCH:
            with contextlib.suppress(Exception):
                setattr(OWNERS[path], name, function)
            names.append(full_name)
    return [("functions", f"replaces {', '.join(names)}")] if names else []


def settings() -> dict:
    """The value of each setting now. A getter that raises is a value too.

    (The getters of the old TF32 flags raise once the old and the new interface were both used.)
    """
    values = {}
    for name, (get, _) in SETTINGS.items():
        try:
            values[name] = get()
        except Exception as error:
            values[name] = f"an error ({type(error).__name__})"
    return values


def restore_settings(before: dict) -> list[tuple[str, str]]:
    """Put changed settings back, and say which they were: pairs of the kind of fault and words."""
    after = settings()
    changed = [name for name in before if before[name] != after[name]]
    for name in reversed(changed):
        setter = SETTINGS[name][1]
        if setter is not None:
            with contextlib.suppress(Exception):
                setter(before[name])
    moved = ", ".join(f"{name} from {before[name]} to {after[name]}" for name in changed)
    return [("settings", f"changes the global setting {moved}")] if moved else []


# --- loading --------------------------------------------------------------------------------------


def load(target: str) -> Kernel:
    """``custom_kernel`` of a file, or of a rung ("rung:NAME"). Raises what its import raises."""
    if target.startswith("rung:"):
        rung = rungs.load(target.removeprefix("rung:"))
        return lambda data: rung.forward(data[0], data[1], rung.pack(data[2]))
    sys.path.insert(0, str(Path(target).parent))
    _offer_contest_modules()
    loader = SourceFileLoader("submission", target)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("submission", loader))
    module.__file__ = target
    sys.modules["submission"] = module
    loader.exec_module(module)
    kernel = getattr(module, "custom_kernel", None)
    if not callable(kernel):
        raise ImportError("the file has no function custom_kernel(data)")
    return kernel


def _offer_contest_modules() -> None:
    """What submissions import from the contest's harness, for those that do not bring their own."""
    task = {name: typing.Any for name in ("input_t", "output_t")}
    utils = {"DeterministicContext": contextlib.nullcontext}
    for name, contents in {"task": task, "utils": utils}.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(contents)


def describe_error(error: BaseException, target: str) -> str:
    """The error, below those frames of its traceback that lie in the stranger's own files."""
    folder = str(Path(rungs.__file__ if target.startswith("rung:") else target).parent)
    own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(folder)]
    cause = traceback.format_exception_only(error)
    return "".join(traceback.format_list(own[-5:]) + cause).strip()


# --- calling --------------------------------------------------------------------------------------


class Observer:
    """Calls one kernel as probes ask for, on one device, and leaves the results in a folder."""

    def __init__(self, kernel: Kernel, device: str, folder: Path):
        self.kernel, self.device, self.folder = kernel, device, folder
        self.on_gpu = torch.device(device).type == "cuda"
        self.synchronize = torch.cuda.synchronize if self.on_gpu else lambda: None

    def run(self, probe: Probe) -> list[dict]:
        """Every turn of a probe: what the call did, as dictionaries of words and a file name."""
        calls, held, given = [], [], None
        for turn in range(len(probe.turns)):
            given = self._inputs(probe, turn, given)
            call, result = self._call(probe, turn, given, held)
            calls.append(call)
            if result is not None:
                held.append((result, digest(result)))
            if "raised" in call:
                break
        if any(digest(result) != before for result, before in held):
            calls[-1]["faults"].append(
                ("aliased", "an earlier result is overwritten by a later call")
            )
        return calls

    def _inputs(self, probe, turn, given):
        """New tensors, or the old ones with new contents (through .data: versions do not move)."""
        name = probe.turns[turn]
        if not TURNS[name] and given is not None:
            return given
        fresh = draw(probe, turn, self.device)
        self.synchronize()
        if "in place" not in name and name != "x written just before":
            return fresh
        if name == "x written just before":
            self._keep_the_stream_busy()
        given.x.data.copy_(fresh.x)
        given.mask.data.copy_(fresh.mask)
        for key, weight in fresh.weights.items():
            given.weights[key].data.copy_(weight)
        if name != "x written just before":
            self.synchronize()
        return given

    def _call(self, probe, turn, given, held):
        name = probe.turns[turn]
        x, mask, weights = given
        case = probe.case
        call = {"turn": name, "faults": []}
        hurry = "just before" in name  # nothing may wait for the device before the call
        poisoning = _deterministic_fill() if name == "poisoned" else contextlib.nullcontext()
        before = None if hurry else _state(given)
        if not hurry:
            self._soil_free_memory(x, float("nan") if name != "not poisoned" else 3.0)
        threads = set(threading.enumerate())
        with poisoning:
            setting, function = settings(), functions()
            try:
                result = self.kernel(
                    (x, mask, weights, {"dim": case.dim, "hidden_dim": case.hidden})
                )
                snapshot = result.clone() if isinstance(result, torch.Tensor) else None
                self.synchronize()
            except BaseException as error:  # SystemExit too
                call["raised"] = error
                result = snapshot = None
            call["faults"] += restore_functions(function) + restore_settings(setting)
        for thread in set(threading.enumerate()) - threads:
            thread.join(1.0)
        if before and not call.get("raised") and _state(given) != before:
            call["faults"].append(("inputs", _what_changed(before, _state(given))))
        if call.get("raised"):
            return call, None
        call["faults"] += contract(result, x)
        if "type" in dict(call["faults"]):
            return call, None
        if digest(result) != digest(snapshot):
            where = "on another stream" if self.on_gpu else "in a background thread"
            call["faults"].append(
                ("late", f"work is left {where}: the result changes after the call returned")
            )
        call["faults"] += _aliases(result, given, [other for other, _ in held])
        if snapshot.shape == x.shape and snapshot.dtype.is_floating_point:
            call["file"] = self._write(snapshot, f"{name.replace(' ', '-')}-{turn}")
        return call, result

    def _write(self, result, name) -> str:
        path = self.folder / name
        with path.open("wb") as file:
            for part in result.detach().contiguous().flatten().split(1 << 24):
                file.write(part.float().cpu().numpy())
        return path.name

    def _soil_free_memory(self, x, value):
        """Leave ``value`` in memory that the next allocations are likely to be given."""
        pairs = x.numel() // x.shape[-1]
        sizes = {x.numel(), 128 * pairs, 256 * pairs, 1 << 16}
        count = max(1, min(16, (1 << 26) // x.numel()))  # to take up what earlier calls left free
        with contextlib.suppress(torch.OutOfMemoryError):
            blocks = [
                torch.full((size,), value, device=self.device)
                for size in sizes
                for _ in range(count)
            ]
            del blocks

    def _keep_the_stream_busy(self):
        """Queue some 50 ms of work: what does not wait for this stream overtakes it."""
        side = 4096
        a = torch.zeros(side, side, device=self.device)
        b = torch.empty_like(a)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.mm(a, a, out=b)
        start.record()
        torch.mm(a, a, out=b)
        end.record()
        end.synchronize()
        for _ in range(min(1000, 1 + int(50 / max(start.elapsed_time(end), 0.01)))):
            torch.mm(a, a, out=b)

    def bench(self, probe: Probe, time_call) -> list[dict]:
        """Time the kernel on one data object, as GPU MODE does."""
        given = draw(probe, 0, self.device)
        data = (*given, {"dim": probe.case.dim, "hidden_dim": probe.case.hidden})
        last = [None]

        def call():
            last[0] = self.kernel(data)

        self.timed = probe, given, call
        samples = time_call(call, self.device)
        return [
            {
                "turn": probe.turns[0],
                "faults": [],
                "samples": samples,
                "file": self._write(last[0], "timed"),
            }
        ]

    def repeat(self, times: int) -> list[dict]:
        """The benchmark's call again, ``times`` times, for a clock that the kernel cannot reach.

        A number of x changes before each: a result kept by the contents of x is not timed here.
        """
        _, given, call = self.timed
        for place in range(times):
            given.x.data.view(-1)[place] += 1
            call()
        self.synchronize()
        return []

    def after_bench(self) -> list[dict]:
        """Was the timed result computed? The same object with new contents must give a new one."""
        probe, given, _ = self.timed
        return [self._call(probe, 1, self._inputs(probe, 1, given), [])[0]]


@contextlib.contextmanager
def _deterministic_fill():
    """torch fills what ``torch.empty`` returns with NaN. Its warnings are not the kernel's."""
    before = _deterministic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _set_deterministic(True, warn_only=True)
        try:
            yield
        finally:
            _set_deterministic(*before)


def contract(result, x: torch.Tensor) -> list[tuple[str, str]]:
    """What is wrong with a result before its values are looked at: pairs of kind and words."""
    if type(result) is not torch.Tensor:
        return [("type", f"returns a {type(result).__name__}, not a plain torch.Tensor")]
    faults = []
    if result.layout != torch.strided or result.is_meta or result.is_neg():
        kind = "meta" if result.is_meta else "negated" if result.is_neg() else result.layout
        return [("type", f"returns a tensor of layout {kind}, not a dense one")]
    if result.dtype != torch.float32:
        faults.append(("dtype", f"returns {result.dtype}, not torch.float32"))
    if result.shape != x.shape:
        faults.append(("shape", f"returns shape {list(result.shape)}, not {list(x.shape)}"))
    if result.device != x.device:
        faults.append(("device", f"returns a tensor on {result.device}, not on {x.device}"))
    if not result.is_contiguous():
        faults.append(
            (
                "strided",
                f"returns a strided result (strides {result.stride()}), not a contiguous one",
            )
        )
    return faults


def _span(t: torch.Tensor) -> range:
    """Addresses of a tensor, whether dense or not."""
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return range(t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size())


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    first, second = _span(a), _span(b)
    return max(first.start, second.start) < min(first.stop, second.stop)


def _aliases(result, given, held) -> list[tuple[str, str]]:
    if any(_overlap(result, other) for other in held):
        return [
            ("aliased", "one buffer is returned twice: a later call overwrites an earlier result")
        ]
    inputs = {"x": given.x, "mask": given.mask, **given.weights}
    return [
        ("aliased", f"the result shares memory with the input {name}")
        for name, tensor in inputs.items()
        if isinstance(tensor, torch.Tensor) and _overlap(result, tensor)
    ]


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest(t: torch.Tensor) -> int:
    """A fingerprint of a tensor's bits, computed where the tensor is."""
    bits = t.detach().reshape(-1).contiguous().view(_WORDS[t.element_size()])
    if not t.is_cuda:
        return crc32(bits.numpy())
    sums = []
    for part in bits.split(1 << 24):
        part = part.long()
        places = torch.arange(1, len(part) + 1, device=part.device)
        sums += [part.sum().item(), (part * places).sum().item()]
    return hash(tuple(sums))


def _state(given) -> dict:
    tensors = {"x": given.x, "mask": given.mask, **given.weights}
    return {
        name: (id(t), t.dtype, t.shape, t.stride(), t.requires_grad, t.device, digest(t))
        if isinstance(t, torch.Tensor)
        else id(t)
        for name, t in tensors.items()
    }


def _what_changed(before: dict, after: dict) -> str:
    names = [name for name in before | after if before.get(name) != after.get(name)]
    group = "input" if {"x", "mask"} & set(names) else "weights"
    return f"the {group} {', '.join(names[:3])}{' …' * (len(names) > 3)} changed during the call"


# --- the process ----------------------------------------------------------------------------------


def serve(connection, target: str, device: str, folder: str, todo: list[Probe]) -> None:
    """The child's whole life: import the target, then answer requests until it is killed."""
    if hasattr(os, "setsid"):
        os.setsid()
    log = os.open(Path(folder) / "printed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # a forked child keeps its parent's buffered streams: point them at the log too
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    if device == "cpu":
        os.environ.setdefault("TRITON_INTERPRET", "1")
        torch.set_num_threads(1)  # as in the parent: small sizes, and two processes share the cores
    receive, send, dumps = connection.recv, connection.send_bytes, json.dumps
    from trimul.measure import time_call

    send(b"{}")  # started
    setting, function = settings(), functions()
    try:
        kernel = load(target)
    except BaseException as error:  # SystemExit too
        send(dumps({"error": describe_error(error, target)}).encode())
        return
    faults = restore_functions(function) + restore_settings(setting)
    send(dumps({"faults": faults}).encode())
    observer = Observer(kernel, device, Path(folder))
    answers = {
        "probe": lambda index: observer.run(todo[index]),
        "bench": lambda index: observer.bench(todo[index], time_call),
        "repeat": observer.repeat,
        "after bench": lambda _: observer.after_bench(),
    }
    while True:
        verb, argument = receive()
        try:
            calls = answers[verb](argument)
        except BaseException as error:
            calls = [{"turn": "first", "faults": [], "raised": error}]
        for call in calls:
            if "raised" in call:
                call["raised"] = describe_error(call["raised"], target)
        send(dumps({"calls": calls}).encode())
