"""Is anyone's kernel right? Runs it in a process of its own, and says where and how it is wrong.

``grade`` takes a file with GPU MODE's ``custom_kernel(data)``, ``check_rung`` a rung of the course;
both ask the same probes (``trimul.probes``). The verdict is reached here, in the parent, in which
the stranger's code never runs: it draws the same data again, computes the float64 result and
compares the bytes that the child (``trimul.observe``) left in a file. Code that replaces
``torch.allclose`` or a clock in its own process changes nothing here; times are held against this
process's clock.

This is no security sandbox. The child has your user's rights, can read and write your files and use
the network; and what only the child can see (changed inputs, settings, aliasing) is as trustworthy
as the code that shares its process. A process that it starts in a session of its own outlives it.
What is asked is a sample: sizes, masks and calls that no probe makes are not judged. Do not grade a
file that you would not run.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

import torch

from trimul import digest, observe, probes, rungs, source
from trimul.check import (
    VARIANTS,
    Comparison,
    can_be,
    compare,
    exact,
    expected_error,
    nearest_dtype,
)
from trimul.measure import provenance
from trimul.probes import FP16_MAX, Probe, draw

#: Seconds for the import, and for each probe, before a kernel counts as hung.
TIME_LIMIT_S = {"cpu": 60.0, "cuda": 300.0}
START_LIMIT_S = 120.0  # for a process with torch in it, on a busy machine
MOST_RAISED = 3  # after so many probes that raise, the rest is not tried

#: Kinds of finding: the first one found makes the verdict.
KINDS = [
    "load",
    "died",
    "hung",
    "raised",
    "type",
    "dtype",
    "shape",
    "device",
    "aliased",
    "strided",
    "replayed",
    "late",
    "inputs",
    "functions",
    "settings",
    "unwritten",
    "named",
    "nonfinite",
    "fp16",
    "contiguous",
    "batches",
    "size",
    "corner",
    "values",
    "clock",
]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its kind, in words, and the probe that showed it first."""

    kind: str
    words: str
    where: str = ""

    def __str__(self):
        return f"{self.words}, in {self.where}" if self.where else self.words


@dataclass
class Report:
    """What came of it. ``rows``: one dictionary per call, with its errors against float64."""

    name: str
    kind: str
    device: str
    source_hash: str = ""  # of a rung
    rows: list[dict] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    times: list[dict] = field(default_factory=list)
    raised: str = ""  # the stranger's own frames of the first error
    printed: str = ""  # the end of what the stranger's code printed

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def status(self) -> int:
        """0 right, 1 wrong (also raised, hung, died), 2 could not be loaded."""
        return 0 if self.ok else 2 if self.findings[0].kind == "load" else 1

    @property
    def verdict(self) -> str:
        if self.ok:
            worst = max((row["max_error"] for row in self.rows), default=0.0)
            return f"right: {len(self.rows)} of {len(self.rows)} calls, largest error {worst:.2g}"
        first, *others = self.findings
        also = f" (also: {'; '.join(finding.words for finding in others)})" if others else ""
        return f"{('wrong', 'not loaded')[self.status - 1]}: {first}{also}"

    def table(self) -> str:
        """The rows as text, then the times, and what the stranger's code raised and printed."""
        lines = []
        if self.rows:
            lines.append(
                f"{'probe':28} {'call':26} {'N':>5} {'B':>2} {'D':>4} {'distribution':12} "
                f"{'largest error':>13} {'relative':>9} {'as':16} result"
            )
            lines += [_row_text(row) for row in self.rows]
            lines.append(_model_text(self.rows))
        lines += [
            f"{row['probe']:28} mean {row['mean_us']:.0f} us, median {row['median_us']:.0f} us, "
            f"{row['runs']} runs, by the grader's own clock at most {row['wall_us']:.0f} us"
            for row in self.times
        ]
        for title, text in (("it raised:", self.raised), ("it printed:", self.printed)):
            if text:
                lines += ["", title, text]
        return "\n".join(lines)

    def as_dict(self) -> dict:
        """Everything, for JSON, with the machine, the versions and the date."""
        return {
            "kind": self.kind,
            "name": self.name,
            "device": self.device,
            "ok": self.ok,
            "verdict": self.verdict,
            **provenance(self.device),
            "source_hash": self.source_hash,
            "findings": [asdict(finding) for finding in self.findings],
            "rows": self.rows,
            "times": self.times,
            "raised": self.raised,
            "printed": self.printed,
        }

    @classmethod
    def from_dict(cls, document: dict) -> Report:
        """The report that ``as_dict`` gave."""
        fields = {name: document[name] for name in cls.__dataclass_fields__}
        return cls(**fields | {"findings": [Finding(**one) for one in document["findings"]]})


def _row_text(row: dict) -> str:
    case = row["case"]
    known = row["max_error"] is not None
    return (
        f"{row['probe']:28} {row['call']:26} {case['n']:5} {case['batch']:2} {case['dim']:4} "
        f"{case['distribution']:12} {row['max_error'] if known else math.nan:13.2e} "
        f"{row['relative_error'] if known else math.nan:9.1e} {row['like']:16} {row['result']}"
    )


def _model_text(rows: list[dict]) -> str:
    case = rows[0]["case"]
    shape = (case["batch"], case["n"], case["n"], case["dim"])
    models = (
        f"{d} {expected_error(d, shape).relative:.0e}" for d in ("float32", "float16", "bfloat16")
    )
    return f"a model of rounding expects a relative error of about: {', '.join(models)}"


# --- entrances ------------------------------------------------------------------------------------


def grade(
    path: str | os.PathLike,
    device: str = "cpu",
    bench: bool = False,
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Probe the ``custom_kernel(data)`` of a file; with ``bench``, time it too if it is right.

    ``device`` "cuda" runs the 18 correctness cases and 7 benchmark cases at full size, "cpu" small
    ones. ``time_limit``: seconds for the import and for each probe. Raises ValueError if "cuda" is
    asked for and there is no GPU.
    """
    path = Path(path).resolve()
    report = Report(path.name, "grade", device)
    if not path.is_file():
        report.findings = [Finding("load", f"there is no file {path}")]
        return report
    full = _is_gpu(device)
    asked = probes.contest(full) + probes.corners(full)
    timed = probes.benchmarks(full) if bench else []
    return _run(report, str(path), asked, timed, time_limit, progress)


def check_rung(
    name: str,
    device: str = "cpu",
    full: bool | None = None,
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Probe a rung as ``grade`` probes a file. ``full``: cases at full size (default: on a GPU).

    Sizes are held to the rung's MAX_N, if it has one. Raises ValueError for an unknown rung.
    """
    max_n = getattr(rungs.load(name), "MAX_N", None)
    on_gpu = _is_gpu(device)
    asked = probes.contest(on_gpu if full is None else full, max_n) + probes.corners(on_gpu, max_n)
    report = Report(name, "check", device, digest.of_file(source.path_of(name)))
    return _run(report, f"rung:{name}", asked, [], time_limit, progress)


def _is_gpu(device: str) -> bool:
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise ValueError("no GPU can be used here: grade on the CPU, or see trimul doctor")
    return on_gpu


def _run(report, target, asked, timed, time_limit, progress) -> Report:
    progress = progress or _progress_on_a_terminal()
    limit = time_limit or TIME_LIMIT_S[torch.device(report.device).type]
    judge = Judge(report)
    with _one_thread(), Worker(target, report.device, asked + timed, limit) as worker:
        try:
            worker.answer("the start of its process", START_LIMIT_S)
            judge.loaded(worker.answer("its import"))
            for index, probe in enumerate(asked):
                if report.status == 2 or judge.raised == MOST_RAISED:
                    break
                progress(f"{index + 1}/{len(asked)} {probe}")
                answer = worker.ask("probe", index, str(probe))
                judge.judge(probe, answer["calls"], worker.folder)
            judge.conclude()
            if report.ok and len(report.rows) < sum(len(probe.turns) for probe in asked):
                judge.find("died", "left out some results")
            if report.ok:
                for index, probe in enumerate(timed, start=len(asked)):
                    progress(f"timing {probe}")
                    judge.time(probe, index, worker)
                    if not report.ok:
                        break
                judge.conclude()
        except Stopped as stopped:
            judge.find(stopped.kind, stopped.words, stopped.where)
            judge.conclude()
        except (LookupError, TypeError, AttributeError, ValueError, OSError) as error:
            judge.find("died", f"its process gives no proper answer: {error!r}")
    report.printed = worker.printed
    return report


@contextlib.contextmanager
def _one_thread():
    """Small products in two processes that take turns are fastest with one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _progress_on_a_terminal() -> Callable[[str], None]:
    if not sys.stderr.isatty():
        return lambda line: None
    return lambda line: print(line, file=sys.stderr, flush=True)


# --- the stranger's process -----------------------------------------------------------------------


class Stopped(Exception):
    """The child gave no answer: it hung or died."""

    def __init__(self, kind, words, where):
        super().__init__(words)
        self.kind, self.words, self.where = kind, words, where


class Worker:
    """A child process that runs the target and answers one request at a time, within a limit.

    Where it can it is forked from a server that has imported torch and this package, and nothing
    else: a start takes milliseconds, and neither CUDA nor a thread exists before the fork.
    """

    def __init__(self, target: str, device: str, todo: list[Probe], time_limit: float):
        self.time_limit = time_limit
        self.folder = Path(_roomy_folder(todo))
        context = _context()
        self.connection, theirs = context.Pipe()
        arguments = (theirs, target, device, str(self.folder), todo)
        self.process = context.Process(target=observe.serve, args=arguments, daemon=True)
        self.printed = ""
        try:
            with _no_main_module():
                self.process.start()
        except BaseException:  # Ctrl-C
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        theirs.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, AttributeError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its own group: also what it started
        self.process.kill()
        self.process.join()
        with contextlib.suppress(OSError):
            self.printed = (self.folder / "printed").read_bytes()[-2000:].decode(errors="replace")
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, verb: str, argument, where: str) -> dict:
        """Send a request and wait for the answer. Raises Stopped if the child hangs or dies."""
        try:
            self.connection.send((verb, argument))
        except OSError:
            raise self._death(where) from None
        return self.answer(where)

    def answer(self, where: str, limit: float | None = None) -> dict:
        limit = limit or self.time_limit
        if not wait([self.connection], limit):
            raise Stopped("hung", f"hangs: no answer within {limit:g} s", where)
        try:
            return json.loads(self.connection.recv_bytes())
        except (EOFError, OSError, ValueError):
            raise self._death(where) from None

    def _death(self, where: str) -> Stopped:
        self.process.join(5)
        code = self.process.exitcode
        if code is not None and code < 0:
            how = f"signal {signal.Signals(-code).name}"
        else:
            how = f"exit code {code}"
        return Stopped("died", f"kills its process ({how})", where)


@functools.cache
def _context():
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "trimul.observe", "trimul.measure"])
    return context


@contextlib.contextmanager
def _no_main_module():
    """Keep multiprocessing from importing the caller's script again in the child."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    main.__spec__ = None
    if file is not None:
        del main.__file__
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def _roomy_folder(todo: list[Probe]) -> str:
    """A new folder in shared memory if the largest results fit there, or else on disk."""
    largest = max(p.case.batch * p.case.n**2 * p.case.dim * 4 * len(p.turns) for p in todo)
    shared = "/dev/shm"
    if os.path.isdir(shared) and shutil.disk_usage(shared).free > 2 * largest:
        return tempfile.mkdtemp(prefix="trimul-grade-", dir=shared)
    return tempfile.mkdtemp(prefix="trimul-grade-")


# --- the verdict ----------------------------------------------------------------------------------


def _truth(probe: Probe, turn: int, device: str, variant: str = "") -> torch.Tensor:
    options = VARIANTS[variant] if variant else {}
    return exact(*draw(probe, turn, device), **options)


_kept_truth = functools.lru_cache(maxsize=4096)(_truth)


def truth(probe: Probe, turn: int, device: str, variant: str = "") -> torch.Tensor:
    """The float64 result of a call, or a known mistake's. Small ones are kept for later."""
    keep = _is_small(probe)
    return (_kept_truth if keep else _truth)(probe, turn, device, variant)


def _is_small(probe: Probe) -> bool:
    return math.prod(_shape(probe)) <= 1 << 20


@dataclass
class Wrong:
    """A call with wrong values, and what they look like."""

    probe: Probe
    comparison: Comparison
    large_x: bool
    names: list[str]  # of the variants that give this very result

    def __str__(self):
        return f"{self.probe}: {self.comparison}"


class Judge:
    """Compares what the child left with the truth, and explains what is wrong in a report."""

    def __init__(self, report: Report):
        self.report, self.device = report, report.device
        self.wrong: list[Wrong] = []
        self.right: list[Probe] = []
        self.earlier: list[tuple[Probe, int]] = []  # calls judged so far
        self.raised = 0

    def find(self, kind: str, words: str, where: object = ""):
        """Add a finding, if none of its kind is there yet."""
        if all(kind != finding.kind for finding in self.report.findings):
            self.report.findings.append(Finding(kind, words, str(where)))
            self.report.findings.sort(key=lambda finding: KINDS.index(finding.kind))

    def loaded(self, answer: dict):
        if "error" in answer:
            self.report.raised = answer["error"]
            self.find("load", f"the import fails: {answer['error'].splitlines()[-1]}")
        for kind, words in answer.get("faults", ()):
            self.find(kind, words, "its import")

    def judge(self, probe: Probe, calls: list[dict], folder: Path, first_turn: int = 0):
        """What the calls of a probe did and what they left: the faults noted, then the values."""
        compared = {}
        for turn, call in enumerate(calls, start=first_turn):
            for kind, words in call["faults"]:
                self.find(kind, words, probe)
            if "raised" in call:
                self._raises(probe, call)
            elif "file" in call:
                y = _read(folder / call["file"], probe, self.device)
                compared[call["turn"]] = compare(y, truth(probe, turn, self.device))
                self._row(probe, call["turn"], compared[call["turn"]])
                if compared[call["turn"]].ok:
                    self.right.append(probe)
                elif "late" not in dict(call["faults"]):  # or else y is some unfinished state
                    self._wrong_values(probe, turn, y, compared[call["turn"]])
                self.earlier.append((probe, turn))
        self._unwritten(probe, compared)
        if not _is_small(probe) and _is_gpu(self.device):
            torch.cuda.empty_cache()

    def _raises(self, probe, call):
        self.raised += 1
        self.report.raised = self.report.raised or call["raised"]
        self.find("raised", f"raises {call['raised'].splitlines()[-1]}", probe)
        self._row(probe, call["turn"], None)

    def _wrong_values(self, probe, turn, y, comparison):
        stale = self._stale(probe, turn, y)
        if stale and probe.turns[turn] == "x written just before":
            self.find(
                "late", "work is left on another stream: x is read before it is written", probe
            )
        elif stale:
            self.find("replayed", f"{stale} ({probe.turns[turn]})", probe)
        else:
            large = draw(probe, turn, self.device).x.abs().max().item() > FP16_MAX
            self.wrong.append(
                Wrong(probe, comparison, large, self._names(probe, turn, y, comparison))
            )

    def _stale(self, probe, turn, y) -> str:
        """What an earlier call of the same shape left in this result, in words; "" if nothing."""
        small, shape = _is_small(probe), _shape(probe)
        earlier = [
            (p, t)
            for p, t in self.earlier
            if (p == probe and t != turn) or (small and p != probe and _shape(p) == shape)
        ]
        if any(compare(y, truth(p, t, self.device)).ok for p, t in earlier):
            return "a result is replayed from an earlier call of the same shape"
        now = draw(probe, turn, self.device)
        for p, t in earlier * small:
            then = draw(p, t, self.device)
            for part in ("weights", "mask", "x"):
                if compare(y, exact(*now._replace(**{part: getattr(then, part)}))).ok:
                    return f"{part} of an earlier call of the same shape used again"
        return ""

    def _unwritten(self, probe, compared):
        """NaN that comes and goes with the contents of free memory was never written."""
        if not {"poisoned", "not poisoned"} <= set(compared):
            return
        poisoned, plain = compared["poisoned"], compared["not poisoned"]
        if poisoned.nonfinite and poisoned.nonfinite != plain.nonfinite:
            self.find(
                "unwritten",
                "part of the result is never written, or computed from memory never written",
                f"{probe}: {poisoned.pattern}",
            )

    def _names(self, probe, turn, y, comparison) -> list[str]:
        """The variants that give this result; those found before are tried first."""
        if not probe.telling or comparison.nonfinite:
            return []
        suspects = {name for w in self.wrong for name in w.names}
        return self._matching(suspects, probe, turn, y) or self._matching(VARIANTS, probe, turn, y)

    def _matching(self, names, probe, turn, y) -> list[str]:
        def result(name):
            return truth(probe, turn, self.device, name)

        names = [n for n in names if can_be(VARIANTS[n], probe.case.dim, probe.case.hidden)]
        names = [n for n in names if compare(y, result(n)).ok]
        return [n for n in names if not compare(result(n), truth(probe, turn, self.device)).ok]

    def _row(self, probe, call, comparison):
        right = bool(comparison and comparison.ok)
        self.report.rows.append(
            {
                "probe": probe.name,
                "call": call,
                "case": probe.case.as_dict(),
                "ok": right,
                "max_error": comparison and _for_json(comparison.max_error),
                "relative_error": comparison and _for_json(comparison.relative_error),
                "wrong": comparison and comparison.wrong,
                "like": nearest_dtype(comparison.relative_error, _shape(probe)) if right else "",
                "result": str(comparison or "raised"),
            }
        )

    def conclude(self):
        """Turn the wrong values into words: the mistake's name if one fits, or else where it is."""
        left = self._named(self.wrong)
        if all(w.probe.layout != "plain" for w in left):
            for w in left:
                what = w.probe.layout.split()[0]
                self.find("contiguous", f"{what} is assumed contiguous", w)
            left = []
        nonfinite = [w for w in left if w.comparison.nonfinite]
        plain = [w for w in nonfinite if not w.large_x and w.probe.values != "out above 65504"]
        if any(finding.kind == "unwritten" for finding in self.report.findings):
            pass  # that is where NaN comes from
        elif plain:
            self.find("nonfinite", "NaN or inf in the result", plain[0])
        elif nonfinite:
            what = "x" if nonfinite[0].large_x else "out"
            self.find(
                "fp16", f"NaN or inf where {what} exceeds 65504: it overflows in fp16", nonfinite[0]
            )
        left = [w for w in left if not w.comparison.nonfinite]
        if left:
            worst = max(left, key=lambda w: w.comparison.wrong)
            self.find(*self._place(left, worst), worst)
        self.wrong = []

    def _named(self, wrong: list[Wrong]) -> list[Wrong]:
        """Report the variant that explains most; returns the calls that it does not explain."""
        explained = Counter(name for w in wrong for name in w.names)
        if not explained:
            return wrong
        most = max(explained.values())
        best = [name for name, count in explained.items() if count == most]
        self.find("named", " or ".join(best), next(w for w in wrong if best[0] in w.names))
        # a probe whose results are not compared with the variants may be wrong for the same reason
        return [w for w in wrong if not w.names and w.probe.telling]

    def _place(self, left: list[Wrong], worst: Wrong) -> tuple[str, str]:
        """What the wrong calls have in common that no right one has: batches, a size, a corner."""
        if not self.right:
            return "values", "wrong values"
        if all(w.probe.case.batch > 1 for w in left) and all(p.case.batch == 1 for p in self.right):
            return "batches", "batches mixed up: wrong wherever there is more than one"
        for multiple in (128, 64, 32, 16, 8, 4, 2):
            if all(w.probe.case.n % multiple for w in left) and not any(
                p.case.n % multiple for p in self.right
            ):
                return "size", f"wrong where N is not a multiple of {multiple}"
        if all(w.probe.hint for w in left):
            return "corner", worst.probe.hint
        return "values", "wrong values"

    def time(self, probe: Probe, index: int, worker: Worker):
        """Times by the child, held against this process's clock and a result that must be new."""
        calls = worker.ask("bench", index, str(probe))["calls"]
        self.judge(probe, calls, worker.folder)
        if "samples" not in calls[0]:
            return
        from trimul.measure import summarise

        row = {"probe": probe.name, "case": probe.case.as_dict(), **summarise(calls[0]["samples"])}
        row["wall_us"] = self._wall_us(worker, row["mean_us"], str(probe))
        self.report.times.append(row)
        if not row["mean_us"] > 0.5 * row["wall_us"] - 20:
            self.find(
                "clock",
                f"its times cannot be right: {row['mean_us']:.0f} us a call, but "
                f"{row['wall_us']:.0f} us by the grader's own clock",
                probe,
            )
        after = worker.ask("after bench", None, str(probe))["calls"]
        self.judge(probe, after, worker.folder, first_turn=1)

    def _wall_us(self, worker, mean_us, where) -> float:
        """Time of a call in a row of calls, the request's own time included; the least of three."""
        count = max(3, min(100, int(1e5 / max(mean_us, 1))))

        def seconds():
            start = time.perf_counter()
            worker.ask("repeat", count, where)
            return time.perf_counter() - start

        return min(seconds() for _ in range(3)) / count * 1e6


def _for_json(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _shape(probe: Probe) -> tuple[int, int, int, int]:
    return probe.case.batch, probe.case.n, probe.case.n, probe.case.dim


def _read(path: Path, probe: Probe, device: str) -> torch.Tensor:
    """A result as the child left it: raw fp32, mapped from the file, moved in chunks by compare."""
    shape = _shape(probe)
    size = math.prod(shape)
    if path.stat().st_size != 4 * size:
        raise Stopped("died", "left a result of the wrong size", str(probe))
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.float32).view(shape)
