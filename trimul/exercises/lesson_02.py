"""Checks of lesson 02: subscripts of an einsum, the mask step, a mask that tells faults apart."""

from __future__ import annotations

import torch

from trimul.check import VARIANTS, compare, exact
from trimul.exercises import exercise, require
from trimul.problem import Case, make_data

#: What someone writes instead, and what to call it.
_OTHER_SUBSCRIPTS = {
    "bikh,bhjk->bhij": "this is the outgoing update; incoming sums over the first residue of both",
    "bkjh,bhki->bhij": "left and right are exchanged: left goes with i, right with j",
    "bikh,bhkj->bhij": "left is read along row i; incoming reads column i, left[b, k, i, h]",
    "bkih,bhjk->bhij": "right is read along row j; incoming reads column j, right[b, h, k, j]",
}


@exercise("02.subscripts")
def _(subscripts):
    require(isinstance(subscripts, str), "the answer is a string, such as 'ij,jk->ik'")
    generator = torch.Generator().manual_seed(2)
    left = torch.randint(1, 10, (2, 3, 3, 5), generator=generator).double()
    right = torch.randint(1, 10, (2, 5, 3, 3), generator=generator).double()
    expected = torch.einsum("bkih,bhkj->bhij", left, right)
    try:
        got = torch.einsum(subscripts, left, right)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0].removeprefix("einsum(): ")
        require(False, f"left is [2, 3, 3, 5] and right [2, 5, 3, 3], and einsum says: {reason}")
    require(
        got.shape == expected.shape,
        f"with B=2, N=3, H=5 the result has the shape {list(got.shape)}, not [2, 5, 3, 3]",
    )
    same_as = [
        why
        for other, why in _OTHER_SUBSCRIPTS.items()
        if torch.equal(got, torch.einsum(other, left, right))
    ]
    require(
        torch.equal(got, expected),
        same_as[0]
        if same_as
        else "the shape is right and the numbers are not: which letter is "
        "summed, and where does it stand in left and in right?",
    )


def _mask_faults(left, right, mask):
    """What a wrong mask step returns -> what is wrong with it."""
    m = mask.double().unsqueeze(-1)
    on = (m != 0).double()
    return (
        ((left * m, right), "right is not masked: in k, m[i, k] and m[j, k] both count"),
        ((left, right * m), "left is not masked: in k, m[i, k] and m[j, k] both count"),
        ((left, right), "nothing is masked"),
        ((left * on, right * on), "the mask acts as yes or no, and 0.5 means half"),
        ((left * m.trunc(), right * m.trunc()), "the mask is cut to whole numbers: 0.5 means half"),
        ((left * m * m, right * m * m), "the mask is applied twice"),
        ((right * m, left * m), "left and right are exchanged: return left first"),
        (
            (left * m.transpose(1, 2), right * m.transpose(1, 2)),
            "the mask is transposed: element [b, i, k] of both tables takes mask[b, i, k]",
        ),
    )


@exercise("02.masked")
def _(masked):
    generator = torch.Generator().manual_seed(3)
    left, right = (torch.rand(2, 4, 4, 3, generator=generator) for _ in range(2))
    soft = torch.rand(2, 4, 4, generator=generator)
    soft[0, 0, 0] = 0.0
    for kind, mask in {"soft": soft, "int64": soft.gt(0.5).long(), "bool": soft.gt(0.5)}.items():
        before = left.clone(), right.clone(), mask.clone()
        try:
            answer = masked(left, right, mask)
        except RuntimeError as error:
            require(False, f"with a {kind} mask [2, 4, 4] and left [2, 4, 4, 3]: {error}")
        after = left, right, mask
        require(
            all(torch.equal(a, b) for a, b in zip(before, after, strict=True)),
            f"with a {kind} mask an input was changed in place: return new tensors",
        )
        require(
            isinstance(answer, tuple | list)
            and len(answer) == 2
            and all(isinstance(t, torch.Tensor) for t in answer),
            "return two tensors: return left, right",
        )
        require(
            all(t.shape == left.shape and t.dtype == left.dtype for t in answer),
            f"with a {kind} mask the results are {[list(t.shape) for t in answer]} of "
            f"{[str(t.dtype) for t in answer]}, not twice [2, 4, 4, 3] of torch.float32",
        )
        factor = mask.double().unsqueeze(-1)
        if _both_near(answer, (left * factor, right * factor)):
            continue
        faults = _mask_faults(left, right, mask)
        why = [words for wrong, words in faults if _both_near(answer, wrong)]
        require(False, f"with a {kind} mask: {why[0] if why else 'the values are wrong'}")


def _both_near(got, expected):
    return all(
        torch.allclose(g.double(), e.double(), atol=1e-6)
        for g, e in zip(got, expected, strict=True)
    )


#: The faults that a mask can show.
MASK_FAULTS = [name for name in VARIANTS if "the mask" in name]


@exercise("02.telling_mask")
def _(telling_mask):
    n = 9
    mask = torch.as_tensor(telling_mask(n))
    require(
        mask.shape == (2, n, n),
        f"for n={n} the mask has the shape {list(mask.shape)}, not [2, {n}, {n}]",
    )
    values = mask.double()
    require(bool(((values >= 0) & (values <= 1)).all()), "the values of a mask lie between 0 and 1")
    x, _, weights = make_data(Case(n, batch=2, dim=32, hidden=16, seed=4))
    right = exact(x, mask, weights)
    passing = [
        name for name in MASK_FAULTS if compare(exact(x, mask, weights, **VARIANTS[name]), right).ok
    ]
    more = f" (and {len(passing) - 1} more)" if len(passing) > 1 else ""
    require(not passing, f"under this mask a fault goes unseen: {(passing or [''])[0]}{more}")
