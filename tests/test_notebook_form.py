"""The rules of scripts/form.py: each notices its own fault and no other; the course has none."""

import base64
import json
import shutil
import textwrap
from datetime import date

import pytest
from nbformat import v4

from scripts import form, notebooks
from trimul.gpu import recording
from trimul.gpu.cell import parse
from trimul.gpu.provenance import FIELDS

NOTEBOOKS = sorted((form.ROOT / "notebooks").glob("*.ipynb"))
HEADER = """\
# Count the work of five loops

- **What you'll do:** count.
- **What you'll learn:** why the work grows as N³.
- **What you'll need:** lesson 00.
- 20 minutes, no GPU.
"""
FOLDED = """\
<details><summary>Hint</summary>

Count the loops.

</details>
<details><summary>Solution</summary>

```python
answer = 5
```

</details>
"""
END = "## Key points\n\n- Count first.\n\nPrevious: [Start here](00_start_here.ipynb)"


def markdown(name, source):
    return v4.new_markdown_cell(source.rstrip("\n"), id=name)


def code(name, source, *outputs, tags=()):
    source = textwrap.dedent(source).strip("\n")
    cell = v4.new_code_cell(source, id=name, outputs=list(outputs))
    if tags:
        cell.metadata.tags = list(tags)
    return cell


def stream(text, name="stdout"):
    return v4.new_output("stream", name=name, text=text)


def picture(size=100, text="two bars, the left one higher"):
    data = {"image/png": base64.b64encode(bytes(size)).decode(), "text/plain": text}
    return v4.new_output("display_data", data=data)


def stub(number):
    source = f'answer = ...\nattempt("01.count_{number}", answer)'
    return code(f"stub-{number}", source, stream("not attempted yet"))


def good_cells():
    return [
        markdown("title", HEADER),
        code("imports", "from trimul import attempt, predict"),
        code("predict", 'predict("01.loops", None)', stream("no prediction yet")),
        code("print", 'assert 1 + 1 == 2\nprint("2 loops")', stream("2 loops\n")),
        markdown("exercise-1", "## Exercises"),
        stub(1),
        markdown("folded-1", FOLDED),
        stub(2),
        markdown("folded-2", FOLDED),
        markdown("end", END),
    ]


def save(path, cells):
    counter = 0
    for cell in cells:
        if cell.cell_type == "code":
            counter += 1
            cell.execution_count = counter
    path.parent.mkdir(parents=True, exist_ok=True)
    form.write(path, v4.new_notebook(cells=cells, metadata=form.METADATA))


@pytest.fixture
def lesson(tmp_path, monkeypatch):
    """A course of two lessons without a fault; returns the path of the second."""
    monkeypatch.setattr(recording, "FOLDER", tmp_path / "assets" / "recordings")
    recorded = {"outputs": [], "kept": None, "files": {}, "seconds": 1.0, "gpu": "NVIDIA H200"}
    cell = parse("01_work", "1 + 1", notebook="01_count.ipynb")
    recording.save(cell, dict.fromkeys(FIELDS, "") | recorded)
    first = [
        markdown("title", HEADER),
        code("imports", "import trimul\n\ntrimul"),
        markdown("end", "## Key points\n\nNext: [Count](01_count.ipynb)"),
    ]
    save(tmp_path / "notebooks" / "00_start_here.ipynb", first)
    save(tmp_path / "notebooks" / "01_count.ipynb", good_cells())
    results = tmp_path / "assets" / "results"
    results.mkdir(parents=True)
    rows = {"rows": [{"mean_us": 1234.0, "runs": 77}], "launch_ns": {"h200": 2500}}
    (results / "bench.json").write_text(json.dumps(rows))
    form.measured.cache_clear()
    return tmp_path / "notebooks" / "01_count.ipynb"


def broken_rules(path):
    return {fault.rule for fault in form.check([path])}


def test_a_good_lesson_has_no_faults(lesson):
    assert [
        str(fault) for fault in form.check([lesson, lesson.with_name("00_start_here.ipynb")])
    ] == []


def put(name, **changes):
    """Change attributes of the cell called ``name``."""

    def change(nb):
        cell = next(cell for cell in nb.cells if cell.id == name)
        for key, value in changes.items():
            cell[key] = value

    return change


def add(*cells):
    """Put cells before the exercises, and count anew."""

    def change(nb):
        nb.cells[4:4] = cells
        for count, cell in enumerate((c for c in nb.cells if c.cell_type == "code"), start=1):
            cell.execution_count = count

    return change


def write(source):
    return add(markdown("prose", source))


def run(source, *outputs, tags=()):
    return add(code("extra", source, *outputs, tags=tags))


def root(**changes):
    return lambda nb: nb.update(changes)


def code_cells(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


LONG = "\n".join(f"x{i} = {i}" for i in range(16))
ERROR = v4.new_output("error", ename="ValueError", evalue="no", traceback=["ValueError: no"])
RESULT = v4.new_output("execute_result", data={"text/plain": "2"}, execution_count=9)
VIEW = v4.new_output("display_data", data={form.WIDGET: {"model_id": "1"}, "text/plain": "slider"})
RAISES = ("raises-exception", "nbval-check-output")

# (the rule, what breaks it and nothing else)
BAD = [
    ("nbformat-version", root(nbformat_minor=4)),
    ("cell-ids", put("print", id="3f9a1c20")),
    ("cell-ids", put("print", id="predict")),
    ("metadata", root(metadata=form.METADATA | {"jupytext": {}})),
    ("metadata", put("print", metadata={"scrolled": True})),
    ("known-tags", put("print", metadata={"tags": ["nbval-skip"]})),
    ("known-tags", run("# NBVAL_SKIP\n1 + 1")),
    ("widget-state", run("1 + 1", VIEW)),
    ("execution-counts", put("print", execution_count=7)),
    ("execution-counts", put("print", execution_count=None)),
    ("execution-counts", run("1 + 1", RESULT)),
    (
        "execution-counts",
        lambda nb: [c.update(execution_count=None, outputs=[]) for c in code_cells(nb)],
    ),
    ("outputs-kept", put("print", outputs=[])),
    ("outputs-kept", put("stub-1", outputs=[])),
    ("stack-traces", run("1 + 1", ERROR)),
    ("stack-traces", run("raise ValueError", ERROR, tags=RAISES[:1])),
    ("stack-traces", run("1 + 1", tags=RAISES)),
    ("stderr", run("1 + 1", stream("a warning", "stderr"))),
    ("volatile", run("assert 1", tags=["nbval-ignore-output"])),
    ("image-size", run("1 + 1", picture(size=120_000))),
    ("alternative-text", run("1 + 1", picture(text="<Figure size 640x480 with 1 Axes>"))),
    ("alternative-text", run("1 + 1", picture(text=""))),
    ("output-length", run("print(1)", stream("x\n" * 61))),
    ("absolute-paths", run('"/home/me/x.txt"')),
    ("absolute-paths", run("1 + 1", stream("saved to /tmp/x.png"))),
    ("absolute-paths", write("Look into /usr/local/cuda for it.")),
    ("plain-python", run("%matplotlib inline")),
    ("plain-python", run("!nvidia-smi")),
    ("plain-python", run("%%bash\nls")),
    ("no-installs", run('import sys\n\nsys.path.insert(0, "..")')),
    ("cell-length", run(LONG)),
    (
        "imports-trimul",
        put("imports", source="attempt = predict = print"),
    ),
    ("ruff", run("import os")),
    ("ruff", run("undefined + 1")),
    ("ruff", run("x = {1:2}")),
    ("header", put("title", source=HEADER.replace("20 minutes", "a while"))),
    ("header", put("title", source=HEADER.replace("What you'll need", "Needs"))),
    ("header", write("# Another title")),
    ("gpu-cells", run("%%gpu\n1 + 1")),
    ("gpu-cells", run("%%gpu 02_work\n1 + 1")),
    ("gpu-cells", run("%%gpu 01_never\n1 + 1")),
    ("gpu-cells", run("%%gpu 01_work\n1 + 2")),
    ("gpu-cells", run("%%gpu 01_work --fast\n1 + 1")),
    ("gpu-cells", add(*(code(name, "%%gpu 01_work\n1 + 1") for name in ("one", "two")))),
    ("key-points", put("end", source=END.replace("Key points", "Summary"))),
    ("prediction", put("predict", source="print(predict)")),
    ("exercises", put("stub-2", source="answer = 1\nanswer")),
    ("exercises", put("stub-2", source=stub(2).source.replace("01.", "02."))),
    ("exercises", put("folded-2", source=FOLDED.replace("Hint", "Help"))),
    ("exercises", put("folded-2", source=FOLDED.replace("```python", "```"))),
    ("exercises", put("folded-2", source=FOLDED.replace("</summary>\n\n```", "</summary>\n```"))),
    ("exercises", put("folded-2", source=FOLDED.replace("= 5", "= 5\nattempt('01.x', answer)"))),
    ("neighbour-links", put("end", source=END.replace("](00_start_here.ipynb)", "]"))),
    ("links", write("See [this](02_missing.ipynb).")),
    ("links", write("See [this](#no-such-heading).")),
    ("links", write("See [this](00_start_here.ipynb#no-such-heading).")),
    ("links", write("See [this](../../elsewhere.md).")),
    ("links", write("![a plot](data:image/png;base64,aaaa)")),
    ("attachments", put("exercise-1", attachments={"x.png": {"image/png": "aa"}})),
    ("words", write("It works 🎉")),
    ("words", write("✓ right")),
    ("words", write("It works!")),
    ("words", write("Simply run it.")),
    ("times", write("The kernel takes 12 µs.")),
    ("times", write("The kernel takes 1.24 ms.")),
    ("times", write("The kernel takes 77 us, as [they say](https://example.org). It takes 8 us.")),
    ("times", write(r"The kernel takes $12\,\mu\text{s}$.")),
]


@pytest.mark.parametrize(("rule", "change"), BAD, ids=[f"{r}-{i}" for i, (r, _) in enumerate(BAD)])
def test_a_rule_notices_its_own_fault_and_no_other(lesson, rule, change):
    nb = form.parse(lesson.read_text())
    change(nb)
    lesson.write_text(form.dumps(nb))
    assert broken_rules(lesson) == {rule}


@pytest.mark.parametrize("body", ["undefined + 1", "x = {1:2}"])
def test_ruff_sees_the_bodies_of_gpu_cells(lesson, body):
    nb = form.parse(lesson.read_text())
    run(f"%%gpu 01_other\n{body}")(nb)
    form.write(lesson, nb)
    assert broken_rules(lesson) == {"ruff", "gpu-cells"}


def test_a_gpu_cell_with_its_recording_is_no_fault(lesson):
    nb = form.parse(lesson.read_text())
    run("%%gpu 01_work --timeout 5\n# one and one\n1 + 1")(nb)
    form.write(lesson, nb)
    assert broken_rules(lesson) == set()


OTHERS = {  # broken otherwise than by a change to the notebook's content
    "canonical-json": lambda path: path.write_text(json.dumps(json.loads(path.read_text()))),
    "numbering": lambda path: path.rename(path.with_name("02_count.ipynb")),
    "volatile-asserts": None,  # below: it never comes alone
}


def test_every_rule_is_tested():
    assert {rule for rule, _ in BAD} | set(OTHERS) == set(form.RULES)


def test_json_that_is_not_canonical(lesson):
    OTHERS["canonical-json"](lesson)
    assert broken_rules(lesson) == {"canonical-json"}


def test_a_gap_in_the_numbering(lesson):
    nb = form.parse(lesson.read_text())
    text = form.dumps(nb).replace("01.count", "02.count").replace("01.loops", "02.loops")
    lesson.unlink()
    lesson.with_name("02_count.ipynb").write_text(text)
    assert broken_rules(lesson.with_name("02_count.ipynb")) == {"numbering"}


VOLATILE = '[[exception]]\nrule = "volatile"\nplace = "01_count.ipynb#extra"\nreason = "…"\n'


def test_a_volatile_cell_needs_an_assert_and_an_entry(lesson):
    nb = form.parse(lesson.read_text())
    run("1 + 1", tags=["nbval-ignore-output"])(nb)
    form.write(lesson, nb)
    assert broken_rules(lesson) == {"volatile", "volatile-asserts"}
    (lesson.parents[1] / "tests").mkdir()
    (lesson.parents[1] / "tests" / "exceptions.toml").write_text(VOLATILE)
    assert broken_rules(lesson) == {"volatile-asserts"}


def test_an_exception_that_excuses_nothing_is_a_fault(lesson):
    (lesson.parents[1] / "tests").mkdir()
    (lesson.parents[1] / "tests" / "exceptions.toml").write_text(VOLATILE)
    assert ["remove the entry" in str(fault) for fault in form.check([lesson])] == [True]


@pytest.mark.parametrize(
    "source",
    [
        "The reference takes 1,234 µs, or 1.23 ms; a launch 2.5 µs.",
        "A launch takes 4 µs ([source](https://example.org)).",
        "Suppose that a launch takes 4 µs.",
        "| what | time ([source](https://example.org)) |\n|---|---|\n| launch | 4 µs |",
        "Wide lines wrap: a launch takes\n4 µs ([source](https://example.org)).",
        "Two loops, `x!`, $n!$ and ![a plot](00_start_here.ipynb) are fine; so is a != b.",
        "See [the key points](00_start_here.ipynb#Key-points) or [these](#key-points).",
    ],
)
def test_what_the_rules_let_pass(lesson, source):
    nb = form.parse(lesson.read_text())
    write(source)(nb)
    form.write(lesson, nb)
    assert [str(fault) for fault in form.check([lesson])] == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('def f():\n    """Two\n    lines."""\n    # why\n\n    return 1\n', 2),
        ('x = [\n    "a",\n    "b",\n]\n', 4),
        ('source = """\nint i;\n"""\n', 3),
    ],
)
def test_comments_blank_lines_and_docstrings_are_not_code(source, lines):
    assert form.code_lines(source) == lines


def test_a_kernel_may_be_long(lesson):
    nb = form.parse(lesson.read_text())
    run(f'{LONG}\nsource = "__global__ void f() {{}}"')(nb)
    form.write(lesson, nb)
    assert broken_rules(lesson) == set()


def test_fix_repairs_form_alone_and_once(lesson):
    nb = form.parse(lesson.read_text())
    run("x = {1:2}\nprint(x)", stream("{1: 2}\n"), RESULT, VIEW, picture())(nb)
    run("%%gpu 01_work\n1+1", picture())(nb)
    before = [cell.copy() for cell in nb.cells]
    nb.metadata = {"widgets": {"state": {}}, "jupytext": {}}
    nb.nbformat_minor = 4
    for cell in nb.cells:
        del cell["id"]
        cell.metadata = {"collapsed": True}
        if cell.cell_type == "code":
            cell.execution_count = 99
    lesson.write_text(json.dumps(nb))
    assert form.fix(lesson)
    assert broken_rules(lesson) == set()
    after = form.parse(lesson.read_text()).cells
    spaced = [c.source.replace("{1:2}", "{1: 2}").replace("\n1+1", "\n1 + 1") for c in before]
    assert spaced == [cell.source for cell in after]
    kept = [len(cell.get("outputs", [])) for cell in before]
    assert kept == [len(cell.get("outputs", [])) for cell in after]
    assert not form.fix(lesson)


def test_fix_leaves_readable_ids_and_cells_that_never_ran(lesson):
    nb = form.parse(lesson.read_text())
    put("print", execution_count=None)(nb)
    form.write(lesson, nb)
    assert not form.fix(lesson)
    assert broken_rules(lesson) == {"execution-counts"}


def test_outputs_are_stored_in_a_clean_state(lesson, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("TRIMUL_HOME", "/nowhere")
    names = ("TRIMUL_GPU", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MPLBACKEND")
    source = f"""
        import os
        from pathlib import Path

        assert not Path(os.environ["TRIMUL_HOME"]).exists()
        print({names}, Path.cwd().name, [os.environ.get(n) for n in {names}])
    """
    save(lesson, [code("one", source), code("two", "1 / 0", tags=RAISES), code("three", "6 * 7")])
    assert notebooks.execute(lesson) == ""
    first = lesson.read_bytes()
    one, two, three = form.parse(first.decode()).cells
    expected = ["recording", "", "1", "module://matplotlib_inline.backend_inline"]
    assert f"notebooks {expected}" in one.outputs[0].text
    assert two.outputs[0].ename == "ZeroDivisionError"
    assert (three.outputs[0].data["text/plain"], three.execution_count) == ("42", 3)
    assert one.metadata == {}
    assert notebooks.execute(lesson) == "" and lesson.read_bytes() == first


def test_a_notebook_that_fails_is_left_as_it_was(lesson):
    save(lesson, [code("one", "print(1)"), code("two", "1 / 0"), code("three", "print(3)")])
    before = lesson.read_bytes()
    assert notebooks.execute(lesson).startswith("cell `two`: ZeroDivisionError: division by zero")
    assert lesson.read_bytes() == before
    assert [path.name for path in lesson.parent.iterdir() if path.name.endswith(".part")] == []


def test_a_kernel_that_dies_is_named(lesson):
    shutil.rmtree(lesson.parents[1] / "assets")
    save(lesson, [code("one", "print(1)"), code("two", "import os\n\nos._exit(1)")])
    assert notebooks.execute(lesson).startswith("cell `two`: the kernel died")


def test_every_exception_says_what_where_why_and_when():
    for entry in form.exceptions(form.ROOT):
        assert set(entry) == {"rule", "place", "reason", "date"}, entry
        assert len(entry["reason"].split()) >= 4 and isinstance(entry["date"], date), entry


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_course_has_no_faults(path):
    faults = form.check([path])
    assert not faults, "\n".join(map(str, faults))
