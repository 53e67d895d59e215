"""pyproject.toml, requirements.lock and environment.yml say the same."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from trimul import doctor

rattler = pytest.importorskip("rattler", reason="py-rattler, of the extra `test`, is not installed")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}
CONDA_ONLY = {"python", "pip", "cxx-compiler"}
SUPPORTED = [  # where every requirement must have a pin
    {"sys_platform": platform, "python_version": python, "python_full_version": f"{python}.9"}
    for platform in ("linux", "darwin")
    for python in ("3.11", "3.12", "3.13", "3.14")
]


def asked() -> list[Requirement]:
    """What pyproject.toml asks for: the dependencies and those of every extra."""
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(line) for part in (PROJECT["dependencies"], *extras) for line in part]


def lock(text: str | None = None) -> list[Requirement]:
    text = (ROOT / "requirements.lock").read_text() if text is None else text
    return [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]


def pins(requirements: list[Requirement], system: dict[str, str]) -> dict[str, Version]:
    """Name and exact version of what a lock installs on a system; ValueError for a loose line."""
    found = {}
    for line in requirements:
        if line.marker and not line.marker.evaluate({**default_environment(), **system}):
            continue
        [one] = line.specifier
        if one.operator != "==" or one.version.endswith("*"):
            raise ValueError(f"{line} is not one exact version")
        if canonicalize_name(line.name) in found:
            raise ValueError(f"{line.name} is pinned twice")
        found[canonicalize_name(line.name)] = Version(one.version)
    return found


def conda(text: str) -> tuple[dict[str, str], list[str]]:
    """An environment.yml's packages by their names on the Python index, and its lines for pip.

    Raises rattler.InvalidMatchSpecError for a line that conda could not read.
    """
    lines = yaml.safe_load(text)["dependencies"]
    specs = [rattler.MatchSpec(line, strict=True) for line in lines if isinstance(line, str)]
    names = {CONDA_NAMES.get(s.name.normalized, s.name.normalized): str(s.version) for s in specs}
    return names, [line for part in lines if isinstance(part, dict) for line in part["pip"]]


def disagreements(environment: str, locked: list[Requirement]) -> list[str]:
    """Where environment.yml departs from the lock, or leaves out what pyproject.toml asks for."""
    versions = pins(locked, SUPPORTED[0])
    packages, pip_lines = conda(environment)
    named = {name: version for name, version in packages.items() if name not in CONDA_ONLY}
    named |= {
        canonicalize_name(r.name): str(r.specifier)
        for r in (Requirement(line) for line in pip_lines if not line.startswith("-"))
    }
    wrong = [
        f"{name}: {version} is not ==={versions.get(name)}"
        for name, version in named.items()
        if version != f"=={versions.get(name)}"
    ]
    wanted = {canonicalize_name(r.name) for r in asked()}
    return wrong + [f"{name}: not in environment.yml" for name in sorted(wanted - set(named))]


@pytest.mark.parametrize("system", SUPPORTED, ids=lambda s: "-".join(s.values()))
def test_lock_pins_what_pyproject_asks_for(system):
    versions = pins(lock(), system)
    for requirement in asked():
        if requirement.marker and not requirement.marker.evaluate(system):
            continue
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{requirement} is not in requirements.lock"
        assert versions[name] in requirement.specifier, f"{name} {versions[name]}: {requirement}"


def test_lock_pins_what_make_env_uses_to_build():
    assert {"pip", "setuptools"} <= set(pins(lock(), SUPPORTED[0]))


@pytest.mark.parametrize("line", ["torch>=2.13", "torch==2.*", "torch==1.0\ntorch==2.0"])
def test_a_loose_lock_is_refused(line):
    with pytest.raises(ValueError):
        pins(lock(line), SUPPORTED[0])


def test_lock_leaves_cuda_to_torch():
    assert not [r.name for r in lock() if r.name.startswith(("nvidia-", "cuda-"))]


def test_environment_yml_equals_the_lock():
    assert disagreements((ROOT / "environment.yml").read_text(), lock()) == []


@pytest.mark.parametrize(
    ("line", "instead", "fault"),
    [
        ("  - numpy ==2.4.6", "  - numpy ==2.4.5", "numpy"),
        ("  - numpy ==2.4.6", "  - numpy >=2.3", "numpy"),
        ("  - pytorch ==2.13.0\n", "", "torch"),
        ("      - modal==1.6.4\n", "", "modal"),
        ("  - ruff", "  - ruffian", "ruffian"),
    ],
)
def test_a_departing_environment_yml_is_found(line, instead, fault):
    text = (ROOT / "environment.yml").read_text()
    assert line in text
    assert any(fault in wrong for wrong in disagreements(text.replace(line, instead), lock()))


def test_a_spec_that_conda_cannot_read_is_refused():
    text = (ROOT / "environment.yml").read_text().replace("numpy ==2.4.6", "numpy >=2.0,,<")
    with pytest.raises(Exception, match="version"):
        conda(text)


def test_doctor_asks_for_the_same_versions():
    ranges = {r.name: str(r.specifier) for r in map(Requirement, PROJECT["dependencies"])}
    assert {name: f">={oldest}" for name, oldest in doctor.OLDEST.items()} == ranges


def test_python_range_is_one_everywhere():
    packages, _ = conda((ROOT / "environment.yml").read_text())
    assert packages["python"] == ">=3.11,<3.15"
    assert PROJECT["requires-python"] == ">=3.11"
    assert "oldest=11 newest=14" in (ROOT / "scripts" / "env.sh").read_text()
    assert sys.version_info >= (3, 11)
