"""Claims fail when they stop being true; the reader's predictions are never lost."""

import json

import pytest
import torch

from trimul import claims
from trimul.claims import ClaimFailed, claim, predict, reveal

ROW = {"gpu": "NVIDIA H200", "date": "2026-11-30T12:00:00Z", "run": "a"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMUL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_claim_that_holds_says_on_whose_data(capsys):
    claim("water is wet", True, data=[ROW, ROW])
    assert capsys.readouterr().out == (
        "claim holds: water is wet [stored data: NVIDIA H200, 2026-11-30]\n"
    )
    claim("computed", torch.tensor(3) > 2)
    assert "[computed here]" in capsys.readouterr().out


def test_a_claim_that_is_no_longer_true_fails():
    with pytest.raises(ClaimFailed, match="no longer true: slow is fast.*needs rewriting"):
        claim("slow is fast", 1 > 2, data=ROW)


@pytest.mark.parametrize("holds", [1, None, "yes", torch.tensor([True, True])])
def test_only_a_truth_value_is_a_claim(holds):
    with pytest.raises(TypeError, match="truth value"):
        claim("careless", holds)


def test_a_claim_never_mixes_runs_and_never_rests_on_nothing():
    with pytest.raises(ValueError, match="one run only"):
        claim("mixed", True, data=[ROW, {**ROW, "run": "b"}])
    with pytest.raises(ValueError, match="there is none"):
        claim("empty", True, data=[])


def test_no_prediction_writes_nothing(home, capsys):
    predict("a", None)
    assert "no prediction yet" in capsys.readouterr().out
    assert not home.exists()
    for value, shown in {3.0: "3", 0.123: "0.12", 274.88: "275", 35107.2: "35,107"}.items():
        reveal("a", value, "us")
        assert f"answer: {shown} us" in capsys.readouterr().out
    assert not home.exists()


def test_predictions_are_appended_and_compared(home, capsys):
    predict("a", 10, "us")
    predict("a", 20, "us")
    predict("a", 20, "us")
    reveal("a", 10.0, "us")
    reveal("a", 10.0, "us")
    assert "you said: 20 us, 2 times too high" in capsys.readouterr().out
    entries = [json.loads(line) for line in (home / "progress.jsonl").read_text().splitlines()]
    assert [e.get("value", e.get("actual")) for e in entries] == [10, 20, 10.0]


def test_a_line_cut_short_costs_only_itself(home):
    predict("a", 1)
    ledger = home / "progress.jsonl"
    ledger.write_text(ledger.read_text() + '{"predict": "a", "val')
    predict("a", 2)
    assert claims.last_prediction("a") == 2
    assert '"val\n' in ledger.read_text()  # kept as it was


@pytest.mark.parametrize("value", ["10 us", True, [1]])
def test_a_prediction_is_a_number(value):
    with pytest.raises(TypeError, match="is a number"):
        predict("a", value)


def test_a_home_that_cannot_be_written_stops_nobody(home, capsys):
    home.write_text("a file where the folder should be")
    predict("a", 3)
    said = capsys.readouterr().out
    assert "set TRIMUL_HOME" in said and "noted" not in said
    assert home.read_text() == "a file where the folder should be"
