"""How an exercise is checked in place."""

import pytest

from trimul import exercises
from trimul.exercises import WrongAnswer, attempt, exercise, require


@pytest.fixture
def doubling(monkeypatch):
    monkeypatch.setattr(exercises, "_CHECKS", dict(exercises._CHECKS))

    @exercise("99.double")
    def _(answer):
        require(answer(3) == 6, f"double(3) is 6, not {answer(3)}")

    @exercise("99.value")
    def _(answer):
        require(answer == 6, "twice three")


def stub(a): ...


def test_right_wrong_and_not_attempted(doubling, capsys):
    assert attempt("99.double", lambda a: 2 * a) is True
    assert attempt("99.value", 6) is True
    with pytest.raises(WrongAnswer, match=r"double\(3\) is 6, not 9"):
        attempt("99.double", lambda a: a * a)
    for unattempted in (stub, lambda a: 2 * ..., lambda a: None):
        assert attempt("99.double", unattempted) is None
    assert attempt("99.value", ...) is None
    assert capsys.readouterr().out.count("not attempted yet") == 4


def test_the_readers_own_errors_come_through(doubling):
    with pytest.raises(ZeroDivisionError):
        attempt("99.double", lambda a: a / 0)
    with pytest.raises(TypeError, match="unsupported operand"):
        attempt("99.double", lambda a: a + "x")


def test_names_are_unique_and_known(doubling):
    with pytest.raises(ValueError, match="two exercises"):
        exercise("99.double")(None)
    with pytest.raises(ValueError, match="no exercise is called '99.tripple'"):
        attempt("99.tripple", 1)
