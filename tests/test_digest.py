"""Hashes of code: what changes them, and what does not."""

from trimul import digest


def test_the_digest_sees_code_and_nothing_else():
    plain = digest.of_python("def f(a):\n    return a + 1\n")
    assert (
        digest.of_python(
            '"""Why."""\n\ndef f(a):  # add\n    """Doc."""\n    return (a\n        + 1)\n'
        )
        == plain
    )
    assert digest.of_python("def f(a):\n    return a + 2\n") != plain
    assert plain == "b600ca82e47b4680"  # on every Python: the machine that measures has another


def test_a_docstring_alone_is_an_empty_body():
    only = digest.of_python("def f(a):\n    'only a docstring'\n")
    assert only == digest.of_python("def f(a):\n    pass\n")


def test_a_file_that_is_no_python_is_hashed_by_its_bytes(tmp_path):
    python, kernel = tmp_path / "a.py", tmp_path / "a.cu"
    for path in (python, kernel):
        path.write_text("x = 1  # one\n")
    before = digest.of_file(python), digest.of_file(kernel)
    for path in (python, kernel):
        path.write_text("x = 1  # uno\n")
    assert digest.of_file(python) == before[0] == digest.of_python("x = 1")
    assert digest.of_file(kernel) != before[1]
