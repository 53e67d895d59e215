"""The command line: ``python -m trimul COMMAND``.

Exit status: 0 right, 1 wrong, 2 could not be loaded or wrong usage. ``--json`` writes pure JSON to
standard output; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from functools import partial


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["doctor"]:  # must run where torch does not
        from trimul import doctor

        return doctor.main(arguments[1:])
    options = _parser().parse_args(arguments)
    try:
        if getattr(options, "out", None):
            from trimul import measure

            measure.refuse_to_replace(options.out)
        return options.command(options)
    except (ValueError, FileExistsError) as error:
        say(f"trimul: {error}")
        return 2
    except KeyboardInterrupt:
        say("trimul: stopped")
        return 130
    except BrokenPipeError:  # whoever read the output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m trimul", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(function, summary: str, device: bool = True) -> argparse.ArgumentParser:
        name = function.__name__.lstrip("_")
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.set_defaults(command=function)
        sub.add_argument("--json", action="store_true", help="pure JSON on standard output")
        if device:
            sub.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there")
            sub.add_argument("--out", metavar="FILE", help="write the result as JSON to a new file")
        return sub

    commands.add_parser("doctor", help="what is there, what is missing, how to mend it")

    ladder = command(_ladder, "every rung on one page")
    ladder.add_argument("--recorded", action="store_true", help="print the committed measurements")

    check = command(_check, "is a rung right? against float64")
    check.add_argument("rung")

    grade = command(_grade, "is anyone's custom_kernel(data) right?")
    grade.add_argument("file")
    grade.add_argument("--bench", action="store_true", help="time it too, if it is right")

    bench = command(_bench, "how long do rungs take?")
    bench.add_argument("rungs", nargs="+", metavar="RUNG")
    bench.add_argument("--flush-l2", action="store_true", help="empty the L2 cache between calls")

    profile = command(_profile, "which kernels run in one call of a rung, and for how long?")
    profile.add_argument("rung")
    profile.add_argument("--n", type=int, help="sequence length (1024 on a GPU, 32 on a CPU)")
    profile.add_argument("--dim", type=int, default=128, help="channels of x (default 128)")

    command(_machine, "what do this machine's memory, arithmetic and launches do?")

    record = commands.add_parser("record", help="run the lessons' %%gpu cells and keep the result")
    record.set_defaults(command=_record)
    record.add_argument("notebooks", nargs="*", help="default: all of notebooks/")
    record.add_argument("--stale", action="store_true", help="those alone that `--check` names")
    record.add_argument("--check", action="store_true", help="record nothing: is any stale?")
    return parser


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _device(options) -> str:
    available = _has_gpu()
    if options.device == "cuda" and not available:
        raise ValueError(
            "no GPU can be used here: leave --device out, or see python -m trimul doctor"
        )
    return options.device or ("cuda" if available else "cpu")


def _deliver(options, document: dict, text) -> None:
    """Keep a result if a file was named, then print it: as JSON, or as ``text()`` says it."""
    from trimul import measure

    if options.out:
        say(f"wrote {measure.save(document, options.out)}")
    shown = document["rows"] if document["kind"] == "bench" else document
    print(json.dumps(shown, indent=1) if options.json else text(), flush=True)


def _ladder(options) -> int:
    from trimul import ladder, measure

    if options.recorded:
        rows, shown = measure.recorded_rows(), ladder.recorded
    else:
        rows = ladder.measure_here(_device(options), progress=say)
        shown = partial(ladder.table, rows)
    _deliver(options, measure.document(rows), shown)
    return 0


def _bench(options) -> int:
    from trimul import ladder, measure
    from trimul.problem import BENCHMARK_CASES

    device = _device(options)
    cases = BENCHMARK_CASES if device == "cuda" else [ladder.CPU_CASE]
    rows = measure.bench(options.rungs, cases, device, flush_l2=options.flush_l2, progress=say)
    _deliver(options, measure.document(rows), partial(ladder.table, rows))
    return 0


def _check(options) -> int:
    from trimul import grade

    return _report(options, grade.check_rung(options.rung, _device(options)))


def _grade(options) -> int:
    from trimul import grade

    return _report(options, grade.grade(options.file, _device(options), bench=options.bench))


def _report(options, report) -> int:
    _deliver(options, report.as_dict(), lambda: f"{report.table()}\n{report.verdict}")
    return report.status


def _profile(options) -> int:
    from trimul import measure
    from trimul.problem import Case

    device = _device(options)
    n = options.n if options.n is not None else {"cuda": 1024, "cpu": 32}[device]
    case = Case(n=n, dim=options.dim, seed=2000)
    document = measure.profile(options.rung, case, device)
    _deliver(options, document, partial(measure.profile_table, document))
    return 0


def _machine(options) -> int:
    from trimul import machine

    document = machine.examine(_device(options), progress=say)
    _deliver(options, document, partial(json.dumps, document, indent=1))
    return 0


def _record(options) -> int:
    """Without ``--check`` a GPU is needed: exit 2 where there is none, 1 if a cell failed."""
    from trimul.gpu import recording

    cells = recording.cells_of(options.notebooks)
    if options.check:
        faults = recording.faults(cells)
        if not options.notebooks:
            faults += recording.orphans(cells)
        for line in faults or [
            f"{len(cells)} recordings are of the cells and the code as they are"
        ]:
            print(line)
        return int(bool(faults))
    if options.stale:
        cells = [c for c in cells if recording.fault(c)]
    if not _has_gpu():
        raise ValueError(
            "no GPU can be used here, and recordings are made where there is one: "
            "see python -m trimul doctor"
        )
    return int(recording.record(cells, _run_here, say) > 0)


def _run_here(cell) -> dict:
    from trimul.gpu import local

    return local.run(cell.source, cell.name, cell.timeout)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave nothing running behind
    sys.exit(main())
