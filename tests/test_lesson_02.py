"""Lesson 02: its figures draw what they are given, and its checks say what is wrong."""

import pytest
import torch
from drawn import words
from matplotlib.colors import same_color
from matplotlib.patches import Rectangle

from trimul.check import TOLERANCE, VARIANTS
from trimul.exercises import WrongAnswer, attempt, lesson_02
from trimul.figures import operator
from trimul.figures.style import BOUND, COLOURS
from trimul.problem import weight_shapes


def dots(axes):
    """The coordinates of single markers, in the order in which they were drawn."""
    lines = [line for line in axes.lines if line.get_marker() == "o"]
    return [tuple(point) for line in lines for point in line.get_xydata().tolist()]


def test_the_operator_shows_every_weight_and_every_tensor():
    (axes,) = operator.whole_operator().axes
    shown = " ".join(words(axes))
    for name in weight_shapes(1, 1):
        if "norm" not in name:
            assert name.removesuffix(".weight") in shown
    assert shown.count("LayerNorm") == 2
    boxes = [patch.get_facecolor() for patch in axes.patches]
    for tensor in COLOURS:
        assert sum(same_color(box, COLOURS[tensor]) for box in boxes) == 1, tensor


def test_the_mask_goes_to_both_sides_and_the_gate_past_the_contraction():
    targets = [end for start, end, _ in operator._EDGES if start == "mask"]
    assert targets == ["times left", "times right"]
    (axes,) = operator.whole_operator().axes
    arrows = [a for a in axes.texts if getattr(a, "arrow_patch", None)]
    greys = [a for a in arrows if same_color(a.arrow_patch.get_edgecolor(), COLOURS["mask"])]
    assert sorted(a.xy[0] for a in greys) == pytest.approx([12.2 + 1.7, 40.2 - 1.7])
    assert len(arrows) == len(operator._EDGES)


def test_boxes_of_the_operator_do_not_overlap():
    boxes = [(x - half, x + half, y) for x, y, half, _, _ in operator._NODES.values()]
    for index, (left, right, y) in enumerate(boxes):
        assert left >= 0 and right <= 66
        for other_left, other_right, other_y in boxes[:index]:
            assert abs(y - other_y) >= 3.4 or right <= other_left or other_right <= left


def test_the_gate_comes_before_the_projection_or_after_it():
    (axes,) = operator.gate_forms().axes
    order = [word for word in words(axes) if word in ("× gate", "to_out", "y")]
    assert order == ["× gate", "to_out", "y", "to_out", "× gate", "y"]
    shapes = [word for word in words(axes) if word.startswith("[")]
    assert [shape[-2] for shape in shapes] == list("HHHDHHDD")


def test_bits_are_drawn_one_by_one():
    (axes,) = operator.bits({"tiny": (1, 2, 3), "TF32": operator.FORMATS["TF32"]}).axes
    assert len([p for p in axes.patches if isinstance(p, Rectangle)]) == 6 + 19
    assert {"6 bits", "19 bits", "10 mantissa"} <= set(words(axes))


def test_formats_are_those_of_torch():
    for name, dtype in {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}.items():
        info = torch.finfo(getattr(torch, dtype))
        sign, exponent, mantissa = operator.FORMATS[name]
        assert (sign + exponent + mantissa, 2.0**-mantissa) == (info.bits, info.eps)


def test_error_growth_draws_measured_values_and_models():
    figure = operator.error_growth(
        [8, 16], {"a": [1e-7, 2e-7], "b": [3e-4, 3e-4]}, [[1, 2], [3, 3]]
    )
    (axes,) = figure.axes
    assert dots(axes) == [(8, 1e-7), (16, 2e-7), (8, 3e-4), (16, 3e-4)]
    dashed = [line.get_ydata().tolist() for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [[1, 2], [3, 3]] and words(axes) == ["a", "b"]


def test_error_by_stage_puts_each_error_beside_its_stage():
    (axes,) = operator.error_by_stage({"fp32": {"p": 1e-7, "q": 2e-7}, "TF32": {"q": 3e-4}}).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert [(x, names[round(y)]) for x, y in dots(axes)] == [(1e-7, "p"), (2e-7, "q"), (3e-4, "q")]
    fills = [line.get_markerfacecolor() for line in axes.lines]
    assert not same_color(fills[0], fills[1]), "the formats look alike in greyscale"


def test_error_scale_separates_rounding_from_faults_at_one():
    (axes,) = operator.error_scale({"fp16": 0.1}, {"no gate": 50, "no epsilon": 1e-3}).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    found = {names[round(y)]: x for x, y in dots(axes)}
    assert found == {"fp16": 0.1, "no gate": 50, "no epsilon": 1e-3}
    (bound,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert set(bound.get_xdata()) == {1} and same_color(bound.get_color(), BOUND)


def test_case_errors_follows_the_rows():
    case = {"n": 32, "batch": 1, "dim": 128, "masked": True, "distribution": "normal"}
    cauchy = {**case, "n": 64, "masked": False, "distribution": "cauchy"}
    (axes,) = operator.case_errors(
        [{"case": case, "max_error": 1e-6}, {"case": cauchy, "max_error": 4e-6}]
    ).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    found = {names[round(y)]: x for x, y in dots(axes)}
    assert found == {"N=32 B=1 D=128 masked": 1e-6, "N=64 B=1 D=128": 4e-6}
    (bound,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert set(bound.get_xdata()) == {TOLERANCE}
    fills = {line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "o"}
    assert len(fills) == 2, "normal and Cauchy look alike"


def test_the_mask_trap_crosses_what_left_only_counts_too_much():
    random, padding = operator.mask_trap(
        {"random": ([1, 1, 0, 1], [0, 1, 1, 0]), "padding": ([1, 1, 0, 0], [1, 1, 0, 0])}
    ).axes
    crosses = [line.get_xdata()[0] for line in random.lines if line.get_marker() == "x"]
    assert crosses == [0.5, 3.5] and "2 of 3 do not belong" in words(random)
    assert not padding.lines and "no difference" in words(padding)
    filled = [p.get_x() for p in random.patches if same_color(p.get_facecolor(), COLOURS["out"])]
    assert filled == [1]


def test_the_telling_mask_must_show_all_ten_faults():
    assert len(lesson_02.MASK_FAULTS) == 10 and set(lesson_02.MASK_FAULTS) <= set(VARIANTS)
    with pytest.raises(WrongAnswer, match=r"ignored \(and 9 more\)"):
        attempt("02.telling_mask", lambda n: torch.ones(2, n, n))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda left, right, m: (left * m, right), "right is not masked"),
        (lambda left, right, m: (left, right * m), "left is not masked"),
        (lambda left, right, m: (left, right), "nothing is masked"),
        (lambda left, right, m: (left * (m > 0), right * (m > 0)), "yes or no"),
        (
            lambda left, right, m: (left * m.transpose(1, 2), right * m.transpose(1, 2)),
            "transposed",
        ),
        (lambda left, right, m: (left * m * m, right * m * m), "applied twice"),
        (lambda left, right, m: (left * m.int(), right * m.int()), "whole numbers"),
        (lambda left, right, m: (right * m, left * m), "exchanged"),
        (lambda left, right, m: (left * m, "right"), "return two tensors"),
        (lambda left, right, m: left * m, "return two tensors"),
        (lambda left, right, m: (left * 0.9, right), "the values are wrong"),
    ],
)
def test_a_wrong_mask_step_is_told_what_is_wrong(wrong, words):
    def masked(left, right, mask):
        return wrong(left, right, mask.float().unsqueeze(-1))

    with pytest.raises(WrongAnswer, match=words):
        attempt("02.masked", masked)


def test_any_names_of_the_letters_will_do(capsys):
    assert attempt("02.subscripts", "z c a d , z d c b -> z d a b") is True
    with pytest.raises(WrongAnswer, match="outgoing"):
        attempt("02.subscripts", "bikh,bhjk->bhij")
    with pytest.raises(WrongAnswer, match="exchanged"):
        attempt("02.subscripts", "bkjh,bhki->bhij")
