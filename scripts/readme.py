"""Render what README shows: the ladder and its figures as measured, and the list of lessons.

python scripts/readme.py            # write README.md's tables and assets/figures/*.svg
python scripts/readme.py --check    # exit 1 if any of them is stale
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from matplotlib import pyplot

from trimul import ladder, measure
from trimul.figures import course
from trimul.figures.style import house_style
from trimul.problem import BENCHMARK_CASES

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "assets" / "figures"


def ladder_table() -> str:
    """The newest stored run as a Markdown table, with both floors below it."""
    rows = ladder.newest()
    heads = [f"N{c.n} B{c.batch} D{c.dim}{' masked' * c.masked}" for c in BENCHMARK_CASES]
    lines = [
        f"Mean microseconds per call, weights packed in every call ({ladder.origin(rows[0])}):",
        "",
        f"| | geometric mean | {' | '.join(heads)} |",
        f"|---|{'--:|' * (len(heads) + 1)}",
    ]
    lines += [_line(f"`{name}`", times) for name, times in ladder.rung_times(rows).items()]
    floors = ladder.floor_times(rows[0]["gpu"])
    lines += [_line(f"floor of {label}", times) for label, times in floors.items()]
    return "\n".join(lines) + "\n"


def lessons_table() -> str:
    """Number, title and minutes of every lesson, as its own head says them."""
    lines = ["| | lesson | minutes |", "|---|---|--:|"]
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        head = nbformat.read(path, as_version=4).cells[0].source
        title = re.search(r"^# (.+)$", head, re.MULTILINE).group(1)
        minutes = re.search(r"(\d+) min", head).group(1)
        lines.append(f"| {path.name[:2]} | [{title}](notebooks/{path.name}) | {minutes} |")
    return "\n".join(lines) + "\n"


#: The parts of README that are rendered, each between a pair of marks.
TABLES = {"ladder": ladder_table, "lessons": lessons_table}


def rendered(readme: str) -> str:
    """README with its tables as they should be now."""
    for name, table in TABLES.items():
        part = re.compile(f"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
        readme = part.sub(lambda _, table=table: table(), readme)
    return readme


def _line(name: str, times: list[float]) -> str:
    cells = [measure.geometric_mean(times), *times]
    return f"| {name} | {' | '.join(f'{us:,.0f}' for us in cells)} |"


def figures(folder: Path) -> None:
    """The figures that README shows, as SVG."""
    rows = ladder.newest()
    for name, figure in {"ladder": course.ladder(rows), "course_map": course.course_map()}.items():
        with house_style():  # its salt makes the file the same every time
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def stale() -> list[str]:
    """What is not as the stored measurements and the lessons say."""
    readme = (ROOT / "README.md").read_text()
    found = [] if readme == rendered(readme) else ["README.md"]
    with tempfile.TemporaryDirectory() as folder:
        figures(Path(folder))
        for fresh in sorted(Path(folder).iterdir()):
            kept = FIGURES / fresh.name
            if not kept.is_file() or kept.read_bytes() != fresh.read_bytes():
                found.append(f"assets/figures/{fresh.name}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        for what in stale():
            print(f"{what} is stale: run python scripts/readme.py", file=sys.stderr)
        return 1 if stale() else 0
    readme = ROOT / "README.md"
    readme.write_text(rendered(readme.read_text()))
    figures(FIGURES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
