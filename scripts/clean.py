"""The state that tests and stored outputs start from, whosever machine it is.

Needs the standard library alone: the machine that measures has pytest and no notebooks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def clean_environment(home: str) -> dict[str, str]:
    """The process environment of stored outputs and tests; ``home`` is an empty folder.

    It hides the GPU, the token, the ledger and the settings of whoever runs it, so that the same
    notebook shows the same everywhere.
    """
    theirs = ("MODAL_", "JUPYTER_", "TRITON_", "TORCH_", "TRIMUL_", "MPLBACKEND")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(theirs)}
    return kept | {
        "TRIMUL_GPU": "recording",
        "TRIMUL_HOME": os.path.join(home, "trimul"),
        "CUDA_VISIBLE_DEVICES": "",
        "MODAL_CONFIG_PATH": os.path.join(home, "modal.toml"),
        "IPYTHONDIR": os.path.join(home, "ipython"),
        "JUPYTER_CONFIG_DIR": os.path.join(home, "jupyter"),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(ROOT),
        "TQDM_DISABLE": "1",
        "NO_COLOR": "1",
    }


def warm_up() -> None:
    """Build matplotlib's font cache now: a slow machine would announce it inside a cell."""
    subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], capture_output=True)
