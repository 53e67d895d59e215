"""What every test and every notebook under test runs in: the environment of stored outputs.

It stands at the root because pytest asks a conftest only about what lies beside and below it.
"""

import itertools
import os
import sys
import tempfile
from pathlib import Path

import pytest

from scripts.clean import clean_environment

HOME = tempfile.TemporaryDirectory(prefix="trimul-tests-")
HOMES = itertools.count()


def pytest_configure(config):
    """Before anything imports torch, and for every process that a test starts."""
    settings = clean_environment(HOME.name)
    if config.option.markexpr == "gpu":
        del settings["CUDA_VISIBLE_DEVICES"]
    os.environ.clear()
    os.environ.update(settings)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: "test_browser" not in item.nodeid)  # the slowest file starts first


def pytest_runtest_teardown():
    """No figure that a test drew stays open for the next."""
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """No test sees another's ledger; a notebook keeps the one that its first cell starts with."""
    os.environ["TRIMUL_HOME"] = str(Path(HOME.name) / f"home-{next(HOMES)}")
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU: `python -m pytest -m gpu tests` on a machine that has one")
