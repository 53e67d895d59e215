"""What is stored must be whole, of one run, of the code as it is, and shown as it is."""

import json

from scripts import readme
from trimul import digest, ladder, measure, rungs, source
from trimul.gpu import recording
from trimul.problem import BENCHMARK_CASES, CORRECTNESS_CASES

ROWS = measure.recorded_rows()
PROFILES = measure.stored("profile")
TIMED = rungs.at_full_size()
CHECKS = measure.stored("check")


def test_every_rung_is_measured_on_all_seven_cases_with_both_protocols():
    for name in TIMED:
        for case in BENCHMARK_CASES:
            for protocol in measure.PROTOCOLS:
                for flushed in (False, True):
                    found = measure.select(
                        ROWS, case, rung=name, protocol=protocol, l2_flushed=flushed
                    )
                    assert found, (name, str(case), protocol, flushed)


def test_rows_are_whole_and_plausible():
    for row in ROWS:
        assert set(row) == set(measure.ROW_FIELDS)
        assert isinstance(row["gpu"], str) and row["gpu"] not in ("", "none")
        assert 0 < row["p20_us"] <= row["median_us"] <= row["p80_us"]
        assert row["runs"] >= measure.MIN_RUNS
        assert 0 < row["max_error"] < 2e-2


def test_what_was_measured_is_the_code_as_it_is():
    measured = [(row["rung"], row["source_hash"]) for row in ROWS + PROFILES]
    measured += [(document["name"], document["source_hash"]) for document in CHECKS]
    stale = {name for name, hash in measured if hash != digest.of_file(source.path_of(name))}
    assert not stale, f"{stale} changed since they were measured: run scripts/measure.sh again"


def test_readme_shows_the_stored_numbers():
    assert readme.stale() == []


def test_readme_would_notice_another_number(monkeypatch, tmp_path):
    for path in measure.RESULTS.glob("*bench*.json"):
        document = json.loads(path.read_text())
        for row in document["rows"]:
            row["mean_us"] *= 1.5
        (tmp_path / path.name).write_text(json.dumps(document))
    changed = measure.recorded_rows(tmp_path)
    monkeypatch.setattr(measure, "recorded_rows", lambda: changed)
    assert "README.md" in readme.stale()
    assert "assets/figures/ladder.svg" in readme.stale()


def test_every_rung_on_the_gpu_was_right_on_all_18_cases_at_full_size():
    checked = {document["name"]: document for document in CHECKS}
    for name in TIMED:
        asked = [row["case"] for row in checked[name]["rows"] if row["probe"].startswith("case ")]
        assert asked == [case.as_dict() for case in CORRECTNESS_CASES]
        assert checked[name]["ok"] and all(row["ok"] for row in checked[name]["rows"])


def test_the_recorded_ladder_names_its_machine():
    text = ladder.recorded()
    assert text.startswith("NVIDIA H200, 2026-") and "einsum" in text


def test_every_recording_belongs_to_a_cell():
    cells = recording.cells_of()
    assert cells and recording.orphans(cells) == []
