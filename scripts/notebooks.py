"""The notebooks: check their form, repair it, make their stored outputs.

python scripts/notebooks.py check [--fix] [FILE...]    # the rules of scripts/form.py
python scripts/notebooks.py outputs [FILE...]          # run in a clean state and keep what shows

Without FILE: all of notebooks/. Exit 1 if a rule is broken or a notebook fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

if __package__:
    from scripts import form
    from scripts.clean import ROOT, clean_environment, warm_up
else:
    import form
    from clean import ROOT, clean_environment, warm_up

CELL_SECONDS = 120  # a cell that takes longer hangs; a whole lesson has 60 s


def execute(path: Path) -> str:
    """Run the notebook at ``path`` and store its outputs; returns what went wrong, or ""."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],  # on loopback, TCP needs no warning
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        coalesce_streams=True,
    )
    with tempfile.TemporaryDirectory(prefix="trimul-outputs-") as home:
        try:
            client.execute(env=clean_environment(home))
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            return f"cell `{failing(notebook)}`: {reason(error)}; the file was left as it was"
    form.write(path, form.canonical(notebook))
    return ""


def failing(notebook) -> str:
    """The id of the cell that stopped the run: it holds an error, or it is the last one begun."""
    begun = [c for c in notebook.cells if c.cell_type == "code" and c.execution_count]
    broken = [
        c
        for c in begun
        if any(o.output_type == "error" for o in c.outputs)
        and "raises-exception" not in c.metadata.get("tags", [])
    ]
    code = [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]
    return (broken or code[len(begun) : len(begun) + 1] or code[-1:])[0].id


def reason(error: Exception) -> str:
    """One line: the cell's own error, or the limit it ran into."""
    if isinstance(error, CellExecutionError):
        return f"{error.ename}: {error.evalue}".splitlines()[0]
    if isinstance(error, CellTimeoutError):
        return f"ran longer than {CELL_SECONDS} s"
    return "the kernel died"


def outputs(files: list[Path]) -> int:
    """Execute each of ``files``; returns how many failed."""
    warm_up()
    failures = 0
    for path in files:
        start = time.monotonic()
        problem = execute(path)
        failures += bool(problem)
        print(f"{path.name}: {problem or f'done in {time.monotonic() - start:.0f} s'}", flush=True)
    return failures


def check(files: list[Path], fix: bool) -> int:
    """Print every broken rule in ``files``, repaired first if ``fix``; returns their number."""
    if fix:
        for path in files:
            if form.fix(path):
                print(f"{path.name}: repaired")
    faults = form.check(files)
    for fault in faults:
        print(fault)
    print(f"{len(files)} notebooks, {len(form.RULES)} rules, {len(faults)} faults")
    return len(faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("check", "outputs"))
    parser.add_argument("--fix", action="store_true", help="check: repair what a program can")
    parser.add_argument("files", nargs="*", type=Path, help="default: all of notebooks/")
    args = parser.parse_intermixed_args()
    files = args.files or sorted((ROOT / "notebooks").glob("*.ipynb"))
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        parser.error(f"no such notebook: {', '.join(missing)}")
    return bool(outputs(files) if args.command == "outputs" else check(files, args.fix))


if __name__ == "__main__":
    sys.exit(main())
