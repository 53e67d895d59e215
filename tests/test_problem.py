"""The definition: cases, inputs, masks, FLOPs and bytes."""

import pytest
import torch

from trimul import problem
from trimul.problem import BENCHMARK_CASES, CORRECTNESS_CASES, Case, make_data, make_mask


def test_the_contest_has_18_and_7_cases():
    assert len(CORRECTNESS_CASES) == 18
    assert len(BENCHMARK_CASES) == 7
    assert [c.n for c in BENCHMARK_CASES] == [256, 768, 256, 512, 1024, 768, 1024]
    assert sum(c.masked for c in CORRECTNESS_CASES) == 7
    assert sum(c.distribution == "cauchy" for c in CORRECTNESS_CASES) == 7
    assert max(c.dim for c in BENCHMARK_CASES) == 384
    assert len({c.seed for c in CORRECTNESS_CASES + BENCHMARK_CASES}) == 25


def test_everything_drawn_comes_from_the_seed():
    case = Case(n=5, dim=8, hidden=4, masked=True, distribution="cauchy", seed=3)
    first, again = make_data(case), make_data(case)
    other = make_data(Case(**{**case.as_dict(), "seed": 4}))
    torch.randn(7)  # the global generator must play no part
    assert torch.equal(first.x, again.x) and torch.equal(first.mask, again.mask)
    assert not torch.equal(first.x, other.x) and not torch.equal(first.mask, other.mask)
    for name, weight in first.weights.items():
        assert torch.equal(weight, again.weights[name])
        assert not torch.equal(weight, other.weights[name])


def test_shapes_and_types():
    x, mask, weights = make_data(Case(n=6, batch=2, dim=16, hidden=8, masked=True))
    assert x.shape == (2, 6, 6, 16) and x.dtype == torch.float32
    assert mask.shape == (2, 6, 6) and mask.dtype == torch.int64
    assert set(mask.unique().tolist()) == {0, 1}
    shapes = problem.weight_shapes(16, 8)
    assert {k: tuple(w.shape) for k, w in weights.items()} == shapes
    assert make_data(Case(n=6)).mask.dtype == torch.float32


def test_cauchy_inputs_have_heavy_tails():
    x = make_data(Case(n=64, dim=128, distribution="cauchy", seed=1)).x
    assert x.abs().max() > 65504  # a plain cast to fp16 overflows
    assert x.abs().median() == pytest.approx(2, rel=0.05)  # the scale of Cauchy(0, 2)


def test_weights_are_scaled_as_the_contest_scales_them():
    weights = make_data(Case(n=1, dim=384)).weights
    assert weights["left_proj.weight"].std().item() == pytest.approx(128**-0.5, rel=0.05)
    assert weights["to_out.weight"].std().item() == pytest.approx(384**-0.5, rel=0.05)
    assert weights["norm.bias"].std().item() == pytest.approx(1, rel=0.2)


@pytest.mark.parametrize("kind", problem.MASKS)
def test_masks(kind):
    mask = make_mask(kind, Case(n=16, batch=2, seed=5))
    assert mask.shape == (2, 16, 16)
    ones = (mask == 1).float().mean().item()
    if kind == "ones":
        assert ones == 1
    elif kind == "random":
        assert 0.3 < ones < 0.7 and not torch.equal(mask, mask.mT)
    elif kind == "soft":
        assert ones < 0.01 and 0.4 < mask.mean().item() < 0.6
    else:
        assert mask.dtype == torch.bool and torch.equal(mask, mask.mT) and 0 < ones < 1
        assert mask[:, :12, :12].all() and not mask[:, 12:].any()


def test_flops_and_bytes_at_the_size_of_the_post():
    project, contract, output = problem.stages(Case(n=1024))
    assert contract.flops == 274_877_906_944  # 2 * 1024^3 * 128, not 137e9
    assert project.flops == 5 * output.flops == 171_798_691_840
    assert contract.bytes == 3 * 1024**2 * 128 * 2
    assert contract.intensity == pytest.approx(1024 / 3)
    whole = problem.operator(Case(n=1024))
    assert whole.flops == project.flops + contract.flops + output.flops
    assert whole.bytes == 1024**2 * (128 * 4 * 2 + 4)


def test_counts_are_exact_far_beyond_32_bits():
    contract = problem.stages(Case(n=100_003, batch=3))[1]
    assert contract.flops == 2 * 3 * 100_003**3 * 128
    assert contract.bytes == 3 * 3 * 100_003**2 * 128 * 2


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"n": 0}, "Case.n"),
        ({"n": 2.0}, "Case.n"),
        ({"n": True}, "Case.n"),
        ({"n": 4, "batch": -1}, "Case.batch"),
        ({"n": 4, "distribution": "uniform"}, "normal, cauchy"),
    ],
)
def test_bad_cases_say_what_is_wrong(fields, word):
    with pytest.raises(ValueError, match=word):
        Case(**fields)


def test_an_unknown_mask_names_the_known_ones():
    with pytest.raises(ValueError, match="ones, random, soft, padding"):
        make_mask("causal", Case(n=4))
