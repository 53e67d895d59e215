"""A small real protein, and what the triangle inequality says about its distances (lesson 01)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

UBIQUITIN = Path(__file__).parent.parent / "assets" / "data" / "1ubi_ca.pdb"


class Protein(NamedTuple):
    """``residues``: N names such as "Ile13"; ``positions``: ``[N, 3]`` float64, in ångström."""

    residues: list[str]
    positions: torch.Tensor


def load(path: Path | str = UBIQUITIN) -> Protein:
    """The C-alpha atoms of a file in PDB format, in its order. Raises ValueError if it has none.

    Columns as in wwPDB's format 3.3: residue name 18-20, number 23-26, x, y, z from 31, 8 wide.
    """
    lines = Path(path).read_text().splitlines()
    atoms = [line for line in lines if line.startswith("ATOM") and line[12:16].strip() == "CA"]
    if not atoms:
        raise ValueError(f"{path} has no C-alpha atoms: is it a file in PDB format?")
    residues = [line[17:20].capitalize() + line[22:26].strip() for line in atoms]
    positions = [[float(line[start : start + 8]) for start in (30, 38, 46)] for line in atoms]
    return Protein(residues, torch.tensor(positions, dtype=torch.float64))


def distances(positions: torch.Tensor) -> torch.Tensor:
    """Positions ``[N, 3]`` -> distance of every pair ``[N, N]``."""
    return torch.linalg.vector_norm(positions[:, None] - positions[None, :], dim=-1)


def bounds(distance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What each third residue says about each pair: lower and upper bound, both ``[N, N, N]``.

    ``lower[i, j, k] = |d[i, k] - d[j, k]|`` and ``upper[i, j, k] = d[i, k] + d[j, k]``. Where k
    is i or j there is no triangle, and the bounds are 0 and infinity.
    """
    d_ik, d_jk = distance[:, None, :], distance[None, :, :]
    same = torch.eye(len(distance), dtype=torch.bool)
    no_triangle = same[:, None, :] | same[None, :, :]
    lower = (d_ik - d_jk).abs().masked_fill(no_triangle, 0.0)
    upper = (d_ik + d_jk).masked_fill(no_triangle, torch.inf)
    return lower, upper
