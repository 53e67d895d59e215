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


def test_the_digest_sees_code_and_nothing_else(tmp_path):
    def digest(text):
        path = tmp_path / "module.py"
        path.write_text(text)
        return source.digest(path)

    plain = digest("def f(a):\n    return a + 1\n")
    assert (
        digest('"""Why."""\n\ndef f(a):  # add\n    """Doc."""\n    return (a\n        + 1)\n')
        == plain
    )
    assert digest("def f(a):\n    return a + 2\n") != plain
    assert plain == "b600ca82e47b4680"  # on every Python: the machine that measures has another
    assert digest("def f(a):\n    'only a docstring'\n") == digest("def f(a):\n    pass\n")
