"""What went wrong between this machine and a rented container, in one sentence each."""

from __future__ import annotations

import contextlib
import re
import sys

from trimul.gpu.prices import GPUS, MEMORY_GIB


class RentFailed(RuntimeError):
    """A rented GPU could not be had, or gave no answer; the message is one sentence."""

    def _render_traceback_(self):  # a notebook shows the sentence alone
        return [f"RentFailed: {self}"]


NO_TOKEN = (
    "there is no Modal token here: with an account at modal.com, run `.venv/bin/modal token new`"
)

#: Name of an exception's type or of one it derives from, what its message has, and what to do.
SENTENCES = [
    (
        "ImportError",
        r"\bmodal\b",
        "Modal's client is not installed: `make env` installs it, at the version of the lock",
    ),
    (
        "ImportError",
        "",
        "something that the program needs is not in the container ({error}): modal_app.py installs "
        "packages in `image` and uploads the folder trimul/ with `add_local_dir`",
    ),
    ("AuthError", r"(?i)missing|not found|both be", NO_TOKEN),
    (
        "AuthError",
        "",
        "Modal does not accept the token ({error}): `.venv/bin/modal token new` makes a new one",
    ),
    (
        "Error",
        r"(?i)client version|VersionError",
        "Modal's server and the client here do not fit ({error}): `make env` installs the version "
        "that was tested; if that is too old now, `pip install --upgrade modal`",
    ),
    (
        "VersionError",
        "",
        "Modal's client is too old for this app ({error}): `make env` installs the right one",
    ),
    (
        "FunctionTimeoutError",
        "",
        "the time limit was up and Modal ended the container: do less in a call, or give it longer",
    ),
    ("ImageBuildError", "", "the container's image could not be built: {error}"),
    ("RemoteError", r"(?i)image build", "the container's image could not be built: {error}"),
    (
        "RemoteError",
        r"(?i)memory|\boom\b|137",
        f"the container's memory ran out, of which it has {MEMORY_GIB} GiB for certain: do less at "
        "once, or raise MEMORY_GIB in trimul/gpu/prices.py",
    ),
    ("RemoteError", "", "the container died before it answered ({error}): try again"),
    ("MemoryError", "", "the container's memory ran out: do less at once"),
    (
        "OutOfMemoryError",
        "",
        "the memory of the GPU ran out: use a smaller case, or rent one that has more",
    ),
    (
        "ResourceExhaustedError",
        "",
        "Modal refuses more ({error}): a quota or your workspace's spending limit is reached, see "
        "https://modal.com/settings/usage",
    ),
    ("PermissionDeniedError", "", "your Modal workspace does not allow this ({error})"),
    (
        "InvalidError",
        r"(?i)\bgpu",
        "Modal does not have that GPU to rent ({error}): " + ", ".join(GPUS),
    ),
    (
        "ExecutionError",
        r"(?i)deserializ",
        "the answer cannot be read here ({error}): the container and this machine have different "
        "versions of a package",
    ),
    ("SerializationError", "", "what was sent or came back is not plain data: {error}"),
    ("DeserializationError", "", "what was sent or came back is not plain data: {error}"),
    (
        "ConnectionError",
        "",
        "Modal's server cannot be reached ({error}): is there a network, and does a proxy or a "
        "firewall let it through?",
    ),
    ("gaierror", "", "Modal's server cannot be found ({error}): is there a network?"),
    ("KeyboardInterrupt", "", "stopped; the containers are ended"),
    ("InputCancellation", "", "the call was cancelled"),
    ("ClientClosed", "", "the connection to Modal was closed: run it again"),
    ("RentFailed", "", "{error}"),
    (
        "Error",
        "",
        "Modal had a failure of its own ({type}: {error}): try again, or see status.modal.com",
    ),
    ("BaseException", "", "the program in the container raised {type}: {error}"),
]


def explain(error: BaseException) -> str:
    """One sentence: what happened between here and the container, and what to do about it."""
    words = " ".join(str(error).split()) or "no message"
    names = [_name(kind) for kind in type(error).__mro__]
    for name, pattern, sentence in SENTENCES:
        if name in names and re.search(pattern, words):
            return sentence.replace("{error}", words[:300]).replace("{type}", names[0])
    raise AssertionError("SENTENCES ends with BaseException")


def _name(kind: type) -> str:
    """A type's name; anyone's class called Error, RemoteError, … is not Modal's."""
    modals = kind.__module__.startswith(("modal", "trimul", "builtins", "torch", "socket"))
    return kind.__name__ if modals else f"{kind.__module__}.{kind.__name__}"


@contextlib.contextmanager
def plainly():
    """For a command: a failure is one sentence on standard error and an exit status, no traceback.

    Exit status 2 for wrong usage, before anything was billed; 1 otherwise; 130 if interrupted.
    """
    try:
        yield
    except (ValueError, FileExistsError, FileNotFoundError) as error:
        status, sentence = 2, str(error)
    except KeyboardInterrupt as error:
        status, sentence = 130, explain(error)
    except Exception as error:
        status, sentence = 1, explain(error)
    else:
        return
    print(f"modal_app: {sentence}", file=sys.stderr, flush=True)
    raise SystemExit(status)
