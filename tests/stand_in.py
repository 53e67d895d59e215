"""A folder to run ``%%gpu`` cells in, where torch is a stand-in: it has a GPU, or has none.

Python looks there first. Importing the real torch takes two seconds of every cell, which most of
what is tested does not need. IPython is not there at all: machines that record have none.
"""

from pathlib import Path

TORCH = """from types import SimpleNamespace

__version__ = "1.2.stand.in"
GPU = {gpu!r}
cuda = SimpleNamespace(is_available=lambda: GPU != "none", get_device_name=lambda device: GPU)


def device(name):
    return SimpleNamespace(type=name)
"""


def put(folder: Path, gpu: str = "none") -> Path:
    """Write the stand-ins into a folder."""
    (folder / "torch.py").write_text(TORCH.format(gpu=gpu))
    (folder / "triton.py").write_text('__version__ = "3.stand.in"\n')
    (folder / "IPython.py").write_text('raise ImportError("no IPython is here")\n')
    return folder
