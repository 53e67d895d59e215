"""The course's work on a GPU that Modal rents by the second. Needs an account at modal.com.

    .venv/bin/modal run modal_app.py                            # the ladder
    .venv/bin/modal run modal_app.py::app.check                 # is every rung right?
    .venv/bin/modal run modal_app.py::app.grade --file mine.py  # is somebody's kernel right?
    .venv/bin/modal run modal_app.py::app.record                # the lessons' %%gpu cells

This file is read twice: on your machine, which runs the commands at its end, and in a container,
which has a copy of it and runs the four functions in its middle.
"""

import tempfile
import time
from pathlib import Path
from typing import Literal

import modal

from trimul import remote
from trimul.gpu import prices, rented
from trimul.gpu.explain import explain, plainly

HERE = Path(__file__).parent

# --- the image: what the container has on its disk ------------------------------------------------

# The versions of requirements.lock. Written out for you to see, and because the container has no
# lock; a test holds the two together.
PINS = {
    "torch": "2.13.0",
    "triton": "3.7.1",
    "numpy": "2.4.6",
    "matplotlib": "3.11.2",
    "ninja": "1.13.2",  # with which torch builds CUDA sources
}
image = (
    # "devel" has nvcc and CUDA's headers, for the .cu sources of later lessons; "runtime" is
    # smaller and has neither. 13.0.3 is the CUDA that this torch brings.
    modal.Image.from_registry("nvidia/cuda:13.0.3-devel-ubuntu24.04", add_python="3.11")
    .entrypoint([])  # NVIDIA's own prints a banner first
    .pip_install(*(f"{name}=={version}" for name, version in PINS.items()))
    # Uploaded with every run rather than built in, so an edit needs no new image. Sources alone:
    # no notebook, no result, no secret.
    .add_local_dir(
        HERE / "trimul",
        "/root/trimul",
        ignore=~modal.FilePatternMatcher("**/*.py", "**/*.cu", "**/*.cuh", "**/*.h"),
    )
)

# --- the functions: what runs in a container ------------------------------------------------------

app = modal.App("trimul")

SETTINGS = {
    "image": image,
    "gpu": "H100!",  # for "H100" Modal may give an H200, and times of the two do not compare
    "cpu": (prices.CORES, prices.CORES),  # reserved, and no more than that
    "memory": prices.MEMORY_GIB * 1024,
    "startup_timeout": prices.START_S,
    "block_network": True,  # a stranger's kernel can call nobody
    "restrict_modal_access": True,  # and cannot use your account
    # A free workspace is said to have 10 GPUs for all its users. At two each, five work
    # side by side, and the rest of a class of forty waits in Modal's queue.
    "max_containers": 2,
}
ONCE = {  # a fresh container for each call, which never idles
    "timeout": remote.LIMIT_S,
    "single_use_containers": True,
}


@app.function(**SETTINGS, timeout=rented.CELL_S, scaledown_window=rented.IDLE_S)
def run_cell(source: str, name: str, timeout: float) -> dict:
    """A %%gpu cell. The container then waits for the next one for a while."""
    from trimul.gpu import local

    return local.run(source, name, timeout)


@app.function(**SETTINGS, **ONCE, retries=1)  # our code: a retry repeats a container that died
def bench_case(index: int) -> dict:
    """Every rung on one of the seven cases: one container, one GPU, one run, so they compare."""
    from trimul import measure, rungs
    from trimul.problem import BENCHMARK_CASES

    device, case = _device(), BENCHMARK_CASES[index]
    cases = [case if device == "cuda" else case.resized(8 + 2 * index)]
    return _timed(lambda: measure.document(measure.bench(rungs.at_full_size(), cases, device)))


@app.function(**SETTINGS, **ONCE, retries=1)
def check_rung(rung: str) -> dict:
    """A rung against float64: the 18 correctness cases and the corners."""
    from trimul import grade

    return _timed(lambda: grade.check_rung(rung, _device()).as_dict())


@app.function(**SETTINGS, **ONCE)  # a stranger's code: not sent again, whatever it did
def grade_source(source: str, name: str, bench: bool) -> dict:
    """Somebody's custom_kernel(data), from the text of its file."""
    from trimul import grade

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(source, encoding="utf-8")
        return _timed(lambda: grade.grade(path, _device(), bench).as_dict())


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"  # a CPU where you try it with .local()


def _timed(work) -> dict:
    """Its result and seconds. A failure is a result too: Modal would repeat one that is raised."""
    start = time.monotonic()
    try:
        result = work()
    except Exception as error:
        result = {"failed": explain(error)}
    return {**result, "seconds": time.monotonic() - start}


# --- the commands: what runs on your machine ------------------------------------------------------

Gpu = Literal[tuple(prices.GPUS)]  # Modal's command line refuses any other, before it connects


@app.local_entrypoint()
@plainly()
def main(gpu: Gpu = prices.GPU, out: str = ""):
    """The ladder: every rung on the seven benchmark cases."""
    remote.ladder(bench_case, gpu, out)


@plainly()
def check(rung: str = "", gpu: Gpu = prices.GPU, out: str = ""):
    """Is a rung right? By default each that takes the full sizes."""
    remote.check(check_rung, rung, gpu, out)


@plainly()
def grade(file: str, bench: bool = False, gpu: Gpu = prices.GPU, out: str = ""):
    """Is the custom_kernel(data) of a file right? And with --bench, how long does it take?"""
    remote.grade(grade_source, file, bench, gpu, out)


@plainly()
def record(notebooks: str = "", gpu: Gpu = prices.GPU):
    """Keep what the %%gpu cells of the notebooks give: of all, or of paths with commas between."""
    remote.record(run_cell, notebooks, gpu)


for command in (check, grade, record):  # a second entry point in this module would hide `main`
    app.local_entrypoint(name=command.__name__)(command)
