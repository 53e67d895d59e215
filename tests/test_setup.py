"""`make env` on machines in trouble, and on small ones that are not.

The script runs in a copy of its own, with a lock of two packages that lie in a folder of hand-made
wheels, and a Python whose new environments borrow the pip of the one that runs the tests: real
environments, no network, seconds instead of minutes.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pip
import pytest

ROOT = Path(__file__).parents[1]
TOOLS = shlex.split(
    "awk bash cat cksum df dirname env grep head id ls mkdir mv rm sed sh tail tee uname"
)

# `python3 -m venv FOLDER` without ensurepip, which takes most of the time, and the rest as it is.
PYTHON = """
case "$*" in
"-m venv "*)
    {python} -m venv --without-pip "$3"
    for packages in "$3"/lib/python*/site-packages; do echo {pip} >"$packages/pip.pth"; done ;;
*) exec {python} "$@" ;;
esac
"""

# Builds the editable wheel without setuptools, which the hand-made folder lacks.
BACKEND = """
import os, zipfile
def build_editable(folder, *_):
    with zipfile.ZipFile(os.path.join(folder, "trimul-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("trimul.pth", os.getcwd())
        wheel.writestr("trimul-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: trimul\\nVersion: 1")
        wheel.writestr("trimul-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\nRoot-Is-Purelib: true")
        wheel.writestr("trimul-1.dist-info/RECORD", "")
    return "trimul-1-py3-none-any.whl"
"""  # noqa: E501
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "trimul"
version = "1"
"""


def make_wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"__version__ = {version!r}")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\nRoot-Is-Purelib: true"
        )
        wheel.writestr(f"{info}/RECORD", "")


class Checkout:
    """A small copy of the project, and a machine with only the commands that it is given."""

    def __init__(self, folder: Path):
        self.root = folder / "checkout"
        self.bin, self.wheels, self.temporary = (folder / n for n in ("bin", "wheels", "tmp"))
        for path in (self.root / "scripts", self.bin, self.wheels, self.temporary):
            path.mkdir(parents=True)
        for name in ("env.sh", "lab.sh"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts")
        (self.root / "pyproject.toml").write_text(PYPROJECT)
        (self.root / "backend.py").write_text(BACKEND)
        (self.root / "trimul.py").write_text("")
        self.lock("torch==2.13.0 ; sys_platform != 'win32'")
        make_wheel(self.wheels, "torch", "2.13.0+cpu")
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.variables = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_RETRIES": "0",
        }

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def lock(self, *lines: str) -> None:
        lines = (f"pip=={importlib.metadata.version('pip')}", *lines)
        (self.root / "requirements.lock").write_text("\n".join(lines) + "\n")

    def command(self, name: str, script: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def has_python(self) -> Checkout:
        borrowed = self.temporary.with_name("pip")
        borrowed.mkdir()
        installed = Path(pip.__file__).parents[1]
        for path in (installed / "pip", *installed.glob("pip-*.dist-info")):
            (borrowed / path.name).symlink_to(path)
        self.command("python3", PYTHON.format(python=sys.executable, pip=borrowed))
        return self

    def start(self, script: str = "scripts/env.sh", *arguments: str, **variables: str):
        environment = {"PATH": str(self.bin), "TMPDIR": str(self.temporary), "HOME": str(self.root)}
        return subprocess.Popen(
            ["bash", script, *arguments],
            cwd=self.root,
            env={**environment, **self.variables, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        process = self.start(*arguments, **variables)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def works(self) -> bool:
        code = "import torch, trimul; print(torch.__version__)"
        python = self.venv / "bin" / "python"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd="/")
        return done.stdout == "2.13.0+cpu\n"


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    checkout = Checkout(tmp_path_factory.mktemp("built")).has_python()
    status, output = checkout.run()
    assert status == 0, output
    return checkout


def sentence(status: int, output: str) -> str:
    """The one sentence that a failing run ends in."""
    assert status == 1, output
    assert "Traceback" not in output
    last = output.splitlines()[-1]
    assert last.startswith("env: ")
    return last


# Before anything is built


def test_no_python(checkout):
    assert "no Python found: install Python 3.11 to 3.14" in sentence(*checkout.run())


def test_python_too_old(checkout):
    old = 'case "$*" in *exit*) exit 1;; *) echo 3.9.2;; esac'
    checkout.command("python3", old)
    assert "this machine has python3 (3.9.2)" in sentence(*checkout.run())


def test_named_python_that_is_not_there(checkout):
    assert "PYTHON=/no/python does not run" in sentence(*checkout.run(PYTHON="/no/python"))


def test_python_without_venv(checkout):
    checkout.command("python3", 'case "$*" in *ensurepip*) exit 1;; *version*) echo 3.11.2;; esac')
    said = sentence(*checkout.run())
    assert "python3 (3.11.2) cannot make virtual environments" in said
    assert "python3-venv" in said


def test_a_shim_that_fails_is_passed_over(checkout):
    checkout.has_python().command("python3.13", "echo command not found >&2; exit 127")
    checkout.command("df", "printf 'head\\nx 1 1 0 1%% /\\n'")  # ends the run early
    assert "(python3)" in checkout.run()[1]


def test_disk_too_small(checkout):
    checkout.has_python().command("df", "printf 'head\\nx 1 1 2048000 1%% /\\n'")
    said = sentence(*checkout.run())
    assert "needs 3000 MB of free disk" in said and "there are 2000" in said
    assert not checkout.venv.exists()


def test_intel_mac(checkout):
    checkout.has_python().command("uname", "echo Darwin x86_64")
    assert "Intel processor" in sentence(*checkout.run())


# Building, and running again


def test_builds_what_the_lock_says(built):
    assert built.works()


def test_second_run_is_quick(built):
    start = time.monotonic()
    status, output = built.run()
    assert (status, output) == (0, f"env: {built.venv} is ready\n")
    assert time.monotonic() - start < 2


def test_another_python_asked_for_is_not_ready(built):
    assert built.run(PYTHON=sys.executable)[1].endswith("is ready\n")
    built.command(
        "other",
        'case "$*" in *base_prefix*) echo 3.12 /opt;; *exit*) exit 1;; *) echo 3.9.1;; esac',
    )
    assert "other (3.9.1)" in sentence(*built.run(PYTHON="other"))


def test_active_environment_is_no_python_to_build_from(built):
    path = f"{built.venv}/bin:{built.bin}"
    (built.venv / "made-from").rename(built.root / "kept")
    built.command("df", "printf 'head\\nx 1 1 0 1%% /\\n'")
    try:
        assert "(python3)" in built.run(PATH=path)[1]
    finally:
        (built.root / "kept").rename(built.venv / "made-from")
        (built.bin / "df").unlink()
        (built.bin / "df").symlink_to(shutil.which("df"))


def test_changed_lock_updates_in_place(built):
    (built.venv / "witness").touch()
    make_wheel(built.wheels, "more", "1.0")
    built.lock("torch==2.13.0", "more==1.0")
    status, output = built.run()
    assert status == 0 and "up to date" in output, output
    assert (built.venv / "witness").exists()
    assert list(built.venv.glob("lib/*/site-packages/more.py"))
    assert built.run()[1].endswith("is ready\n")


def test_failures_name_their_cause_and_the_next_run_recovers(built):
    right = (built.root / "requirements.lock").read_text()
    built.lock("torch==2.13.0", "nowhere==1.0")
    index = {"PIP_NO_INDEX": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}
    assert "no network: the package index could not be reached" in sentence(*built.run(**index))

    status, output = built.run()
    assert "is incomplete" in output
    assert "nowhere" in output  # pip's own words
    assert "no wheel for this Python and system" in sentence(status, output)

    (built.root / "requirements.lock").write_text(right)
    assert built.run()[0] == 0
    assert built.works()


def test_moved_checkout_is_rebuilt(built):
    old = built.root
    built.root = old.with_name("moved")
    old.rename(built.root)
    status, output = built.run()
    assert status == 0 and "from another place" in output, output
    assert built.works()
    assert not built.root.joinpath(".venv.old").exists()


def test_killed_half_way_then_two_runs_at_once(checkout):
    """Neither a half-made environment nor a lock outlives a killed run."""
    first = checkout.has_python().start()
    while not (checkout.venv / "bin").exists():
        assert first.poll() is None
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()

    runs = [checkout.start(), checkout.start()]
    outputs = [run.communicate(timeout=60)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert sum("is incomplete" in output for output in outputs) == 1, outputs
    assert sum("waiting for it" in output for output in outputs) == 1, outputs
    assert checkout.works()


def test_an_environment_made_by_hand_is_kept(checkout):
    checkout.has_python().venv.mkdir()
    (checkout.venv / "precious").write_text("mine")
    (checkout.wheels / "torch-2.13.0+cpu-py3-none-any.whl").unlink()
    make_wheel(checkout.wheels, "torch", "2.13.0")  # not the CPU build: more disk is needed
    checkout.command("uname", "[ $1 = -sm ] && echo Linux x86_64 || echo Linux")
    checkout.command("df", "printf 'head\\nx 1 1 8192000 1%% /\\n'")
    status, output = checkout.run()
    assert (checkout.root / ".venv.kept" / "precious").read_text() == "mine"
    assert "2.7 GB to download" in output
    assert "the CUDA build of torch needs 9000 MB of free disk" in sentence(status, output)


CAUSES = {
    "OSError: [Errno 28] No space left on device": "the disk is full",
    "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]": "a certificate",
    "NewConnectionError('Temporary failure in name resolution')": "no network",
    "ERROR: No matching distribution found for torch==2.13.0": "no wheel for this Python",
    "error: metadata-generation-failed": "all of pip's words are in",
}


@pytest.mark.parametrize("words", CAUSES)
def test_cause_from_pips_words(tmp_path, words):
    script = (ROOT / "scripts" / "env.sh").read_text()
    function = "explain() {" + script.partition("explain() {")[2].partition("\n}\n")[0] + "\n}"
    (tmp_path / "log").write_text(f"pip\n{words}\n")
    command = ["bash", "-c", f"log={tmp_path}/log\n{function}\nexplain"]
    assert CAUSES[words] in subprocess.run(command, capture_output=True, text=True).stdout


# What else make and CI call


@pytest.mark.parametrize(("user", "allowed"), [(0, True), (1000, False)])
def test_lab(checkout, user, allowed):
    checkout.command("id", f"echo {user}")
    python = checkout.venv / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    status, output = checkout.run("scripts/lab.sh", "--no-browser", "--port=8890")
    assert status == 0
    assert output.count("passing --allow-root") == allowed
    called = output.splitlines()[-1].split()
    assert called[:2] == ["-m", "jupyterlab"]
    assert "notebooks/00_start_here.ipynb" in called
    assert called[-2:] == ["--no-browser", "--port=8890"]
    assert ("--allow-root" in called) == allowed


@pytest.mark.parametrize("target", ["env", "lab", "test", "outputs"])
def test_every_rule_sets_up_first(target):
    command = ["make", "-n", target, "LAB_ARGS=--port=1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    assert lines[0] == "bash scripts/env.sh"
    assert target == "env" or len(lines) == 2
    assert target != "lab" or lines[1].endswith("--port=1")


@pytest.mark.parametrize("installed", [False, True])
def test_ci_installs_only_what_is_missing(tmp_path, installed):
    checkout = Checkout(tmp_path)
    (checkout.root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", checkout.root / ".ci")
    for name in ("apt-get", "make"):
        checkout.command(name, f'echo "{name} $@ CI=$CI"')
    checkout.command("id", "echo 0")
    if installed:
        checkout.command("chromium", "exit")
        checkout.command("dpkg-query", "echo install ok installed")
    status, output = checkout.run(".ci/run")
    assert status == 0, output
    calls = [line for line in output.splitlines() if not line.startswith("ci:")]
    assert [call.split()[1] for call in calls] == ["test"] if installed else ["update", "install"]
    assert calls[-1] == "make test CI=true"
    assert installed or "chromium fonts-dejavu-core" in calls[1]


def test_ci_fails_when_apt_does(tmp_path):
    checkout = Checkout(tmp_path)
    (checkout.root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", checkout.root / ".ci")
    checkout.command("id", "echo 0")
    checkout.command("apt-get", "exit 100")
    checkout.command("make", "echo tested")
    status, output = checkout.run(".ci/run")
    assert status == 100 and "tested" not in output
