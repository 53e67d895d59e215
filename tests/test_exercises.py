"""The exercises of the lessons: solutions pass, stubs do not, typical wrong answers are rejected.

An exercise may use the names of its notebook's first code cell and its own, so each is run from
those alone. Wrong answers stand in ``tests/wrong_answers*.toml``: ``"01.name" = [snippet, …]``,
where a snippet replaces the solution.
"""

import ast
import linecache
import tomllib
from pathlib import Path

import pytest

from scripts import form

HERE = Path(__file__).parent
NOTEBOOKS = [form.Notebook(p) for p in sorted((form.ROOT / "notebooks").glob("*.ipynb"))]
EXERCISES = [(nb, exercise) for nb in NOTEBOOKS for exercise in nb.exercises]
WRONG = {
    name: snippets
    for file in sorted(HERE.glob("wrong_answers*.toml"))
    for name, snippets in tomllib.loads(file.read_text()).items()
}
each_exercise = pytest.mark.parametrize(
    ("nb", "exercise"), EXERCISES, ids=[exercise.name for _, exercise in EXERCISES]
)
each_wrong_answer = pytest.mark.parametrize(
    ("nb", "exercise", "snippet"),
    [(*pair, snippet) for pair in EXERCISES for snippet in WRONG.get(pair[1].name, [])],
    ids=[f"{e.name}-{i}" for _, e in EXERCISES for i, _ in enumerate(WRONG.get(e.name, []))],
)


def run(source: str, names: dict) -> None:
    """Execute a cell; ``inspect`` finds its source, as it does in a notebook."""
    file = f"<cell {len(linecache.cache)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)


def split(cell) -> tuple[str, str]:
    """(the stub, its ``attempt(…)`` expression)."""
    *stub, last = ast.parse(cell.source).body
    lines = cell.source.splitlines(keepends=True)
    return "".join(lines[: last.lineno - 1]) if stub else "", ast.unparse(last)


def verdict(nb, exercise, answer: str | None = None):
    """What ``attempt`` says of an answer, by default of the stub, after the first code cell."""
    names = {"__name__": "__main__"}
    run(nb.code[0].source, names)
    stub, attempt = split(exercise.cell)
    run(stub if answer is None else answer, names)
    run(f"verdict = {attempt}", names)
    return names["verdict"]


@each_exercise
def test_stub_is_not_an_attempt(nb, exercise, capsys):
    assert verdict(nb, exercise) is None
    assert "not attempted" in capsys.readouterr().out


@each_exercise
def test_solution_passes(nb, exercise, capsys):
    assert verdict(nb, exercise, exercise.solution) is True
    assert capsys.readouterr().out.rstrip().endswith("right")


@each_exercise
def test_solution_defines_what_the_stub_defines(nb, exercise):
    """Pasted into the stub's cell, the solution leaves nothing of it undone."""

    def bound(source):
        return {
            getattr(node, "name", None) or node.id
            for statement in ast.parse(source).body
            for node in [statement, *ast.walk(statement)]
            if isinstance(node, ast.FunctionDef)
            or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        }

    stub, attempt = split(exercise.cell)
    asked = {node.id for node in ast.walk(ast.parse(attempt)) if isinstance(node, ast.Name)}
    assert bound(stub) & asked <= bound(exercise.solution)


@each_exercise
def test_there_are_typical_wrong_answers(nb, exercise):
    assert len(WRONG.get(exercise.name, [])) >= 2, (
        f"put two wrong answers to {exercise.name} into tests/wrong_answers_{nb.number}.toml"
    )


@each_wrong_answer
def test_wrong_answer_is_rejected(nb, exercise, snippet):
    from trimul.exercises import WrongAnswer

    with pytest.raises(WrongAnswer) as caught:
        verdict(nb, exercise, snippet)
    assert len(str(caught.value).split()) >= 4, "the message does not help"


def test_exercises_and_checks_belong_together():
    from trimul import exercises

    in_notebooks = [exercise.name for _, exercise in EXERCISES]
    assert sorted(in_notebooks) == exercises.names()
    assert set(WRONG) <= set(in_notebooks), "wrong answers to an exercise that is in no notebook"


# --- the tests above, tested on a lesson of their own --------------------------------------------

LESSON = [
    ("code", "from trimul.exercises import WrongAnswer"),
    ("code", 'def double(x):\n    return ...\n\n\nattempt("01.double", double)'),
    (
        "markdown",
        "<details><summary>Hint</summary>\n\nAdd.\n</details>\n<details><summary>Solution</summary>"
        "\n\n```python\ndef double(x):\n    return 2 * x\n```\n</details>",
    ),
]
ATTEMPT = """
def attempt(name, answer):
    if answer(3) is ...:
        print("not attempted yet")
        return None
    if answer(3) != 6:
        raise WrongAnswer(f"double(3) is 6 and not {answer(3)}")
    print("right")
    return True
"""


@pytest.fixture
def made_up(tmp_path):
    from nbformat import v4

    sources = [(kind, s + ATTEMPT * (i == 0)) for i, (kind, s) in enumerate(LESSON)]
    makers = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell}
    path = tmp_path / "01_double.ipynb"
    form.write(path, v4.new_notebook(cells=[makers[kind](source) for kind, source in sources]))
    nb = form.Notebook(path)
    return nb, nb.exercises[0]


def test_the_three_verdicts(made_up):
    from trimul.exercises import WrongAnswer

    nb, exercise = made_up
    assert exercise.name == "01.double"
    assert verdict(nb, exercise) is None
    assert verdict(nb, exercise, exercise.solution) is True
    with pytest.raises(WrongAnswer, match="double"):
        verdict(nb, exercise, "def double(x):\n    return x")


def test_an_exercise_sees_the_first_code_cell_alone(made_up):
    nb, exercise = made_up
    with pytest.raises(NameError):
        verdict(nb, exercise, "def double(x):\n    return defined_in_the_third_cell")
