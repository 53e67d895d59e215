"""How an exercise is checked in place."""

import pytest

from trimul import exercises
from trimul.exercises import WrongAnswer, attempt, exercise, require


@pytest.fixture
def doubling(monkeypatch):
    exercises.names()  # the lessons register once, and not in the copy
    monkeypatch.setattr(exercises, "_CHECKS", dict(exercises._CHECKS))

    @exercise("99.double")
    def _(answer):
        require(answer(3) == 6, f"double(3) is 6, not {answer(3)}")

    @exercise("99.value")
    def _(answer):
        require(answer == 6, "twice three")


def stub(a):
    return ...


def test_right_wrong_and_not_attempted(doubling, capsys):
    assert attempt("99.double", lambda a: 2 * a) is True
    assert attempt("99.value", 6) is True
    with pytest.raises(WrongAnswer, match=r"double\(3\) is 6, not 9") as wrong:
        attempt("99.double", lambda a: a * a)
    assert wrong.traceback[-1].name == "attempt", "the traceback shows the check"
    with pytest.raises(WrongAnswer, match="`return` missing"):
        attempt("99.double", lambda a: None)
    for unattempted in (stub, lambda a: 2 * ...):
        assert attempt("99.double", unattempted) is None
    assert attempt("99.value", ...) is None
    assert capsys.readouterr().out.count("not attempted yet") == 3


def test_a_value_in_place_of_a_function_is_said_so(doubling):
    with pytest.raises(WrongAnswer, match="a function is asked for"):
        attempt("99.double", 6)


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
