"""What every rung promises, beyond being right (tests/test_check.py sees to that)."""

import pytest
import torch

from trimul import rungs, source
from trimul.problem import Case, make_data

CASE = Case(n=7, batch=2, dim=16, hidden=8, masked=True, seed=11)


def run(name, data):
    rung = rungs.load(name)
    return rung.forward(data.x, data.mask, rung.pack(data.weights))


def test_every_rung_has_a_file_and_every_file_is_a_rung():
    assert {p.stem for p in source.RUNGS.glob("[!_]*.py")} == set(rungs.NAMES)


@pytest.mark.parametrize("name", rungs.NAMES)
def test_all_rungs_agree_on_any_strides(name):
    data = make_data(CASE)
    plain = run(name, data)
    assert plain.is_contiguous() and plain.dtype == torch.float32
    x = data.x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    mask = data.mask.mT.contiguous().mT
    assert not x.is_contiguous() and not mask.is_contiguous()
    torch.testing.assert_close(run(name, data._replace(x=x, mask=mask)), plain)
    torch.testing.assert_close(run("einsum", data), plain)


@pytest.mark.parametrize("name", rungs.NAMES)
def test_a_rung_changes_nothing_but_its_result(name):
    data = make_data(CASE)
    kept = [t.clone() for t in (data.x, data.mask, *data.weights.values())]
    before = torch.backends.cuda.matmul.fp32_precision
    first, second = run(name, data), run(name, data)
    assert first.data_ptr() != second.data_ptr()
    now = (data.x, data.mask, *data.weights.values())
    assert all(torch.equal(a, b) for a, b in zip(kept, now, strict=True))
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_full_fp32_puts_back_what_the_caller_had_set():
    matmul = torch.backends.cuda.matmul
    kept = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        with pytest.raises(RuntimeError, match="on the way"), rungs.full_fp32():
            assert matmul.fp32_precision == "ieee"
            raise RuntimeError("on the way")
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = kept


def test_loops_refuses_what_would_take_hours():
    with pytest.raises(ValueError, match="N <= 16.*N=17.*einsum"):
        run("loops", make_data(Case(n=17, dim=8, hidden=4)))


def test_an_unknown_rung_names_the_known_ones():
    with pytest.raises(ValueError, match="loops, einsum"):
        rungs.load("einsun")
