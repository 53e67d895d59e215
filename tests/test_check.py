"""The float64 reference against the definition, the named mistakes, and the comparison."""

import itertools
import math

import pytest
import torch

from trimul import check, grade, probes, rungs
from trimul.problem import EPS, Case, make_data, make_mask

SMALL = Case(n=3, batch=2, dim=5, hidden=4, masked=True, seed=1)


def norm(values, weight, bias):
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    return [
        (v - mean) / math.sqrt(variance + EPS) * w + b
        for v, w, b in zip(values, weight, bias, strict=True)
    ]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


def by_definition(x, mask, weights):
    """The operator as the paper writes it, one number at a time, in Python's own float64."""
    x, mask = x.double().tolist(), mask.double().tolist()
    w = {name: weight.double().tolist() for name, weight in weights.items()}
    batch, n, hidden = len(x), len(x[0]), len(w["to_out_norm.weight"])
    y = torch.empty(batch, n, n, len(x[0][0][0]), dtype=torch.float64)
    for b in range(batch):
        normal = [[norm(v, w["norm.weight"], w["norm.bias"]) for v in row] for row in x[b]]

        def side(name, i, k, h, b=b, normal=normal):
            value = dot(normal[i][k], w[f"{name}_proj.weight"][h])
            return value * sigmoid(dot(normal[i][k], w[f"{name}_gate.weight"][h])) * mask[b][i][k]

        for i, j in itertools.product(range(n), repeat=2):
            out = [
                sum(side("left", i, k, h) * side("right", j, k, h) for k in range(n))
                for h in range(hidden)
            ]
            out = norm(out, w["to_out_norm.weight"], w["to_out_norm.bias"])
            gate = [sigmoid(dot(normal[i][j], row)) for row in w["out_gate.weight"]]
            gated = [o * g for o, g in zip(out, gate, strict=True)]
            y[b, i, j] = torch.tensor(
                [dot(gated, row) for row in w["to_out.weight"]], dtype=torch.float64
            )
    return y


@pytest.mark.parametrize("mask", ["random", "soft", "ones", "padding"])
def test_exact_is_the_definition(mask):
    data = make_data(SMALL)._replace(mask=make_mask(mask, SMALL))
    assert (check.exact(*data) - by_definition(*data)).abs().max() < 1e-12


def test_exact_takes_any_strides_and_chunks_of_rows(monkeypatch):
    x, mask, weights = make_data(Case(n=7, batch=2, dim=8, hidden=8, masked=True, seed=2))
    whole = check.exact(x, mask, weights)
    monkeypatch.setattr(check, "CHUNK", 7 * 8 * 3)  # three rows at a time, then one
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    turned = mask.transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous() and not turned.is_contiguous()
    assert (check.exact(strided, turned, weights) - whole).abs().max() < 1e-12
    assert check.compare(whole, whole).ok


def test_exact_changes_nothing():
    data = make_data(SMALL)
    before = [t.clone() for t in (data.x, data.mask, *data.weights.values())]
    check.compare(check.exact(*data).float(), check.exact(*data))
    assert all(map(torch.equal, before, (data.x, data.mask, *data.weights.values())))


TELLING = [probe for probe in probes.corners(False) if probe.telling]


@pytest.mark.parametrize("name", check.VARIANTS)
def test_each_named_mistake_shows_on_a_probe(name):
    """On some probe the mistake's result is wrong, and no other mistake gives the same."""

    def wrong(other, probe):
        return check.compare(
            grade.truth(probe, 0, "cpu", other).float(), grade.truth(probe, 0, "cpu")
        ).wrong

    def same(other, probe):
        ours, theirs = (grade.truth(probe, 0, "cpu", variant) for variant in (name, other))
        return check.compare(ours.float(), theirs).ok

    square = [probe for probe in TELLING if probe.case.dim == probe.case.hidden]
    revealing = [probe for probe in square if wrong(name, probe) > 0.01]
    assert revealing
    others = [other for other in check.VARIANTS if other != name]
    for probe in revealing:
        others = [other for other in others if same(other, probe)]
    assert not others


def test_a_gate_of_width_h_cannot_follow_a_projection_to_another_width():
    assert check.can_be({"gate_last": True}, 128, 128)
    assert not check.can_be({"gate_last": True}, 384, 128)


def test_ones_masks_and_padding_masks_do_not_show_a_mask_on_one_side():
    """Why the probes have random masks: the mask trap of the lesson on the reference."""
    case = Case(n=8, seed=3)
    for kind, shows in (("ones", False), ("random", True)):
        data = make_data(case)._replace(mask=make_mask(kind, case))
        left_only = check.exact(*data, mask_on=("left",))
        assert check.compare(left_only, check.exact(*data)).ok != shows


# --- compare --------------------------------------------------------------------------------------


@pytest.fixture
def expected():
    return torch.linspace(-3, 3, 2 * 8 * 8 * 6, dtype=torch.float64).view(2, 8, 8, 6)


def test_equal_is_right(expected):
    result = check.compare(expected.clone(), expected)
    assert result.ok and result.max_error == 0 and result.wrong == 0 and result.pattern == ""


@pytest.mark.parametrize(("share", "ok"), [(0.99, True), (1.01, False)])
def test_the_tolerance_is_the_contest_s(expected, share, ok):
    assert check.compare(expected + share * (0.02 + 0.02 * expected.abs()), expected).ok == ok
    assert check.compare(expected - share * (0.02 + 0.02 * expected.abs()), expected).ok == ok


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_not_finite_is_wrong(expected, value):
    y = expected.clone()
    y[0, 0, 0, 0] += 100
    y[1, 2, 3, 4] = value
    result = check.compare(y, expected)
    assert not result.ok and result.nonfinite == 1
    assert result.worst == (1, 2, 3, 4) and not math.isfinite(result.got)
    assert not check.compare(y, y).ok, "not even where the same was expected"


@pytest.mark.parametrize(
    ("place", "pattern"),
    [
        (lambda y: y[1], "only batch 1"),
        (lambda y: y[:, 5:], "only rows i >= 5"),
        (lambda y: y[:, :3], "only rows i <= 2"),
        (lambda y: y[:, :, 1::2], "only odd columns j"),
        (lambda y: y[..., 0::2], "only even channels d"),
        (lambda y: y[:, 2:4], "only rows i 2 to 3"),
        (lambda y: y[0, 4, 1, 2:3], "only batch 0, row i = 4, column j = 1, channel d = 2"),
        (lambda y: y[:, :, [0, 1, 5]], "only 3 of 8 columns j"),
        (lambda y: y, "everywhere"),
    ],
)
def test_the_pattern_says_where(expected, place, pattern):
    bad = torch.zeros_like(expected)
    # a list of indices makes a copy: write through the index instead
    if "3 of 8" in pattern:
        bad[:, :, [0, 1, 5]] = 1
    else:
        place(bad).fill_(1)
    result = check.compare(expected + bad, expected)
    assert result.pattern == pattern
    assert result.wrong == pytest.approx(bad.mean().item())
    assert bad[result.worst] == 1


def test_chunks_give_the_same_comparison(expected, monkeypatch):
    y = expected + torch.randn(expected.shape, generator=torch.Generator().manual_seed(0)) / 30
    whole = check.compare(y, expected)
    monkeypatch.setattr(check, "CHUNK", 100)
    chunked = check.compare(y, expected)
    assert chunked.relative_error == pytest.approx(whole.relative_error)
    assert (chunked.worst, chunked.wrong, chunked.max_error) == (
        whole.worst,
        whole.wrong,
        whole.max_error,
    )


def test_shapes_must_agree(expected):
    with pytest.raises(ValueError, match="shape"):
        check.compare(expected[:1], expected)


# --- the error that rounding should give ----------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rounding_gives_about_the_expected_error(dtype):
    """Measured with operands rounded to the dtype and sums in fp32, within the promised factor."""
    case = Case(n=24, seed=4)
    x, mask, weights = make_data(case)
    expected = check.exact(x, mask, weights)
    if dtype == "float32":
        y = rungs.load("einsum").forward(x, mask, weights)
    else:
        y = _rounded(x, mask, weights, getattr(torch, dtype))
    measured = check.compare(y, expected)
    rms = expected.square().mean().sqrt().item()
    model = check.expected_error(dtype, tuple(x.shape), rms=rms)
    assert model.relative / 4 < measured.relative_error < model.relative * 4
    assert model.largest / 4 < measured.max_error < model.largest * 4
    assert check.nearest_dtype(measured.relative_error, tuple(x.shape)).startswith(dtype)


def _rounded(x, mask, w, dtype):
    def r(t):
        return t.to(dtype).float()

    n = r(torch.nn.functional.layer_norm(x, x.shape[-1:], w["norm.weight"], w["norm.bias"]))
    p = {name: r(weight) for name, weight in w.items()}

    def side(s):
        value = (n @ p[f"{s}_proj.weight"].T) * (n @ p[f"{s}_gate.weight"].T).sigmoid()
        return r(value * mask.unsqueeze(-1))

    out = r(torch.einsum("bikh,bjkh->bijh", side("left"), side("right")))
    out = torch.nn.functional.layer_norm(
        out, out.shape[-1:], w["to_out_norm.weight"], w["to_out_norm.bias"]
    )
    gate = r((n @ p["out_gate.weight"].T).sigmoid())
    return r(out * gate) @ p["to_out.weight"].T
