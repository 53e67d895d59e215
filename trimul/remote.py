"""What the commands of ``modal_app.py`` do on this machine: call its functions, tell, print, keep.

Each is given the app's function that does the work in a container, and raises RentFailed in one
sentence when an answer is missing, ValueError or FileExistsError before anything is billed.
"""

from __future__ import annotations

from pathlib import Path

from trimul.gpu.explain import RentFailed, explain
from trimul.gpu.prices import dollars, estimate
from trimul.gpu.rented import on

LIMIT_S = 300  # of one call


def ladder(bench_case, gpu: str, out: str = "") -> None:
    """Print the ladder, its seven cases in containers of their own; keep the rows in ``out``."""
    from trimul import ladder, measure
    from trimul.problem import BENCHMARK_CASES

    _refuse_to_replace(out)
    cases = {str(case): (index,) for index, case in enumerate(BENCHMARK_CASES)}
    documents, failed = ask(on(bench_case, gpu), cases, gpu)
    rows = [row for document in documents for row in document["rows"]]
    if rows:
        _keep(measure.document(rows), out)
    gpus = {row["gpu"] for row in rows}
    if failed or len(gpus) > 1:
        raise RentFailed(failed or f"rows of {' and of '.join(sorted(gpus))} do not compare")
    if gpus == {"none"}:  # the app tried without a GPU
        print(*(ladder.table(document["rows"]) for document in documents), sep="\n\n")
    else:
        print(ladder.table(rows))
        print("Each case had a container of its own: compare the times within a column.")


def check(check_rung, rung: str, gpu: str, out: str = "") -> None:
    """Check a rung, or each that takes the full sizes; ends with the grader's exit status."""
    from trimul import rungs

    names = [rung] if rung else rungs.at_full_size()
    for name in names:
        rungs.load(name)  # an unknown one is told here, with the list
    _report(check_rung, {name: (name,) for name in names}, gpu, out)


def grade(grade_source, file: str, bench: bool, gpu: str, out: str = "") -> None:
    """Grade a file of this machine; ends with the grader's exit status."""
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"there is no file {file}")
    _report(grade_source, {path.name: (path.read_text("utf-8"), path.name, bench)}, gpu, out)


def record(run_cell, notebooks: str, gpu: str) -> None:
    """Run and keep the ``%%gpu`` cells of notebooks; exit status 1 if one failed."""
    from trimul.gpu import recording

    def run(one) -> dict:
        function, given = on(run_cell, one.gpu or gpu, one.timeout), one.gpu or gpu
        calls = {one.name: (one.source, one.name, one.timeout)}
        documents, failed = ask(function, calls, given, one.timeout)
        if failed:
            raise ValueError(failed)
        return documents[0]

    cells = recording.cells_of(notebooks.split(",") if notebooks else ())
    if recording.record(cells, run, print):
        raise SystemExit(1)


def ask(function, calls: dict[str, tuple], gpu: str, limit: float = LIMIT_S):
    """Make calls, given by name; tell what they can cost, how they go, and what they did cost.

    Returns the results that came back, in order, and one sentence on those that failed, or "".
    """
    print(estimate(gpu, len(calls), limit), flush=True)
    answers = function.starmap(calls.values(), return_exceptions=True)
    results, failed, seconds = [], [], 0.0
    for name, answer in zip(calls, answers, strict=True):
        if isinstance(answer, Exception):
            answer = {"failed": explain(answer)}
        seconds += answer.get("seconds", limit)
        if "failed" in answer:
            failed.append(f"{name}: {answer['failed']}")
        else:
            results.append(answer)
        print(f"{name}: {'failed' if 'failed' in answer else 'done'}", flush=True)
    print(
        f"{seconds:.0f} GPU-seconds, ${dollars(gpu, seconds):.3f}; the start of every container "
        "comes on top, and a call without an answer counts in full"
    )
    return results, "; ".join(failed)


def _report(function, calls: dict, gpu: str, out: str) -> None:
    """What the grader found, and its exit status: 0 right, 1 wrong or no answer, 2 not loaded."""
    from trimul.grade import Report

    _refuse_to_replace(out)
    documents, failed = ask(on(function, gpu), calls, gpu)
    if documents:
        _keep(documents if len(calls) > 1 else documents[0], out)
    reports = [Report.from_dict(document) for document in documents]
    for report in reports:
        print(f"{report.table()}\n{report.name}: {report.verdict}")
    if failed:
        raise RentFailed(failed)
    raise SystemExit(max(report.status for report in reports))


def _refuse_to_replace(out: str) -> None:
    from trimul import measure

    if out:
        measure.refuse_to_replace(out)


def _keep(result, out: str) -> None:
    from trimul import measure

    if out:
        print(f"wrote {measure.save(result, out)}")
