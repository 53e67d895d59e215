"""What is on this machine, what that means for the course, and how to fix what is missing.

``python -m trimul doctor [--json]``, and ``doctor.report()`` in a notebook. Libraries are imported
in processes of their own, so that a broken one is reported in its own words and breaks nothing
here: this module needs the standard library alone, and runs on a Python too old for the course
in order to say so. Nothing is sent over a network.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from trimul import ledger

#: The oldest versions that will do, as in pyproject.toml, and what needs each.
OLDEST = {"torch": "2.11", "triton": "3.6", "numpy": "2.3", "matplotlib": "3.10"}
NEEDED = ("Python", "torch", "numpy", "matplotlib")  # without these, not even recordings show
REINSTALL = "run `make env` and use .venv/bin/python"
LOW_DISK = 1  # GB; compiled kernels and recordings of the reader's own take a few hundred MB


@dataclass(frozen=True)
class Finding:
    """One thing looked at: ``status`` is "ok", "missing", "limited" or "broken"."""

    name: str
    status: str
    found: str
    means: str = ""
    fix: str = ""


def _run(command: list[str], seconds: float = 60) -> tuple[int, str, str]:
    """Exit status, standard output and standard error; what stopped it, if it did not end."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, "", str(error)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


_IMPORT = "import json, {name}; print(json.dumps(dict(version={name}.__version__)))"

# The GPU is looked at in the same process as torch: to import it once is most of the time.
_IMPORT_TORCH = """
import json, torch
facts = dict(version=torch.__version__, cuda=torch.version.cuda, hip=torch.version.hip, gpus=[])
try:
    torch.cuda.init()
    facts["built_for"] = torch.cuda.get_arch_list()
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        facts["gpus"].append([p.name, p.major, p.minor, p.total_memory])
except Exception as error:
    facts["reason"] = str(error).strip().splitlines()[0] if str(error) else repr(error)
print(json.dumps(facts))
"""


def _import(name: str) -> dict:
    """Import a library in a process of its own: its facts, or ``{"error": its own last words}``."""
    code = _IMPORT_TORCH if name == "torch" else _IMPORT.format(name=name)
    status, out, err = _run([sys.executable, "-c", code])
    try:
        return json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        return {"error": err.splitlines()[-1] if err else f"its process ended with status {status}"}


def _older(version: str, oldest: str) -> bool:
    def numbers(text):
        return [int(part) for part in text.split("+")[0].split(".")[:2] if part.isdigit()]

    return numbers(version) < numbers(oldest)


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if _older(platform.python_version(), "3.11"):
        return Finding("Python", "broken", found, "too old", "install Python 3.11 or newer")
    return Finding("Python", "ok", found)


def _library(name: str, facts: dict) -> Finding:
    broken = "broken" if name in NEEDED else "missing"
    means = (
        "no lesson runs"
        if name in NEEDED
        else "Triton kernels are not run here: their lessons (11 on) will show recordings"
    )
    if error := facts.get("error"):
        if error == f"ModuleNotFoundError: No module named '{name}'":
            if name == "triton" and sys.platform != "linux":
                return Finding(name, "missing", f"not made for {platform.system()}", means)
            return Finding(name, broken, "not installed", means, REINSTALL)
        return Finding(name, "broken", error, means, REINSTALL)
    version = facts["version"]
    if _older(version, OLDEST[name]):
        means = f"the course is tested from {OLDEST[name]} on: expect errors"
        return Finding(name, "limited", version, means, REINSTALL)
    return Finding(name, "ok", version)


def _gpu(torch: dict) -> Finding:
    """The GPU as torch sees it; where it sees none, the driver is asked whether there is one."""
    recordings = "GPU times in the lessons are stored ones"
    if torch.get("gpus"):
        name, major, minor, memory = torch["gpus"][0]
        more = f" (and {len(torch['gpus']) - 1} more)" if len(torch["gpus"]) > 1 else ""
        found = f"{name}, capability {major}.{minor}, {memory / 2**30:.0f} GiB{more}"
        if torch.get("hip"):
            return Finding(
                "GPU", "limited", found, "AMD: the CUDA C++ lessons (12 on) will show recordings"
            )
        built_for = [int(a[3:].rstrip("af")) for a in torch["built_for"] if a.startswith("sm_")]
        if built_for and major * 10 + minor < min(built_for):
            means = f"this torch has no code for it (built for {torch['built_for'][0]} and later)"
            return Finding("GPU", "limited", found, f"{means}: {recordings}")
        if major < 8:
            means = "below capability 8.0: no bf16 or TF32 tensor cores, no support by Triton"
            return Finding("GPU", "limited", found, means)
        if (major, minor) != (9, 0):
            return Finding("GPU", "ok", found, "Hopper's own instructions (wgmma) need 9.0")
        return Finding("GPU", "ok", found)

    smi = shutil.which("nvidia-smi")
    status, out, err = (
        _run([smi, "--query-gpu=name,driver_version", "--format=csv,noheader"], 10)
        if smi
        else (1, "", "")
    )
    if status or not out:
        words = f"nvidia-smi: {(err or out).splitlines()[0]}" if err or out else "none"
        fix = "optional: a rented one will do (lesson 05)"
        return Finding("GPU", "missing", words, recordings, fix)
    name, _, driver = out.splitlines()[0].partition(", ")
    found = f"{name}, driver {driver}"
    if "error" in torch:
        return Finding("GPU", "broken", found, f"torch cannot be imported: {recordings}", REINSTALL)
    if torch["cuda"] is None:
        means = f"torch {torch['version']} is a build without CUDA: {recordings}"
        fix = "install the CUDA build of torch (README.md, Set-up)"
        return Finding("GPU", "broken", found, means, fix)
    means = f"torch (CUDA {torch['cuda']}) cannot use it: {torch.get('reason', 'no reason given')}"
    fix = f"a driver for CUDA {torch['cuda']}, or a torch built for this driver's CUDA"
    return Finding("GPU", "broken", found, means, fix)


def _compiler() -> Finding:
    """The C++ compiler that the CUDA lessons use: $CXX, g++ or clang++."""
    failed = ""
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++")):
        if path := shutil.which(name):
            status, out, err = _run([path, "--version"], 10)
            if status == 0 and out:
                return Finding("C++ compiler", "ok", f"{name}: {out.splitlines()[0]}")
            failed = f"{name}: {(err or out or 'it fails').splitlines()[-1]}"
    means = "no CUDA on the CPU, and Triton cannot launch on a GPU here: recordings"
    fix = "apt-get install g++ (Debian, Ubuntu), xcode-select --install (macOS)"
    return Finding("C++ compiler", "broken" if failed else "missing", failed or "none", means, fix)


def _nvcc(torch: dict) -> Finding:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [str(Path(home, "bin")) for home in homes[:2] if home]
    path = shutil.which("nvcc", path=os.pathsep.join([*places, os.environ.get("PATH", "")]))
    path = path or shutil.which("nvcc", path=str(Path(homes[2], "bin")))
    means = "own CUDA sources are not compiled for a GPU here"
    if not path:
        fix = "optional: it comes with NVIDIA's CUDA toolkit"
        return Finding("nvcc", "missing", "none", means, fix)
    status, out, err = _run([path, "--version"], 10)
    release = out.partition("release ")[2].partition(",")[0]
    if status or not release:
        return Finding("nvcc", "broken", (err or out or "it fails").splitlines()[-1], means)
    cuda = torch.get("cuda")
    if cuda and cuda.split(".")[0] != release.split(".")[0]:
        means = f"torch is built for CUDA {cuda}: it refuses to build extensions with another major"
        fix = f"install the CUDA {cuda.split('.')[0]} toolkit, or set CUDA_HOME to it"
        return Finding("nvcc", "limited", f"{release} at {path}", means, fix)
    return Finding("nvcc", "ok", release)


def _ninja() -> Finding:
    means = "torch cannot build C++ extensions"
    if path := shutil.which("ninja"):
        status, out, err = _run([path, "--version"], 10)
        if status == 0:
            return Finding("ninja", "ok", out)
        return Finding("ninja", "broken", (err or "it fails").splitlines()[-1], means, REINSTALL)
    if version := _installed("ninja"):
        found = f"{version}, but not on PATH"
        fix = f"put {sysconfig.get_path('scripts')} on PATH (`make lab` does)"
        return Finding("ninja", "limited", found, means, fix)
    return Finding("ninja", "missing", "none", means, REINSTALL)


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _modal() -> Finding:
    """Modal's client and whether it has a token; the token itself is not shown and not tried."""
    means = "nothing can be sent to a rented GPU"
    version = _installed("modal")
    if not version:
        return Finding("Modal", "missing", "not installed", means, f"optional: {REINSTALL}")
    if os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET"):
        return Finding("Modal", "ok", f"{version}, token in the environment")
    path = Path(os.environ.get("MODAL_CONFIG_PATH") or Path.home() / ".modal.toml")
    try:
        import tomllib  # not in a Python too old for the course

        profiles = tomllib.loads(path.read_text()).values() if path.exists() else ()
    except (OSError, ValueError, ImportError) as error:
        fix = f"mend or delete {path}, then run `modal token new`"
        return Finding("Modal", "broken", f"{version}, {path.name}: {error}", means, fix)
    if any(isinstance(profile, dict) and profile.get("token_id") for profile in profiles):
        return Finding("Modal", "ok", f"{version}, token in {path}")
    fix = "optional: `modal token new` (lesson 05)"
    return Finding("Modal", "missing", f"{version}, no token", means, fix)


def _home() -> Finding:
    """The reader's own folder: can it be written, and is there room?"""
    home = ledger.home()
    parent = next(folder for folder in (home, *home.parents) if folder.exists())
    fix = "set TRIMUL_HOME to a folder that can be written"
    try:
        with tempfile.TemporaryFile(dir=parent):
            free = shutil.disk_usage(parent).free / 1e9
    except OSError as error:
        means = "predictions are not remembered"
        return Finding("TRIMUL_HOME", "limited", f"{home}: {error.strerror}", means, fix)
    found = f"can be written, {free:.0f} GB free"
    if free < LOW_DISK:
        means = "compiled kernels and own results may not fit"
        return Finding("TRIMUL_HOME", "limited", found, means, "free some disk")
    return Finding("TRIMUL_HOME", "ok", found)


def examine() -> list[Finding]:
    """Look at everything the course uses; changes nothing."""
    with ThreadPoolExecutor() as pool:
        imports = {name: pool.submit(_import, name) for name in OLDEST}
        facts = {name: done.result() for name, done in imports.items()}
    return [
        _python(),
        *(_library(name, facts[name]) for name in OLDEST),
        _gpu(facts["torch"]),
        _compiler(),
        _nvcc(facts["torch"]),
        _ninja(),
        _modal(),
        _home(),
    ]


def can_run(findings: list[Finding]) -> bool:
    """Whether the course runs here at all, recordings counted."""
    return not any(f.status == "broken" and f.name in NEEDED for f in findings)


def meaning(findings: list[Finding]) -> str:
    """What the findings mean for the course, in a few sentences."""
    there = {f.name: f.status == "ok" for f in findings}
    gpu = next(f for f in findings if f.name == "GPU")
    if not can_run(findings):
        broken = ", ".join(f.name for f in findings if f.name in NEEDED and f.status == "broken")
        return f"The course does not run here until this is mended: {broken}."
    sentences = ["Everything in plain PyTorch runs here."]
    sentences.append(
        "In the lessons to come, CUDA kernels will "
        f"{'run on the CPU' if there['C++ compiler'] else 'show recordings'}; Triton kernels will "
        f"{'run in its interpreter' if there['triton'] else 'show recordings'}."
    )
    if gpu.status == "limited":
        sentences.append("%%gpu cells may fail on this GPU: TRIMUL_GPU=recording shows recordings.")
    elif there["GPU"]:
        sentences.append("%%gpu cells and `python -m trimul bench einsum` use this machine's GPU.")
    else:
        sentences.append("%%gpu cells show what they gave on a GPU, with its name and the date.")
    return " ".join(sentences)


def as_text(findings: list[Finding]) -> str:
    """The findings as an aligned table, then what they mean."""
    lines = []
    for f in findings:
        lines.append(f"{f.name:13} {f.status:8} {f.found}")
        lines += [f"{'':22} {line}" for line in (f.means, f.fix and f"fix: {f.fix}") if line]
    return "\n".join([*lines, "", textwrap.fill(meaning(findings), 88)])


def report() -> None:
    """Print what ``python -m trimul doctor`` prints."""
    print(as_text(examine()))


def main(arguments: list[str]) -> int:
    """Exit status 0: the course runs here, if only on recordings; 1: it does not."""
    parser = argparse.ArgumentParser("python -m trimul doctor", description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="pure JSON on standard output")
    options = parser.parse_args(arguments)
    findings = examine()
    if options.json:
        document = {
            "can_run": can_run(findings),
            "means": meaning(findings),
            "findings": [asdict(f) for f in findings],
        }
        print(json.dumps(document, indent=1))
    else:
        print(as_text(findings))
    return 0 if can_run(findings) else 1
