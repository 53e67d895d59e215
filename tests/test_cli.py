"""The command line: pure JSON, exit codes, and nothing lost."""

import json

import pytest

from trimul import measure
from trimul.__main__ import main
from trimul.measure import ROW_FIELDS


@pytest.fixture
def command(capsys, monkeypatch):
    """Run a command on the CPU: ``status, standard output, standard error``."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    def run(*words):
        status = main(list(words))
        return status, *capsys.readouterr()

    return run


def test_recorded_ladder_as_json_is_a_list_of_rows(command):
    status, out, _ = command("ladder", "--recorded", "--json")
    rows = json.loads(out)
    assert status == 0 and rows == measure.recorded_rows()
    assert all(set(row) == set(ROW_FIELDS) for row in rows)
    assert set(rows[0]["case"]) == {"n", "batch", "dim", "hidden", "masked", "distribution"}
    assert all(isinstance(row["gpu"], str) for row in rows)


def test_recorded_ladder_as_text(command):
    status, out, _ = command("ladder", "--recorded")
    assert status == 0 and "NVIDIA H200" in out and "einsum" in out


def test_ladder_here_counts_work_and_keeps_cpu_times_apart(command):
    status, out, _ = command("ladder", "--device", "cpu")
    lines = {line.split()[0]: line.split() for line in out.splitlines()[1:]}
    assert status == 0 and "say nothing about a GPU" in out
    assert float(lines["einsum"][2]) < 1e-4
    assert int(lines["einsum"][3]) == 17 and lines["loops"][3] == "Python"


def test_bench_on_a_cpu_is_one_small_case(command, tmp_path):
    out_file = tmp_path / "new" / "bench.json"
    status, out, err = command("bench", "einsum", "--out", str(out_file), "--json")
    rows = json.loads(out)
    assert status == 0 and {row["protocol"] for row in rows} == {"call", "packed"}
    assert all(row["gpu"] == "none" for row in rows)
    assert json.loads(out_file.read_text()) == measure.document(rows)
    assert str(out_file) in err


def test_an_existing_file_is_never_replaced_and_nothing_runs_first(command, tmp_path, monkeypatch):
    kept = tmp_path / "bench.json"
    kept.write_text("mine")
    monkeypatch.setattr(measure, "bench", lambda *a, **k: pytest.fail("measured before asking"))
    status, out, err = command("bench", "einsum", "--out", str(kept))
    assert (status, out, kept.read_text()) == (2, "", "mine")
    assert "choose another name" in err


def test_what_cannot_be_done_is_said_in_one_line(command):
    for words, expected in {
        ("bench", "einsun"): "the ladder has loops, einsum",
        ("check", "einsun"): "the ladder has loops, einsum",
        ("bench", "einsum", "--device", "cuda"): "no GPU can be used here",
        ("bench", "einsum", "--flush-l2"): "a CPU's caches",
        ("profile", "einsum", "--n", "0"): "Case.n",
    }.items():
        status, out, err = command(*words)
        assert status == 2 and out == "" and expected in err, words


@pytest.mark.parametrize(
    "words", [(), ("benhc",), ("bench",), ("bench", "einsum", "--device", "tpu")]
)
def test_wrong_usage_exits_with_2(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    assert stopped.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_profile_lists_what_ran(command):
    status, out, _ = command("profile", "einsum", "--n", "8", "--json")
    document = json.loads(out)
    assert status == 0
    assert sum(k["op"] == "mm" for k in document["kernels"]) == 6
    assert {k["within"] for k in document["kernels"] if k["op"] == "mm"} == {"linear"}
    assert sum(k["op"] == "bmm" and k["within"] == "einsum" for k in document["kernels"]) == 1
