"""The form of a notebook: one small function per rule, all in one table, ``RULES``.

A rule reads a ``Notebook`` and yields ``(cell, message)`` for each fault; ``cell`` is None where
the whole notebook is meant. What a rule must let pass stands in ``tests/exceptions.toml``, with its
place, reason and date; an exception that excuses nothing is a fault too.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sysconfig
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote

import nbformat

from trimul.files import write_whole
from trimul.gpu import recording
from trimul.gpu.cell import read

ROOT = Path(__file__).resolve().parents[1]
RUFF = str(Path(sysconfig.get_path("scripts")) / "ruff")
IMAGE_BYTES = 100_000
CODE_LINES = 15
OUTPUT_LINES = 60
KERNELS = ("__global__", "triton.jit", "gluon.jit")  # sources that are the lesson stand in the cell
TAGS = {"raises-exception", "nbval-check-output", "nbval-ignore-output"}
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WIDGET = "application/vnd.jupyter.widget-view+json"
RULES = {}


def rule(function):
    """Put a rule into the table under its own name, with dashes."""
    RULES[function.__name__.replace("_", "-")] = function
    return function


@dataclass(frozen=True)
class Fault:
    """One broken rule at one place: ``FILE`` or ``FILE#cell-id``."""

    rule: str
    place: str
    message: str

    def __str__(self):
        return f"{self.place}: [{self.rule}] {self.message}"


@dataclass(frozen=True)
class Exercise:
    """A stub cell that ends in ``attempt("NN.name", …)`` and the markdown around it."""

    name: str
    cell: nbformat.NotebookNode
    folded: dict[str, str]  # summary in lower case -> what it hides

    @property
    def solution(self) -> str:
        """The fenced Python block of the folded solution, or ""."""
        fence = re.search(r"^```python\n(.*?)^```", self.folded.get("solution", ""), re.S | re.M)
        return fence.group(1) if fence else ""


class Notebook:
    """A notebook and the readings of it that the rules share."""

    def __init__(self, path: Path):
        self.path = Path(path).resolve()
        self.root = self.path.parent.parent
        self.text = self.path.read_text(encoding="utf-8")
        self.node = parse(self.text)
        self.cells = self.node.cells
        self.number = self.path.name[:2]

    @cached_property
    def code(self) -> list:
        return [cell for cell in self.cells if cell.cell_type == "code"]

    @cached_property
    def markdown(self) -> list:
        return [cell for cell in self.cells if cell.cell_type == "markdown"]

    @cached_property
    def headings(self) -> list[tuple[int, str]]:
        """(level, text) of every markdown heading."""
        return [
            (len(marks), text.strip())
            for cell in self.markdown
            for marks, text in re.findall(r"^(#{1,6}) +(.+)$", unfenced(cell.source), re.M)
        ]

    @cached_property
    def exercises(self) -> list[Exercise]:
        found = []
        for index, cell in enumerate(self.cells):
            last = (tree(cell) or [None])[-1] if cell.cell_type == "code" else None
            if isinstance(last, ast.Expr) and called(last.value) == "attempt":
                name = last.value.args[0]
                name = name.value if isinstance(name, ast.Constant) else ast.unparse(name)
                found.append(Exercise(name, cell, folded(self.cells, index)))
        return found

    @cached_property
    def neighbours(self) -> list[Path]:
        return sorted(self.path.parent.glob("[0-9][0-9]_*.ipynb"))


def parse(text: str):
    """A notebook from its JSON, without nbformat's repairs: a missing id stays missing."""
    node = nbformat.from_dict(json.loads(text))
    for cell in node.cells:
        cell.source = joined(cell.source)
        for output in cell.get("outputs", []):
            if "text" in output:
                output.text = joined(output.text)
            for kind, value in output.get("data", {}).items():
                output.data[kind] = joined(value)
    return node


def dumps(node) -> str:
    """Canonical JSON, as ``nbformat.write`` has it, without nbformat's repairs."""
    return nbformat.v4.writes(node).rstrip("\n") + "\n"


def joined(text):
    """nbformat writes long texts as lists of lines."""
    return (
        "".join(text) if isinstance(text, list) and all(isinstance(t, str) for t in text) else text
    )


def calls(cell) -> list[ast.Call]:
    """Every call in a code cell."""
    return [n for s in tree(cell) or [] for n in ast.walk(s) if isinstance(n, ast.Call)]


def called(node) -> str:
    """``attempt`` for both ``attempt(…)`` and ``trimul.attempt(…)``; "" if it is no call."""
    function = getattr(node, "func", None)
    return getattr(function, "id", None) or getattr(function, "attr", None) or ""


def body(cell) -> str:
    """A code cell's Python, without its ``%%gpu`` line."""
    return re.sub(r"\A%%gpu\b[^\n]*", "", cell.source)


def tree(cell) -> list[ast.stmt] | None:
    """The statements of a code cell, or None if it is not Python."""
    try:
        return ast.parse(body(cell)).body
    except SyntaxError:
        return None


def asserts(cell) -> int:
    """How many ``assert`` statements a code cell holds."""
    return sum(isinstance(n, ast.Assert) for s in tree(cell) or [] for n in ast.walk(s))


def folded(cells: list, index: int) -> dict[str, str]:
    """What the ``<details>`` between this cell and the next code cell hide, by summary."""
    below = takewhile(lambda cell: cell.cell_type == "markdown", cells[index + 1 :])
    fold = r"<details>\s*<summary>(\w+)</summary>(.*?)</details>"
    found = [pair for cell in below for pair in re.findall(fold, cell.source, re.S)]
    return {name.lower(): text for name, text in reversed(found)}  # the nearest one counts


def unfenced(source: str) -> str:
    """Markdown without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", source, flags=re.S | re.M)


def prose(source: str) -> str:
    """The words of a markdown cell: no code, mathematics, HTML tags or link targets."""
    text = unfenced(source)
    for noise in (r"`[^`\n]*`", r"\$\$.*?\$\$", r"\$[^$\n]+\$", r"<[^>\n]+>", r"!(?=\[)"):
        text = re.sub(noise, " ", text, flags=re.S)
    return re.sub(r"\]\([^)]*\)", "]", text)


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def texts(cell) -> Iterator[str]:
    """The text outputs of a code cell."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.text
        elif output.output_type == "error":
            yield "\n".join(output.traceback)
        else:
            yield from (v for k, v in output.data.items() if k.startswith("text/"))


def images(cell) -> Iterator[tuple[str, str, dict, dict]]:
    """(mime type, base64 data, all data, metadata) of each picture of a code cell."""
    for output in cell.outputs:
        for kind, value in output.get("data", {}).items():
            if kind.startswith("image/"):
                yield kind, value, output.data, output.metadata


# --- the file ----------------------------------------------------------------------------------


@rule
def nbformat_version(nb):
    if (nb.node.nbformat, nb.node.nbformat_minor) != (4, 5):
        yield None, "is not nbformat 4.5; --fix converts it"


@rule
def cell_ids(nb):
    seen = Counter(cell.get("id") for cell in nb.cells)
    for position, cell in enumerate(nb.cells):
        if not readable(cell.get("id")):
            yield None, f"cell {position} has no readable id ({cell.get('id')!r}); --fix names it"
        elif seen[cell.id] > 1:
            yield cell, "two cells share this id; --fix renames one"


def readable(name: str | None) -> bool:
    """Lower-case words and dashes; not the random digits that editors give."""
    return bool(name and re.fullmatch(r"(?![0-9a-f]{8}(-|$))[a-z][a-z0-9-]{0,63}", name))


@rule
def metadata(nb):
    if nb.node.metadata != METADATA:
        yield None, "holds metadata beyond kernelspec and language_info; --fix removes it"
    for cell in nb.cells:
        if extra := set(cell.metadata) - {"tags"}:
            yield cell, f"holds the metadata {', '.join(sorted(extra))}; --fix removes it"


@rule
def known_tags(nb):
    for cell in nb.cells:
        for tag in set(tags(cell)) - TAGS:
            yield cell, f"tag {tag!r} is not one of {', '.join(sorted(TAGS))}"
        if cell.cell_type == "code" and re.search(r"NBVAL_|PYTEST_VALIDATE", cell.source):
            yield cell, "steers nbval by a comment; use a tag, which the checker sees"


@rule
def widget_state(nb):
    if "widgets" in nb.node.metadata or any(
        WIDGET in output.get("data", {}) for cell in nb.code for output in cell.outputs
    ):
        yield None, "keeps widget state; --fix removes it"


@rule
def canonical_json(nb):
    if nb.text != dumps(nb.node):
        yield None, "is not written in canonical JSON; --fix rewrites it"


@rule
def numbering(nb):
    if not re.fullmatch(r"\d\d_[a-z0-9_]+\.ipynb", nb.path.name):
        yield None, "is not called NN_some_words.ipynb"
        return
    before = {path.name[:2] for path in nb.neighbours if path.name < nb.path.name}
    if len(before) != int(nb.number) or nb.number in before:
        yield None, f"follows {len(before)} lessons; numbers run 00, 01, … without gap or double"


# --- outputs -----------------------------------------------------------------------------------


@rule
def execution_counts(nb):
    if nb.code and all(cell.execution_count is None for cell in nb.code):
        yield None, "has not been run, or its outputs were cleared; run `make outputs`"
        return
    for expected, cell in enumerate((c for c in nb.code if c.source.strip()), start=1):
        if cell.execution_count != expected:
            yield (
                cell,
                f"execution count {cell.execution_count}, not {expected}; run `make outputs`",
            )
        for output in cell.outputs:
            if output.output_type == "execute_result" and output.execution_count != expected:
                yield cell, "its result carries another count than its cell; run `make outputs`"


@rule
def outputs_kept(nb):
    shows = {"print", "attempt", "predict", "reveal", "claim", "show"}
    for cell in nb.code:
        top = {called(s.value) for s in tree(cell) or [] if isinstance(s, ast.Expr)}
        if top & shows and cell.execution_count is not None and not cell.outputs:
            yield cell, f"calls {min(top & shows)} and shows nothing; run `make outputs`"


@rule
def stack_traces(nb):
    for cell in nb.code:
        raised = any(output.output_type == "error" for output in cell.outputs)
        meant = "raises-exception" in tags(cell)
        if raised and not meant:
            yield cell, "stores a stack trace; mend the cell, or tag it raises-exception"
        if meant and not raised:
            yield cell, "is tagged raises-exception and raises nothing; run `make outputs`"
        if meant and "nbval-check-output" not in tags(cell):
            yield cell, "is tagged raises-exception only; nbval needs nbval-check-output beside it"


@rule
def stderr(nb):
    for cell in nb.code:
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                first = output.text.strip().splitlines()[0][:80]
                yield cell, f"writes to stderr ({first}); remove the cause of the warning"


@rule
def volatile(nb):
    for cell in nb.code:
        if "nbval-ignore-output" in tags(cell):
            yield cell, "nbval ignores its output; that needs an entry in tests/exceptions.toml"


@rule
def volatile_asserts(nb):
    for cell in nb.code:
        if "nbval-ignore-output" in tags(cell) and not asserts(cell):
            yield cell, "nbval ignores its output and it asserts nothing; add an assert"


@rule
def image_size(nb):
    for cell in nb.code:
        for kind, value, _, _ in images(cell):
            size = len(value) if kind == "image/svg+xml" else len(value) * 3 // 4
            if size > IMAGE_BYTES:
                yield cell, f"{kind} of {size // 1000} kB; at most {IMAGE_BYTES // 1000} kB"


@rule
def alternative_text(nb):
    bare = r"\s*|<Figure size .*>|<IPython\.core\.display\.\w+ object>"
    for cell in nb.code:
        for kind, _, data, meta in images(cell):
            alt = meta.get("alt") or meta.get(kind, {}).get("alt") or data.get("text/plain", "")
            if re.fullmatch(bare, alt):
                yield (
                    cell,
                    "a picture without alternative text; show it with figures.show(fig, alt=…)",
                )
    for cell in nb.markdown:
        if re.search(r"!\[\s*\]\(|<img(?![^>]*\balt=\"[^\"]+\")[^>]*>", unfenced(cell.source)):
            yield cell, "an image without alternative text; write ![what it shows](file)"


@rule
def output_length(nb):
    for cell in nb.code:
        lines = 0
        for output in cell.outputs:  # of several representations, one is shown
            shown = texts(nbformat.from_dict({"outputs": [output]}))
            lines += max((max(t.count("\n") + 1, t.count("<tr")) for t in shown), default=0)
        if lines > OUTPUT_LINES:
            yield cell, f"shows {lines} lines; at most {OUTPUT_LINES}"


@rule
def absolute_paths(nb):
    roots = "home|Users|work|tmp|root|usr|opt|mnt|var|private|content"
    path = rf"(?<![\w.:/<~)])/(?:{roots})/[\w.]|[A-Z]:\\\w"
    for cell in nb.cells:
        shown = list(texts(cell)) if cell.cell_type == "code" else []
        for text in (cell.source, *shown):
            if found := re.search(path, text):
                line = text[text.rfind("\n", 0, found.start()) + 1 :].split("\n")[0]
                yield cell, f"an absolute path: {line.strip()[:80]}"
                break


# --- code --------------------------------------------------------------------------------------


@rule
def plain_python(nb):
    for cell in nb.code:
        if tree(cell) is None:
            yield cell, "is not plain Python; no magics but %%gpu, no ! commands, no syntax errors"


@rule
def no_installs(nb):
    banned = (
        r"pip3? install|conda install|apt(-get)? install|sys\.path|os\.system|os\.chdir|get_ipython"
    )
    for cell in nb.code:
        if found := re.search(banned, cell.source):
            yield cell, f"uses {found.group()!r}; the environment is made by `make env` alone"


@rule
def cell_length(nb):
    for cell in nb.code:
        lines = code_lines(body(cell))
        if lines > CODE_LINES and not any(mark in cell.source for mark in KERNELS):
            yield cell, f"{lines} lines of code; at most {CODE_LINES}: move some into trimul/"


def code_lines(source: str) -> int:
    """Lines that hold code: comments, blank lines and docstrings do not count."""
    try:
        statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    except SyntaxError:
        statements = []
    strings = {
        line
        for node in statements
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    code = [
        number
        for number, line in enumerate(source.splitlines(), start=1)
        if line.strip() and not line.strip().startswith("#") and number not in strings
    ]
    return len(code)


@rule
def imports_trimul(nb):
    first = tree(nb.code[0]) if nb.code else []
    names = [
        name
        for node in first or []
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None), *(alias.name for alias in node.names)]
    ]
    if not any(name and name.split(".")[0] == "trimul" for name in names):
        yield nb.code[0] if nb.code else None, "the first code cell imports trimul"


@rule
def ruff(nb):
    for cell, message in lint(nb):
        yield cell, message
    for cell, source in formatted(nb):
        if source != cell.source:
            yield cell, "is not formatted; --fix runs ruff format"


def run_ruff(nb, *args: str, source: str, suffix: str = ".ipynb") -> str:
    name = ROOT / "notebooks" / nb.path.with_suffix(suffix).name
    command = [RUFF, *args, "--stdin-filename", str(name), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, cwd=ROOT).stdout


def as_notebook(sources: list[str]) -> str:
    cells = [nbformat.v4.new_code_cell(source, id=f"c{i}") for i, source in enumerate(sources)]
    return dumps(nbformat.v4.new_notebook(cells=cells, metadata=METADATA))


def programs(nb) -> tuple[list, list]:
    """(cells that share the notebook's names, ``%%gpu`` cells: each a program of its own)."""
    valid = [cell for cell in nb.code if tree(cell) is not None]
    here = [cell for cell in valid if not cell.source.startswith("%%gpu")]
    return here, [cell for cell in valid if cell.source.startswith("%%gpu")]


def lint(nb):
    here, elsewhere = programs(nb)
    for group in (here, *([cell] for cell in elsewhere)):
        source = as_notebook([body(cell) for cell in group])
        found = run_ruff(nb, "check", "--output-format=json", source=source)
        for fault in json.loads(found or "[]"):
            cell = group[fault["cell"] - 1]
            row = fault["location"]["row"]
            yield cell, f"line {row}: {fault['code']} {fault['message']}"


def formatted(nb):
    """(cell, source as ruff formats it) of every code cell."""
    here, elsewhere = programs(nb)
    for group in filter(None, (here, *([cell] for cell in elsewhere))):
        answer = run_ruff(nb, "format", source=as_notebook([body(cell) for cell in group]))
        for cell, new in zip(group, parse(answer).cells if answer else group, strict=True):
            head = cell.source[: len(cell.source) - len(body(cell))]
            yield cell, head + ("\n" * bool(head) + new.source if answer else body(cell))


# --- the lesson --------------------------------------------------------------------------------


@rule
def header(nb):
    first = nb.cells[0] if nb.cells else None
    if first is None or first.cell_type != "markdown" or not first.source.startswith("# "):
        yield first, "the first cell is markdown and starts with the title, `# Verb …`"
        return
    needed = {
        "What you'll do": r"you(['’]| wi)ll do",
        "What you'll learn": r"you(['’]| wi)ll learn",
        "What you'll need": r"you((['’]| wi)ll)? need",
        "minutes": r"\d+ min",
        "GPU or not": r"\bGPU\b",
    }
    head = "\n".join(cell.source for cell in nb.cells[:2] if cell.cell_type == "markdown")
    for what, pattern in needed.items():
        if not re.search(pattern, head, re.I):
            yield first, f"the header does not say: {what}"
    if sum(level == 1 for level, _ in nb.headings) != 1:
        yield first, "a lesson has one title: other headings start with ## or ###"


@rule
def gpu_cells(nb):
    """Each has a name of its own, and a recording of it and of the code as they are."""
    seen = set()
    for cell in nb.code:
        if not cell.source.startswith("%%gpu"):
            continue
        try:
            parsed = read(cell.source, notebook=nb.path.name, id=cell.id)
        except ValueError as error:
            yield cell, str(error)
            continue
        if parsed.name in seen:
            yield cell, f"another cell is called {parsed.name} too"
        elif parsed.name and not parsed.name.startswith(f"{nb.number}_"):
            yield cell, f"{parsed.name} is not called {nb.number}_some_words"
        elif words := recording.fault(parsed):
            yield cell, words
        seen.add(parsed.name)


@rule
def key_points(nb):
    if not any(text.lower() == "key points" for _, text in nb.headings):
        yield None, "has no section `## Key points`"


@rule
def prediction(nb):
    if nb.number != "00" and not any(
        called(c) == "predict" for cell in nb.code for c in calls(cell)
    ):
        yield None, "asks for no prediction: predict(key, None) before the first measurement"


@rule
def exercises(nb):
    if nb.number != "00" and len(nb.exercises) < 2:
        yield None, f"has {len(nb.exercises)} exercises; at least two cells end in attempt(…)"
    for cell in nb.code:
        ends = [exercise.cell for exercise in nb.exercises]
        if sum(called(c) == "attempt" for c in calls(cell)) > (cell in ends):
            yield cell, "attempt(…) is the last line of its cell, once"
    for exercise in nb.exercises:
        if not re.fullmatch(rf"{nb.number}\.[a-z0-9_]+", exercise.name):
            yield exercise.cell, f"exercise {exercise.name!r} is not called {nb.number}.some_name"
        if not exercise.folded.get("hint", "").strip():
            yield exercise.cell, "no <details><summary>Hint</summary> beside it"
        if not exercise.solution:
            yield (
                exercise.cell,
                "the markdown below holds <details><summary>Solution</summary>, an empty line, "
                "and a ```python block",
            )
        elif not exercise.folded["solution"].startswith("\n\n"):
            yield (
                exercise.cell,
                "an empty line after <summary>Solution</summary>, or it is not code",
            )
        elif "attempt(" in exercise.solution:
            yield exercise.cell, "the solution leaves out the attempt(…) line"


@rule
def neighbour_links(nb):
    text = "\n".join(cell.source for cell in nb.markdown)
    names = [path.name for path in nb.neighbours]
    here = names.index(nb.path.name) if nb.path.name in names else 0
    wanted = {"previous": names[here - 1 : here], "next": names[here + 1 : here + 2]}
    for which, neighbour in wanted.items():
        if neighbour and f"]({neighbour[0]})" not in text:
            yield None, f"does not link its {which} lesson, [Title]({neighbour[0]})"


@rule
def links(nb):
    pattern = r"\]\(\s*<?([^)\s>]+)|(?:href|src)=\"([^\"]+)\""
    for cell in nb.markdown:
        for target in map("".join, re.findall(pattern, unfenced(cell.source))):
            if problem := broken(nb, target):
                yield cell, f"link {target[:60]}: {problem}"


def broken(nb, target: str) -> str:
    """Why a link of the notebook does not work on every machine, or ""."""
    if re.match(r"https?://|mailto:", target):
        return ""
    if target.startswith("data:") or target.startswith("attachment:"):
        return "a picture inside the markdown; draw it with code, or put it in assets/"
    file, _, anchor = unquote(target).partition("#")
    path = (nb.path.parent / file).resolve() if file else nb.path
    if not path.is_relative_to(nb.root):
        return "leads out of the repository"
    if not path.exists():
        return "no such file"
    if anchor and path.suffix == ".ipynb" and anchor not in anchors(path):
        return "no such heading (words joined by dashes)"
    return ""


def anchors(path: Path) -> set[str]:
    """A notebook's anchors, in JupyterLab's spelling and in GitHub's."""
    headings = [re.sub(r"[`*]", "", text) for _, text in Notebook(path).headings]
    jupyter = {text.replace(" ", "-") for text in headings}
    return jupyter | {re.sub(r"[^\w-]", "", text.lower().replace(" ", "-")) for text in headings}


@rule
def attachments(nb):
    for cell in nb.cells:
        if cell.get("attachments"):
            yield cell, "holds an attached picture; draw it with code, or put it in assets/"


WORDS = {
    "emoji": (r"[\U0001F000-\U0001FAFF\u2600-\u27BF\u2B50\uFE0F]", "an emoji or a printed tick"),
    "exclamation": (r"!(?!=)", "an exclamation mark"),
    "simply": (r"\b[Ss]imply\b", "the word simply"),
}


@rule
def words(nb):
    for cell in nb.markdown:
        text = prose(cell.source)
        for pattern, what in WORDS.values():
            if found := re.search(pattern, text):
                near = text[max(0, found.start() - 30) : found.end() + 10].replace("\n", " ")
                yield cell, f"{what}: …{near.strip()}…"


# --- numbers -----------------------------------------------------------------------------------

UNITS = {"ns": 1e-3, "µs": 1.0, "μs": 1.0, "us": 1.0, "ms": 1e3}  # in microseconds
TIME = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?)[ \u00a0\u202f]?(ns|µs|μs|us|ms)\b")
SOURCED = re.compile(r"\]\(https?://|reported by", re.I)
SUPPOSED = re.compile(r"\b(suppose|assume|imagine)", re.I)


@rule
def times(nb):
    shown = {pair for cell in nb.code for text in texts(cell) for pair in TIME.findall(text)}
    for cell in nb.markdown:
        for sentence in sentences(unfenced(cell.source)):
            if SOURCED.search(sentence) or SUPPOSED.search(sentence):
                continue
            for number, unit in TIME.findall(sentence):
                if not backed(number, unit, nb.root) and (number, unit) not in shown:
                    yield (
                        cell,
                        f"{number} {unit} is neither in assets/results/*.json nor printed here: "
                        "cite a source in its sentence (a link, `reported by`), or say `suppose`",
                    )


def sentences(text: str) -> list[str]:
    """Sentences of markdown; a table, and an item of a list, is one sentence or more of its own."""
    for tex, plain in ((r"\\,|~", " "), (r"\\(?:text|mathrm)\{(.*?)\}", r"\1"), (r"\\mu\s?", "µ")):
        text = re.sub(tex, plain, text)
    text = re.sub(r"\n(?=\|)", " ", text)
    text = re.sub(r"(?<=[^\n])\n(?![\n#>]|\s*[-*+] |\s*\d+\. )", " ", text)
    return [s for line in text.splitlines() for s in re.split(r"(?<=[.!?]) +(?=[A-Z`*(\[])", line)]


def backed(number: str, unit: str, root: Path) -> bool:
    """Is ``number unit`` one of the measured times, to the digits printed?"""
    digits = len(number.partition(".")[2])
    value = float(number.replace(",", ""))
    half = 0.5 * 10**-digits * (1 + 1e-9)
    return any(abs(us / UNITS[unit] - value) <= half for us in measured(root))


def microseconds(data, unit: float = 0.0) -> Iterator[float]:
    """Every time in JSON data: numbers under a key that ends in _ns, _us or _ms."""
    if isinstance(data, dict):
        for key, value in data.items():
            named = re.search(r"(?:^|_)(ns|us|ms)$", key)
            yield from microseconds(value, UNITS[named.group(1)] if named else unit)
    elif isinstance(data, list):
        for value in data:
            yield from microseconds(value, unit)
    elif unit and isinstance(data, int | float) and not isinstance(data, bool):
        yield data * unit


@cache
def measured(root: Path) -> list[float]:
    """Every time in the course's measurements, in microseconds."""
    files = sorted((root / "assets" / "results").glob("*.json"))
    return [us for file in files for us in microseconds(json.loads(file.read_text()))]


# --- checking and repairing --------------------------------------------------------------------


def check(files: list[Path]) -> list[Fault]:
    """Every fault of ``files`` that no exception excuses, and every exception that excuses none."""
    faults = []
    for path in files:
        found = list(faults_of(Notebook(path)))
        excuses = {
            (e["rule"], e["place"])
            for e in exceptions(Path(path).resolve().parent.parent)
            if e["place"].partition("#")[0] == Path(path).name and e["rule"] in RULES
        }
        used = {(f.rule, f.place) for f in found} & excuses
        faults += [fault for fault in found if (fault.rule, fault.place) not in excuses]
        faults += [
            Fault(
                name,
                place,
                "is excused in tests/exceptions.toml and not at fault: remove the entry",
            )
            for name, place in sorted(excuses - used)
        ]
    return faults


def faults_of(nb: Notebook) -> Iterator[Fault]:
    """Every broken rule of one notebook, exceptions not considered."""
    for name, function in RULES.items():
        for cell, message in function(nb):
            where = nb.path.name + (f"#{cell.get('id')}" if cell is not None else "")
            yield Fault(name, where, message)


def exceptions(root: Path) -> list[dict]:
    """The entries of the visible list: rule, place, reason, date."""
    file = root / "tests" / "exceptions.toml"
    return tomllib.loads(file.read_text()).get("exception", []) if file.exists() else []


def fix(path: Path) -> bool:
    """Repair what a program can, in place; returns whether anything changed.

    Sources change by ``ruff format`` alone, and no output is lost but widget views.
    """
    nb = Notebook(path)
    for cell, source in list(formatted(nb)):
        cell.source = source
    return write(path, canonical(nb.node))


def canonical(node):
    """The notebook with readable ids, counts 1..n, and no metadata but what the course uses."""
    node.nbformat, node.nbformat_minor = 4, 5
    node.metadata = nbformat.from_dict(METADATA)
    taken = Counter(cell.get("id") for cell in node.cells)
    ids, count = {name for name in taken if readable(name)}, 0
    seen = set()
    for cell in node.cells:
        if not readable(cell.get("id")) or cell.id in seen:
            cell.id = fresh(slug(cell), ids)
        ids.add(cell.id)
        seen.add(cell.id)
        cell.metadata = nbformat.from_dict({"tags": tags(cell)} if tags(cell) else {})
        if cell.cell_type == "code":
            count += bool(cell.source.strip())
            canonical_outputs(cell, count)
    return node


def canonical_outputs(cell, count: int) -> None:
    """Number a cell that has run, and its result; drop widget views and transient data."""
    if cell.execution_count is not None:
        cell.execution_count = count
    for output in cell.outputs:
        output.get("data", {}).pop(WIDGET, None)
        output.pop("transient", None)
        if output.output_type == "execute_result":
            output.execution_count = cell.execution_count


def slug(cell) -> str:
    """A name for a cell: its heading or its first words."""
    heading = re.search(r"^#+ +(.+)$", cell.source, re.M)
    text = heading.group(1) if heading and cell.cell_type == "markdown" else prose(cell.source)
    words = re.findall(r"[a-z][a-z0-9]*", text.lower())[:5]
    return "-".join(words)[:50].strip("-") or cell.cell_type


def fresh(name: str, taken: set[str]) -> str:
    """``name``, or ``name-2``, ``name-3``, … if it is taken or looks random."""
    name = name if readable(name) else f"cell-{name}"
    return next(
        candidate
        for candidate in (name, *(f"{name}-{i}" for i in range(2, 10_000)))
        if candidate not in taken
    )


def write(path: Path, node) -> bool:
    """Write canonical JSON, whole or not at all; returns whether the file changed."""
    path = Path(path)
    text = dumps(node)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    write_whole(path, text)
    return True
