"""The doctor: real causes, on machines made up of fake modules and fake commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from trimul import doctor

ROOT = Path(__file__).parents[1]

# A torch as a machine with a GPU has it. The doctor sees what these few names say.
TORCH = """
__version__ = "{version}"
class version: cuda = {cuda!r}; hip = {hip!r}
class cuda:
    @staticmethod
    def init():
        if {reason!r}: raise RuntimeError({reason!r})
    get_arch_list = staticmethod(lambda: ["sm_75", "sm_80", "sm_90", "sm_120"])
    device_count = staticmethod(lambda: {count})
    @staticmethod
    def get_device_properties(i):
        class p: name = "NVIDIA Test"; major, minor = {capability}; total_memory = 80 * 2**30
        return p
"""


def torch(version="2.13.0", cuda="13.0", hip=None, reason="", count=1, capability=(9, 0)) -> str:
    return TORCH.format(**locals())


class Machine:
    """A machine of its own: what Python imports, what is on PATH, and the reader's home."""

    def __init__(self, folder: Path):
        self.modules, self.bin, self.home = (folder / n for n in ("modules", "bin", "home"))
        for path in (self.modules, self.bin, self.home):
            path.mkdir()
        self.variables = {}
        for name, version in {"triton": "3.7.1", "numpy": "2.4.6", "matplotlib": "3.11.2"}.items():
            self.module(name, f"__version__ = '{version}'")
        self.module("torch", torch(cuda=None, reason="Torch not compiled with CUDA enabled"))

    def module(self, name: str, source: str) -> None:
        (self.modules / f"{name}.py").write_text(source)

    def command(self, name: str, prints: str, status: int = 0) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\necho '{prints}'\nexit {status}\n")
        path.chmod(0o755)

    def environment(self) -> dict[str, str]:
        paths = {"PYTHONPATH": f"{self.modules}:{ROOT}", "PATH": str(self.bin)}
        # Without bytecode, a module rewritten within the same second is read anew.
        return {**paths, "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", **self.variables}

    def doctor(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "trimul", "doctor", *arguments]
        return subprocess.run(
            command, env=self.environment(), cwd=self.home, capture_output=True, text=True
        )

    def finding(self, name: str) -> doctor.Finding:
        with mock.patch.dict(os.environ, self.environment(), clear=True):
            return next(f for f in doctor.examine() if f.name == name)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_real_machine(capsys):
    findings = doctor.examine()
    assert doctor.can_run(findings)
    assert {f.status for f in findings if f.name in doctor.NEEDED} <= {"ok", "limited"}
    print(doctor.as_text(findings))
    assert "plain PyTorch runs here" in capsys.readouterr().out
    assert {f.name for f in findings} >= {"GPU", "nvcc", "ninja", "Modal", "TRIMUL_HOME"}


def test_laptop_without_anything_runs_the_course(machine):
    done = machine.doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())  # whatever the width of the lines
    assert "CUDA kernels will show recordings; Triton kernels will run in its interpreter" in said
    assert list(machine.home.iterdir()) == []  # examining changes nothing


def test_json(machine):
    document = json.loads(machine.doctor("--json").stdout)
    assert document["can_run"] is True
    assert {f["name"]: f["found"] for f in document["findings"]}["numpy"] == "2.4.6"


BROKEN = {
    "missing": (None, "not installed"),
    "library": (
        "raise ImportError('libcudart.so.13: cannot open shared object file')",
        "ImportError: libcudart.so.13: cannot open shared object file",
    ),
    "dependency": (
        "import typing_nonsense",
        "ModuleNotFoundError: No module named 'typing_nonsense'",
    ),
    "crash": ("import os; os._exit(41)", "its process ended with status 41"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_torch_is_reported_in_its_own_words(machine, case):
    source, words = BROKEN[case]
    if source is None:
        source = "raise ModuleNotFoundError(\"No module named 'torch'\")"
    machine.module("torch", source)
    done = machine.doctor()
    assert done.returncode == 1
    assert words in done.stdout
    assert "until this is mended: torch" in done.stdout
    assert done.stderr == ""


def test_broken_triton_leaves_recordings(machine):
    machine.module("triton", "raise ImportError('0 active drivers ([])')")
    done = machine.doctor()
    assert done.returncode == 0
    assert "ImportError: 0 active drivers ([])" in done.stdout
    assert "Triton kernels will show recordings" in done.stdout


def test_old_library_is_limited(machine):
    machine.module("triton", "__version__ = '3.5.1'")
    assert machine.finding("triton").status == "limited"
    machine.module("triton", "__version__ = '3.10.0'")
    assert machine.finding("triton").status == "ok"


TOO_OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 11040)."
GPUS = {
    "hopper": (torch(), False, "ok", ""),
    "blackwell": (torch(capability=(12, 0)), False, "ok", "wgmma"),
    "turing": (torch(capability=(7, 5)), False, "limited", "no bf16 or TF32"),
    "pascal": (torch(capability=(6, 1)), False, "limited", "no code for it (built for sm_75"),
    "amd": (torch(cuda=None, hip="6.4"), False, "limited", "AMD"),
    "old driver": (torch(reason=TOO_OLD_DRIVER), True, "broken", TOO_OLD_DRIVER),
    "cpu build": (torch("2.13.0+cpu", None, reason="no"), True, "broken", "build without CUDA"),
    "torch broken": ("raise ImportError('x')", True, "broken", "torch cannot be imported"),
    "none": (torch(cuda=None, reason="no"), False, "missing", "stored ones"),
}


@pytest.mark.parametrize("case", GPUS)
def test_gpu(machine, case):
    source, driver, status, words = GPUS[case]
    machine.module("torch", source)
    if driver:
        machine.command("nvidia-smi", "NVIDIA Test, 470.1")
    found = machine.finding("GPU")
    assert (found.status, words in found.means) == (status, True), found


def test_driver_in_trouble_is_quoted(machine):
    machine.command("nvidia-smi", "NVIDIA-SMI has failed: no driver", status=9)
    assert "NVIDIA-SMI has failed: no driver" in machine.finding("GPU").found


def test_nvcc_of_another_major(machine):
    machine.module("torch", torch(cuda="12.8"))
    machine.command("nvcc", "Cuda compilation tools, release 13.0, V13.0.88")
    assert machine.finding("nvcc").status == "limited"
    machine.module("torch", torch(cuda="13.2"))
    assert machine.finding("nvcc").status == "ok"


def test_compiler(machine):
    assert machine.finding("C++ compiler").status == "missing"
    machine.command("clang++", "clang version 19.1")
    assert machine.finding("C++ compiler").found == "clang++: clang version 19.1"
    machine.command("mine", "my compiler 1.0")
    machine.variables["CXX"] = "mine"
    assert machine.finding("C++ compiler").found == "mine: my compiler 1.0"


def test_compiler_that_fails(machine):
    machine.command("g++", "xcrun: error: invalid active developer path", status=1)
    found = machine.finding("C++ compiler")
    assert (found.status, "invalid active developer path" in found.found) == ("broken", True)


def test_ninja_off_path(machine):
    assert "not on PATH" in machine.finding("ninja").found
    machine.command("ninja", "1.13.2")
    assert machine.finding("ninja").status == "ok"


def test_modal_token(machine):
    assert machine.finding("Modal").status == "missing"
    machine.variables |= {"MODAL_TOKEN_ID": "ak-secret", "MODAL_TOKEN_SECRET": "as-secret"}
    done = machine.doctor()
    assert "token in the environment" in done.stdout
    assert "secret" not in done.stdout


def test_modal_token_file(machine):
    path = machine.home / ".modal.toml"
    path.write_text('[default]\ntoken_id = "ak-hidden"\ntoken_secret = "as-hidden"\n')
    found = machine.finding("Modal")
    assert found.status == "ok" and "hidden" not in str(found)
    path.write_text("[default\n")
    assert machine.finding("Modal").status == "broken"


def test_home_that_cannot_be_written(machine):
    (machine.home / "file").write_text("")
    machine.variables["TRIMUL_HOME"] = str(machine.home / "file")
    assert machine.finding("TRIMUL_HOME").status == "limited"
    machine.variables["TRIMUL_HOME"] = str(machine.home / "new" / "folder")
    assert machine.finding("TRIMUL_HOME").status == "ok"


def test_importing_doctor_needs_nothing(machine):
    for name in doctor.OLDEST:
        machine.module(name, "raise ImportError('must not be imported')")
    command = [sys.executable, "-c", "import trimul.doctor"]
    environment = {**os.environ, **machine.environment()}
    assert subprocess.run(command, env=environment, cwd=machine.home).returncode == 0
