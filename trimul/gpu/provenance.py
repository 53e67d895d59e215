"""Where and when something ran: the stamp on every measurement and every recording."""

from __future__ import annotations

import subprocess
import uuid
from datetime import UTC, datetime

#: The fields of a stamp.
FIELDS = ("gpu", "driver", "torch", "triton", "date", "run")


def provenance(device: str = "cpu") -> dict:
    """gpu, driver, torch, triton, date (UTC), and a fresh id of this run; "none" is no GPU."""
    import torch

    on_gpu = torch.device(device).type == "cuda"
    return {
        "gpu": torch.cuda.get_device_name(device) if on_gpu else "none",
        "driver": _driver() if on_gpu else "none",
        "torch": torch.__version__,
        "triton": _triton_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "run": uuid.uuid4().hex[:12],
    }


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def _triton_version() -> str:
    try:
        import triton
    except ImportError:
        return "none"
    return triton.__version__
