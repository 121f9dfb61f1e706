"""`camel-seminars`: features of announcements, scores, folds, and the command at a small size."""

from __future__ import annotations

import csv
import gzip
import json
import re

import numpy as np
import pytest
from sklearn.metrics import f1_score

from experiments.__main__ import main
from experiments.ganapathi2008.methods import METHODS
from experiments.ganapathi2008.seminars import run as camel_seminars
from experiments.ganapathi2008.seminars.run import FULL, QUICK, Design, Fields
from experiments.ganapathi2008.seminars.scores import field_scores
from experiments.seminar_features import clock_minutes, mail_features, word_kind
from experiments.seminar_lines import mail_lines
from experiments.seminar_mails import mail_folds
from experiments.seminars_reader import FIELDS, parse_mail

MAIL = parse_mail(
    "<0.1@cs.cmu.edu.0>\n"
    "Type:     cmu.cs.robotics\n"
    "Who:      Ann B. Lee\n"
    "          Carnegie Mellon\n"
    "Time:     3:30 PM - 5:00 PM\n"
    "Place:    Wean Hall 5409\n"
    "Abstract:\n"
    "\n"
    "\tDr. B. Lee will speak\n"
    "about robots at 3:30 in Wean Hall, not at 2 or until 5.\n"
)


def tokens_of(mail, word):
    features = mail_features(mail)
    return [features[place] for place, token in enumerate(mail.tokens) if token == word]


# -- features -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("12:00", "clock"),
        ("9.00", "clock"),
        ("PM", "half-day"),
        ("a.m.", "half-day"),
        ("noon", "half-day"),
        ("7", "hour"),
        ("12", "hour"),
        ("13", "number"),
        ("1994", "year"),
        ("5409", "room"),
        ("223D", "room"),
        ("Prof.", "title"),
        ("PROFESSOR", "title"),
        ("W.", "initial"),
        ("Tuesday", "day"),
        ("Thurs", "day"),
        ("Sept", "month"),
        ("I", "Capitalised"),
        ("Hall", "Capitalised"),
        ("SEI", "CAPITALS"),
        ("WeH", "MiXed"),
        ("talk", "lower"),
        ("---", "-"),
        ("3rd", "3"),
    ],
)
def test_kinds_of_words(word, kind):
    assert word_kind(word) == kind


def test_minutes_forget_the_half_of_the_day():
    assert clock_minutes("12:15", "clock") == clock_minutes("0:15", "clock") == 15
    assert clock_minutes("15:30", "clock") == clock_minutes("3.30", "clock") == 210
    assert clock_minutes("noon", "half-day") == 0
    assert clock_minutes("pm", "half-day") is None
    assert clock_minutes("5409", "room") is None


def test_lines_know_headers_and_what_is_around_them():
    lines = mail_lines(MAIL)
    assert [line.header for line in lines] == [
        "", "type", "who", "", "time", "place", "abstract", "", "",
    ]  # fmt: skip
    assert [line.section for line in lines][2:4] == ["who", "who"]
    assert lines[7].section == "abstract ..."  # an empty line came since
    assert [line.is_head for line in lines] == [True] * 7 + [False] * 2
    assert lines[7].indent == "0 tab"
    assert lines[3].indent == "1"
    assert lines[7].gap_above
    assert not lines[7].gap_below
    assert lines[8].above == ("dr", "speak")
    # every token belongs to one line
    assert [line.begin for line in lines[1:]] == [line.end for line in lines[:-1]]
    assert lines[-1].end == len(MAIL.tokens)


def test_times_are_compared_with_the_header():
    clock = tokens_of(MAIL, "3:30")
    assert [token["start time"] for token in clock] == ["head", "body"]
    assert [token["not end time"] for token in clock] == ["head", "body"]
    (until_five,) = tokens_of(MAIL, "5")
    assert until_five["end time"] == "body"
    assert until_five["until before 1"]
    (two,) = tokens_of(MAIL, "2")
    assert "start time" not in two
    assert two["not start time"] == "body"
    pm = tokens_of(MAIL, "PM")
    assert "start time" in pm[0]
    assert "end time" in pm[1]
    (alone,) = tokens_of(parse_mail("come at 4:00"), "4:00")
    assert alone["no header time"]


def test_words_of_the_header_are_found_again():
    lee = tokens_of(MAIL, "Lee")
    assert [token["in who"] for token in lee] == [True, True]
    assert lee[1]["in who|kind"] == "body|Capitalised"
    assert tokens_of(MAIL, "Mellon")[0]["in who"]  # the second line of the header
    assert "in who" not in tokens_of(MAIL, "Hall")[1]
    assert tokens_of(MAIL, "Hall")[1]["in place"]


def test_runs_of_capitalised_words():
    lee = tokens_of(MAIL, "Lee")[1]
    assert lee["run pattern"] == "title initial Capitalised"
    assert (lee["run before"], lee["run behind"]) == ("gap", "will")
    assert lee["run place"] == "2/3"
    assert lee["run first"] == "dr."
    assert lee["behind run:speak"]
    assert not lee["run names place"]
    hall = tokens_of(MAIL, "Hall")[1]
    assert hall["run names place"]
    assert (hall["run before"], hall["run behind"]) == ("in", ",")


def test_words_with_a_title_are_marked_wherever_they_are():
    assert [token["titled"] for token in tokens_of(MAIL, "Lee")] == [True, True]
    assert not tokens_of(MAIL, "Wean")[0]["titled"]
    assert tokens_of(MAIL, "Wean")[0]["occurrences"] == "2"


def test_tags_are_no_features():
    """What is to be predicted, and structure that a new mail lacks, must not show."""
    tagged = "<sentence>Talk by <speaker>Ann Lee</speaker></sentence> at <stime>4 pm</stime>"
    plain = re.sub("<[^>]*>", "", tagged)
    assert mail_features(parse_mail(tagged)) == mail_features(parse_mail(plain))


def test_a_mail_without_tokens():
    assert mail_features(parse_mail("")) == []


# -- scores ---------------------------------------------------------------------------------------


def test_scores_by_hand():
    true = [["B-stime", "I-stime", "O", "B-speaker", "B-speaker", "O"]]
    guess = [["B-stime", "I-stime", "O", "B-speaker", "I-speaker", "B-etime"]]
    scores = field_scores(true, guess)
    # entities: 3 true, 3 predicted, one of them right; tokens: 4 true, 5 predicted, 4 right
    assert scores["entity_micro_f1"] == pytest.approx(2 / 6, abs=1e-12)
    assert scores["entity_f1_stime"] == 1.0
    assert scores["entity_f1_speaker"] == 0.0
    assert scores["token_micro_f1"] == pytest.approx(8 / 9, abs=1e-12)
    assert scores["token_f1_speaker"] == 1.0
    assert scores["token_f1_etime"] == scores["token_f1_location"] == 0.0
    assert scores["token_macro_f1"] == pytest.approx(0.5, abs=1e-12)


def test_token_scores_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    names = ["O", *(f"{mark}-{name}" for name in FIELDS for mark in "BI")]
    true, guess = (generator.choice(names, size=(5, 40)).tolist() for _ in range(2))
    scores = field_scores(true, guess)
    flat = [
        [label.partition("-")[2] for labels in given for label in labels] for given in (true, guess)
    ]
    for average in ("micro", "macro"):
        expected = f1_score(*flat, labels=FIELDS, average=average)
        assert scores[f"token_{average}_f1"] == pytest.approx(expected, abs=1e-12)


# -- folds and the whole experiment ---------------------------------------------------------------


def test_folds_are_a_partition_and_depend_on_the_seed():
    folds = mail_folds(485, FULL, seed=0)
    assert [len(fold) for fold in folds] == [122, 121, 121, 121]
    assert sorted(np.concatenate(folds).tolist()) == list(range(485))
    again = mail_folds(485, FULL, seed=0)
    assert all(np.array_equal(one, two) for one, two in zip(folds, again, strict=True))
    assert not np.array_equal(folds[0], mail_folds(485, FULL, seed=1)[0])
    quick = np.concatenate(mail_folds(485, QUICK, seed=0))
    assert len(set(quick.tolist())) == QUICK.n_mails


@pytest.fixture
def small_run(monkeypatch, tmp_path):
    """A folder with a few made-up mails, and the experiment on two folds of them."""
    generator = np.random.default_rng(3)
    lines = []
    for number in range(12):
        first, last = (
            generator.choice(["Ann", "Bob", "Eve", "Kim"]),
            generator.choice(["Lee", "Roe"]),
        )
        hour, room = generator.integers(1, 6), generator.integers(1000, 9000)
        text = (
            f"<{number}@cs.cmu.edu>\n"
            f"Time: <stime>{hour}:30</stime> - <etime>{hour + 1}:30</etime>\n"
            f"Abstract:\n<speaker>Dr. {first} {last}</speaker> will talk\n"
            f"in <location>Wean Hall {room}</location>. <speaker>{last}</speaker> is known."
        )
        lines.append(json.dumps({"id": number, "part": "train", "text": text}))
    folder = tmp_path / "data" / "seminars"
    folder.mkdir(parents=True)
    (folder / "seminars.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setattr(Fields, "full", Design(n_folds=2, n_runs=2, min_count=1))
    return tmp_path


def test_the_command(small_run, capsys):
    data, out = str(small_run / "data"), small_run / "out"
    assert main(["camel-seminars", "--data", data, "--out", str(out), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    with open(out / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["fold"]) for row in rows] == [
        (method, fold) for fold in "01" for method in METHODS
    ]
    fixed = {
        "method", "fold", "seconds", "converged", "outer_loops", "inner_iterations",
        "micro_f1", "macro_f1",
    }  # fmt: skip
    assert fixed <= set(rows[0])
    for row in rows:
        # six mails say all that there is to say about six others like them
        assert 0.8 <= float(row["micro_f1"]) <= 1.0
        assert row["micro_f1"] == row[f"{camel_seminars.LEVEL}_micro_f1"]
        assert row["converged"] == "True", row
    assert summary["headline"]["lbp micro_f1"] == pytest.approx(
        np.mean([float(row["micro_f1"]) for row in rows if row["method"] == "lbp"]), abs=1e-6
    )
    with open(out / "chain.csv", newline="") as file:
        assert [row["fold"] for row in csv.DictReader(file)] == ["0", "1"]
    report = (out / "report.md").read_text()
    assert report.count("| exact chain |") == 2
    assert "12 seminar announcements" in report
    assert "stime 12, etime 12, location 12, speaker 24" in report
    assert "| LBP | 100 (0) | 0 |" in report
    assert "89.6 (1.0)" in report
    assert (out / "micro-f1.png").exists()


def test_data_that_are_not_there(small_run, capsys, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    for given, message in (([], "--data must name"), (["--data", str(empty)], "seminars.jsonl.gz")):
        out = ["--out", str(tmp_path / "out")]
        assert main(["camel-seminars", *given, *out]) == 2
        assert message in capsys.readouterr().err
