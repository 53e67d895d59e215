"""A GPU rented from Modal: the one opt-in of a notebook, a cell's call, and what was spent.

``rent`` agrees to a sum for one day; ``run`` sends a cell's program to the function ``run_cell`` of
``modal_app.py``, which runs it as ``trimul.gpu.local`` does here. Nothing is billed before both.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import importlib.util
import os
import secrets
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from trimul import ledger
from trimul.gpu import prices
from trimul.gpu.explain import NO_TOKEN, RentFailed, explain
from trimul.gpu.local import ROOT, TIMEOUT_S
from trimul.gpu.prices import GPU, START_S, check_gpu, dollars

STOP_S = 30  # beyond a cell's own time limit; then Modal ends the container
CELL_S = int(TIMEOUT_S) + STOP_S  # Modal's limit for a cell that asks for no other
IDLE_S = 20  # so long a container waits for the next cell; counted as if it were billed

HOW = 'from trimul.gpu import rent; rent(dollars=1, on="YYYY-MM-DD"), with the date of today'


@dataclass
class Session:
    """What was agreed on; and while the app is open, its module and the sources it uploaded."""

    dollars: float
    on: str
    gpu: str
    module: object = None
    uploaded: frozenset = frozenset()
    open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def close(self) -> None:
        """Stop the app and its containers; the next cell opens it anew."""
        self.module = None
        with contextlib.suppress(Exception), _quietly():
            self.open.close()


_session: Session | None = None


# --- the opt-in -----------------------------------------------------------------------------------


def rent(dollars: float | None = None, on: str = "", gpu: str = GPU) -> None:
    """Agree to spend up to so many dollars today on rented GPUs for ``%%gpu`` cells.

    The sum is a limit for the day, over all sessions; what was agreed on before in this one ends.
    ``on`` is today's date (2026-12-01 say), so that a notebook that is run again tomorrow bills
    nothing. ``dollars=None`` says what to do.
    Raises ValueError for an unknown GPU or what is no sum, RentFailed where Modal cannot be used.
    """
    global _session
    give_back()
    if dollars is None:
        print(f"Nothing is rented. To rent: {HOW}.")
        return
    if isinstance(dollars, bool) or not isinstance(dollars, int | float) or not 0 < dollars < 1000:
        raise ValueError(f"dollars is a sum for one day, such as dollars=1, not {dollars!r}")
    gpu = check_gpu(gpu)
    if os.environ.get("TRIMUL_GPU") == "recording":
        print("Nothing is rented: TRIMUL_GPU=recording shows recordings alone.")
        return
    if on != _today():
        says = f"the cell says {on!r}" if on else "the cell has no date"
        print(f'Nothing is rented: {says}, and a yes is good for one day: on="{_today()}".')
        return
    _need_modal()
    left, price = max(0.0, dollars - spent_today()), prices.dollars(gpu, 1)
    _session = Session(float(dollars), on, gpu)
    print(
        f"Rented when a cell needs it: {gpu}, for up to ${dollars:.2f} today, of which ${left:.2f} "
        f"is left: {left / price / 60:.0f} minutes at ${3600 * price:.2f} an hour "
        f"({prices.SOURCE}). It ends with this session, or with give_back()."
    )


def _need_modal() -> None:
    try:
        from modal.config import config
    except ImportError as error:
        raise RentFailed(explain(error)) from None
    if not (config.get("token_id") and config.get("token_secret")):
        raise RentFailed(NO_TOKEN)


def is_rented() -> bool:
    """Whether a GPU was agreed on in this session, today."""
    return _session is not None and _session.on == _today()


def give_back() -> None:
    """End what was rented: its containers stop, and so does the bill. Again does nothing."""
    global _session
    session, _session = _session, None
    if session is not None:
        session.close()


atexit.register(give_back)


# --- what was spent -------------------------------------------------------------------------------


def spent_today() -> float:
    """Dollars that today's calls cost at most; a call that never came back counts in full.

    Raises RentFailed for a ledger that is there and cannot be read.
    """
    calls = {}
    try:
        noted = ledger.entries(_ledger())
    except FileNotFoundError:
        return 0.0
    except OSError as error:
        raise _no_ledger(error) from None
    for entry in noted:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if entry["date"] == _today():
                calls[entry["call"]] = max(0.0, float(entry["dollars"]))
    return sum(calls.values())


def _note(**entry) -> None:
    """Add a line to the ledger. Raises RentFailed: without it the limit cannot be kept."""
    try:
        ledger.append(_ledger(), entry)
    except OSError as error:
        raise _no_ledger(error) from None


@contextlib.contextmanager
def _alone():
    """One session at a time: what is left must not be spent by two."""
    path = _ledger().with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise _no_ledger(error) from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _no_ledger(error: OSError) -> RentFailed:
    return RentFailed(
        f"what is spent cannot be noted ({error}), so nothing is rented: set TRIMUL_HOME to a "
        "folder that can be written"
    )


def _ledger() -> Path:
    return ledger.home() / "rented.jsonl"


def _today() -> str:
    return date.today().isoformat()


# --- a cell of a notebook -------------------------------------------------------------------------


def run(
    source: str,
    name: str = "",
    timeout: float = TIMEOUT_S,
    gpu: str = "",
    tick: Callable[[float, str], None] = lambda seconds, state: None,
) -> dict:
    """Run a program on a rented GPU; returns its run document, with ``dollars``: its cost at most.

    ``tick`` is given the seconds so far and what is going on. Raises RentFailed, in one sentence,
    where nothing was agreed on, where the rest of the day's sum does not cover the time limit, and
    where no answer comes. An interrupt ends the container and goes up as KeyboardInterrupt.
    """
    if not is_rented():
        raise RentFailed(f"nothing is rented today; to rent: {HOW}")
    session = _session
    try:
        gpu = check_gpu(gpu or session.gpu)
    except ValueError as error:
        raise RentFailed(str(error)) from None
    entry = {"call": secrets.token_hex(6), "gpu": gpu, "name": name, "date": _today()}
    with _alone():
        most = _within(session, gpu, timeout)
        _note(**entry, seconds=None, dollars=most)  # stands if no other follows
    started, ended = None, True
    try:
        with _quietly():
            module = _opened(session, tick)
            started = time.monotonic()
            document = _call(on(module.run_cell, gpu, timeout), (source, name, timeout), tick)
    except BaseException as error:
        ended = not getattr(error, "may_run_on", False)
        session.close()  # whatever it was, the next cell starts afresh
        if isinstance(error, Exception):
            raise RentFailed(explain(error)) from None
        raise
    finally:
        seconds = time.monotonic() - started if started else 0.0
        cost = min(most, dollars(gpu, seconds + IDLE_S)) if started else 0.0
        if ended:
            with contextlib.suppress(RentFailed):  # then the first note stands
                _note(**entry, seconds=round(seconds, 2), dollars=cost)
    _expect_torch(document, module.PINS["torch"])
    return {**document, "dollars": cost}


def _within(session: Session, gpu: str, timeout: float) -> float:
    """What a cell can cost. Raises RentFailed if less of the day's sum is left."""
    most = dollars(gpu, START_S + max(timeout, TIMEOUT_S) + STOP_S + IDLE_S)  # as ``on`` has it
    left = max(0.0, session.dollars - spent_today())
    if most > left:
        raise RentFailed(
            f"not sent: with a time limit of {timeout:g} s the cell can cost ${most:.2f}, and of "
            f"today's ${session.dollars:.2f} there is ${left:.2f} left; a shorter --timeout helps, "
            "or a larger sum in rent(…)"
        )
    return most


def _opened(session: Session, tick):
    """The module ``modal_app``, with its app running, and with the sources as they are now."""
    if session.uploaded != (sources := _sources()):
        session.close()
    if session.module is None:
        tick(1, "making the image (minutes, the first time) and starting")
        module = _import(ROOT / "modal_app.py")
        session.open.enter_context(module.app.run())
        session.module, session.uploaded = module, sources
    return session.module


def _sources() -> frozenset:
    """What changes when a file of the project is edited."""
    files = [ROOT / "modal_app.py", *(ROOT / "trimul").rglob("*.*")]
    kept = (f for f in files if f.is_file() and "__pycache__" not in f.parts)
    return frozenset((f, f.stat().st_mtime_ns) for f in kept)


def _import(path: Path):
    """A file as the module of its name, under which the container finds it too."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except ImportError:
        raise
    except Exception as error:
        raise RentFailed(f"{path.name} cannot be loaded: {type(error).__name__}: {error}") from None
    return module


def _call(function, arguments: tuple, tick) -> dict:
    """Wait for an answer, ticking. Whatever ends the wait early ends the container too."""
    call, started = function.spawn(*arguments), time.monotonic()
    try:
        while True:
            with contextlib.suppress(TimeoutError):  # Python's: no answer yet
                return call.get(timeout=0.5)
            tick(time.monotonic() - started, "queued or running")
    except BaseException as error:
        try:
            call.cancel(terminate_containers=True)
        except BaseException:
            error.may_run_on = True
        raise


@contextlib.contextmanager
def _quietly():
    """Modal warns of whoever waits for it inside a notebook's event loop; here it is meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _expect_torch(document: dict, pinned: str) -> None:
    """Raises RentFailed if a result does not come from the pinned torch."""
    if document["torch"].partition("+")[0] not in (pinned, "none"):  # "none": died before it said
        raise RentFailed(
            f"the container had torch {document['torch']}, and modal_app.py pins {pinned}: build "
            "its image anew, with MODAL_FORCE_BUILD=1 in the environment once"
        )


def on(function, gpu: str, timeout: float = 0.0):
    """A function of the app on another GPU, or with more time for a cell, where that is asked."""
    options = {"gpu": gpu} if gpu != GPU else {}
    if timeout > TIMEOUT_S:
        options["timeout"] = int(timeout) + STOP_S
    return function.with_options(**options) if options else function
