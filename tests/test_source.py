"""Showing, comparing and hashing sources."""

import pytest

from trimul import source


def test_show_gives_a_rung_or_one_function_of_it():
    assert "def contract(left, right):" in source.show("loops")
    contract = source.show("loops", "contract")
    assert contract.startswith("def contract") and "layer_norm" not in contract
    assert contract._repr_markdown_().startswith("```python\n")
    assert repr(contract) == str(contract)


def test_diff_is_the_one_idea_between_two_rungs():
    lines = source.diff("loops", "einsum").splitlines()
    assert '+        out = torch.einsum("bikh,bjkh->bijh", left, right)' in lines
    assert not any("five nested Python loops, the definition" in line for line in lines)
    assert source.diff("einsum", "einsum") == ""


@pytest.mark.parametrize("name", ["nothing", "__init__", "../problem"])
def test_what_is_not_a_rung_is_refused(name):
    with pytest.raises(ValueError, match="the ladder has"):
        source.show(name)


def test_a_missing_function_is_named():
    with pytest.raises(ValueError, match="no function 'kontract'"):
        source.show("loops", "kontract")
