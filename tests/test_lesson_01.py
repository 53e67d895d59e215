"""Lesson 01: the protein, its bounds, the figures, and what the exercises tell who errs."""

import io
import itertools

import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from trimul import protein
from trimul.exercises import WrongAnswer, attempt
from trimul.figures import triangle
from trimul.figures.style import COLOURS
from trimul.problem import Case, stages


@pytest.fixture(scope="module")
def distance():
    return protein.distances(protein.load().positions)


def test_the_file_is_ubiquitin_as_its_own_header_says():
    residues, positions = protein.load()
    records = protein.UBIQUITIN.read_text().splitlines()
    sequence = " ".join(line[19:] for line in records if line.startswith("SEQRES")).split()
    assert [name.rstrip("0123456789").upper() for name in residues] == sequence
    assert residues[12] == "Ile13" and positions.shape == (76, 3)
    assert any("CC0" in line for line in records) and any("ALEXEEV" in line for line in records)
    steps = (positions[1:] - positions[:-1]).norm(
        dim=1
    )  # C-alpha atoms of neighbours: 3.8 ångström
    assert (steps - 3.8).abs().max() < 0.15


def test_a_file_without_c_alpha_atoms_is_refused(tmp_path):
    empty = tmp_path / "empty.pdb"
    empty.write_text("HEADER\nEND\n")
    with pytest.raises(ValueError, match="no C-alpha"):
        protein.load(empty)


def test_distances_and_bounds_are_those_of_the_definition():
    points = torch.tensor([[0, 0, 0], [3, 4, 0], [0, 0, 12], [1, 1, 1]], dtype=torch.float64)
    distance = protein.distances(points)
    assert distance[0, 1] == 5 and distance[2, 1] == 13 and (distance.diagonal() == 0).all()
    lower, upper = protein.bounds(distance)
    for i, j, k in itertools.product(range(4), repeat=3):
        if k in (i, j):
            assert lower[i, j, k] == 0 and upper[i, j, k] == torch.inf
        else:
            assert lower[i, j, k] == abs(distance[i, k] - distance[j, k])
            assert upper[i, j, k] == distance[i, k] + distance[j, k]


def picture(figure) -> bytes:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=40)
    return png.getvalue()


@pytest.mark.parametrize(("direction", "is_row"), [("outgoing", True), ("incoming", False)])
def test_outgoing_meets_along_rows_and_incoming_along_columns(direction, is_row):
    axes = triangle.meeting((direction,), n=5, i=1, j=3, k=4).axes[0]
    seen = set()
    for name in ("left", "right"):
        cells = [p for p in axes.patches if to_rgb(p.get_facecolor()) == to_rgb(COLOURS[name])]
        cells = [cell.get_xy() for cell in cells if isinstance(cell, Rectangle)]
        columns, rows = (
            {round(place, 6) for place in places} for places in zip(*cells, strict=True)
        )
        assert (len(columns), len(rows)) == ((5, 1) if is_row else (1, 5))
        seen.add(tuple(sorted(rows)))
    assert len(seen) == (2 if is_row else 1)  # rows i and j, or the same k down both columns
    titles = {text.get_text() for text in axes.texts}
    expected = {"left[i, k]", "right[j, k]"} if is_row else {"left[k, i]", "right[k, j]"}
    assert expected | {"out[i, j]", direction} <= titles


def test_the_triangle_moves_with_its_indices():
    assert picture(triangle.meeting(i=2)) != picture(triangle.meeting())


def test_the_distance_map_is_drawn_from_the_distances(distance):
    figure = triangle.distance_map(distance, 12, 66)
    grid, plot = figure.axes
    assert (torch.as_tensor(grid.images[0].get_array()) == distance).all()
    assert "9.7" in plot.get_title() and "k = 45" in {text.get_text() for text in plot.texts}
    known = [k for k in range(76) if k not in (12, 66)]
    low, high = (torch.as_tensor(line.get_ydata()) for line in plot.lines[:2])
    assert (low == (distance[12] - distance[66]).abs()[known]).all()
    assert (high == (distance[12] + distance[66])[known]).all()
    assert picture(triangle.distance_map(distance, 3, 40)) != picture(figure)


def test_charts_are_drawn_from_their_data():
    (line,) = triangle.consulted([1, 4], [20.0, 2.0]).axes[0].lines
    assert list(line.get_ydata()) == [20.0, 2.0]
    amounts, ratio = triangle.growth((64, 128), 50.0, "a processor").axes
    work = [stages(Case(n))[1] for n in (64, 128)]
    flops, bytes_ = (list(line.get_ydata()) for line in amounts.lines)
    assert flops == [stage.flops for stage in work] and bytes_ == [stage.bytes for stage in work]
    intensity, bound = (list(line.get_ydata()) for line in ratio.lines)
    assert intensity == [64 / 3, 128 / 3] and bound == [50.0, 50.0]
    assert ratio.texts[0].get_text() == "a processor: 50"


def einsum(subscripts):
    return lambda left, right: torch.einsum(subscripts, *map(torch.tensor, (left, right))).tolist()


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("01.flops", lambda n, batch, hidden: batch * n**3 * hidden, "multiply-adds"),
        ("01.range", 192, "D=384 for the hidden size and forgets B=2"),
        ("01.range", 96, "H is 128"),
        ("01.range", 64, "forgets that the smallest"),
        ("01.range", 1 / 32, "smallest over the largest"),
        ("01.incoming", einsum("bikh,bjkh->bijh"), "outgoing"),
        ("01.incoming", einsum("bkjh,bkih->bijh"), "exchanged"),
        ("01.incoming", einsum("bikh,bkjh->bijh"), "left is read along row i"),
        ("01.incoming", einsum("bkih,bjkh->bijh"), "right is read along row j"),
        ("01.incoming", lambda left, right: left[0], "shape"),
        ("01.tile_reads", lambda n, tile: n**2 * -(-n // tile), "right too"),
        ("01.tile_reads", lambda n, tile: 2 * n**3 // tile**2, "not T\\*T"),
        ("01.tile_reads", lambda n, tile: 2 * n**3 / tile, "does not divide"),
        ("01.tile_reads", lambda n, tile: 2 * n**2 * (n // tile), "smaller tiles"),
    ],
)
def test_a_wrong_answer_is_told_what_is_wrong(name, answer, words):
    with pytest.raises(WrongAnswer, match=words):
        attempt(name, answer)


def test_the_incoming_check_says_where():
    def one_element_off(left, right):
        out = einsum("bkih,bkjh->bijh")(left, right)
        out[1][2][0][1] += 1
        return out

    with pytest.raises(WrongAnswer, match=r"out\[1, 2, 0, 1\] is"):
        attempt("01.incoming", one_element_off)
