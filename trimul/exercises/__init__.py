"""Exercises checked in place: ``attempt("01.flops", answer)`` ends the cell that holds the answer.

An exercise that is not attempted says so and stops nothing; a wrong answer raises WrongAnswer,
which says on what input it is wrong; a right one prints one line. ``lesson_NN.py`` holds the checks
of lesson NN.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

_CHECKS = {}


class WrongAnswer(AssertionError):
    """An answer that does not pass; the message says on what input it went wrong."""


class NotAttempted(Exception):
    """The stub is still in place."""


def exercise(name: str):
    """Register the check of an exercise: a function of the answer that raises WrongAnswer."""

    def register(check):
        if name in _CHECKS:
            raise ValueError(f"two exercises are called {name}")
        _CHECKS[name] = check
        return check

    return register


def attempt(name: str, answer) -> bool | None:
    """Check an answer: True if right, None if not attempted.

    ``answer`` is a value or a function, whatever the exercise asks for. Raises WrongAnswer if it is
    wrong, ValueError if there is no such exercise.
    """
    check = _check(name)
    try:
        check(_Attempted(answer) if callable(answer) else _given(answer))
    except NotAttempted:
        print(f"exercise {name}: not attempted yet")
        return None
    except TypeError as error:
        if callable(answer) or "not callable" not in str(error):
            raise
        raise WrongAnswer("a function is asked for: give its name, without calling it") from None
    except WrongAnswer as wrong:
        raise wrong.with_traceback(None) from None  # the message, without the source of the check
    print(f"exercise {name}: right")
    return True


def names() -> list[str]:
    """All exercises of the course, in order."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return sorted(_CHECKS)


def require(holds: bool, message: str) -> None:
    """What a check is made of: raise WrongAnswer(message) unless it holds."""
    if not holds:
        raise WrongAnswer(message)


def is_number(value) -> bool:
    """Whether an answer is a plain number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(name: str):
    module = f"lesson_{name.partition('.')[0]}"
    if module in {found.name for found in iter_modules(__path__)}:
        import_module(f"{__name__}.{module}")
    if name not in _CHECKS:
        raise ValueError(f"no exercise is called {name!r}: there are {', '.join(names())}")
    return _CHECKS[name]


class _Attempted:
    """The reader's function; calling it while its body is still ``...`` raises NotAttempted."""

    def __init__(self, function):
        self._function = function

    def __call__(self, *args, **kwargs):
        try:
            value = _given(self._function(*args, **kwargs))
        except TypeError as error:
            if "ellipsis" in str(error):
                raise NotAttempted from None
            raise
        require(value is not None, "the function returns None: is a `return` missing?")
        return value


def _given(value):
    if value is ...:
        raise NotAttempted
    return value
