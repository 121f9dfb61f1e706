"""`camel-segmentation` at a small size, on pictures made here."""

import csv
import dataclasses

import numpy as np
import pytest

from experiments.__main__ import main
from experiments.base import Settings
from experiments.driver import run_plan
from experiments.ganapathi2008.methods import METHODS
from experiments.ganapathi2008.segmentation import run as camel_segmentation
from experiments.ganapathi2008.segmentation.classifier import (
    Boosting,
    Trial,
    classified,
)
from experiments.ganapathi2008.segmentation.data import (
    LABELS,
    halves,
    pixel_accuracy,
    prepared,
    read_corel,
)
from experiments.ganapathi2008.segmentation.figures import COLOURS, shown_indices
from experiments.ganapathi2008.segmentation.report import CLASSIFIER
from experiments.ganapathi2008.segmentation.run import Design, Superpixels
from fieldfit.errors import ConvergenceWarning, InvalidInputError

pytest.importorskip("skimage")
pytest.importorskip("matplotlib")

#: Six folds of six pictures: with fewer, what a fold is trained on is too little to boost, its
#: guesses are worse than chance, and the field learns to turn them round.
SMALL = Design(
    n_regions=20,
    n_halves=2,
    n_folds=6,
    boosting=Boosting(n_members=1, n_rounds=5),
    penalties=(0.1, 1.0),
    max_iter=15,
    methods=("piecewise", "camel0"),
)


def landscape(rng, height=24, width=36):
    """Sky over ground over water, the borders at random heights."""
    first, second = np.sort(rng.choice(np.arange(5, height - 4), 2, replace=False))
    truth = np.full((height, width), 2)
    truth[:second] = 5
    truth[:first] = 6
    colours = np.array(
        [[0] * 3, [0] * 3, [30, 60, 160], [0] * 3, [0] * 3, [150, 90, 40], [190, 220, 250]]
    )
    image = colours[truth] + rng.normal(scale=30.0, size=(height, width, 3))
    return np.clip(image, 0, 255).astype(np.uint8), truth.astype(np.uint8)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of data sets with twelve landscapes for photographs."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "corel").mkdir()
    rng = np.random.default_rng(0)
    images, labels = zip(*(landscape(rng) for _ in range(12)), strict=True)
    np.savez(folder / "corel" / "corel.npz", images=np.stack(images), labels=np.stack(labels))
    return folder


@pytest.fixture(scope="module")
def outcome(data):
    return run_plan(Superpixels(SMALL, Settings(data=data)))


def test_the_command_leaves_tables_and_pictures(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        Superpixels, "quick", dataclasses.replace(SMALL, n_halves=1, methods=("piecewise",))
    )
    out = tmp_path / "out"
    arguments = ["--data", str(data), "--out", str(out), "--quick"]
    assert main(["camel-segmentation", *arguments]) == 0
    assert "piecewise" in capsys.readouterr().out
    names = {"results.csv", "classifier.csv", "out_of_fold.csv", "report.md"}
    names |= {"accuracy.png", "pictures.png", "rows.jsonl", "arrays"}
    assert {path.name for path in out.iterdir()} == names
    with open(out / "results.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    fixed = "method", "fold", "seconds", "converged", "outer_loops", "inner_iterations", "accuracy"
    assert set(fixed) < set(row)
    assert "table 3" in (out / "report.md").read_text()


def test_rows_and_report(outcome):
    assert [(row["fold"], row["method"]) for row in outcome.rows] == [
        (half, method) for half in (0, 1) for method in ("piecewise", "camel0")
    ]
    unseen = outcome.tables["out_of_fold"]
    assert [(row["fold"], row["method"]) for row in unseen] == [(0, "piecewise"), (0, "camel0")]
    assert {row["l2"] for row in unseen} == {1.0}
    assert {row["l2"] for row in outcome.rows} <= {0.1, 1.0}
    for row in (*outcome.rows, *unseen, *outcome.tables["classifier"]):
        assert 0.85 < row["accuracy"] <= 1.0
        assert 0.85 < row["pixel_accuracy"] <= 1.0
    assert [row["method"] for row in outcome.tables["classifier"]] == [CLASSIFIER] * 2
    assert CLASSIFIER not in {row["method"] for row in outcome.rows}
    assert set(outcome.headline) == {"piecewise", "camel0", CLASSIFIER}
    assert "84.4" not in outcome.report  # methods that were not run have no row
    assert "78.6 (1.3)" in outcome.report
    assert "not run" in outcome.report
    assert "8 x 7 = 56" in outcome.report


def test_a_run_can_be_repeated(data, outcome):
    again = run_plan(Superpixels(SMALL, Settings(data=data)))
    assert [row["accuracy"] for row in again.rows] == [row["accuracy"] for row in outcome.rows]


def test_weights_are_those_of_the_paper(data):
    """Seven features and a constant for each label, and a symmetric table: 56 + 28."""
    images, truths = read_corel(data)
    picture = prepared(images[0], truths[0], 20)
    plan = Superpixels(SMALL, Settings())
    values = np.random.default_rng(1).normal(size=(picture.n_regions, len(LABELS)))
    with pytest.warns(ConvergenceWarning):  # noise for features
        crf = plan._make(SMALL, 0.0, "piecewise").fit([(values, picture.edges)], [picture.labels])
    assert {name: block.size for name, block in crf.weight_blocks_.items()} == {
        "unary": 49,
        "intercept": 7,
        "edges": 28,
    }


def test_halves_are_random_and_apart():
    seen = set()
    for half in range(3):
        training, test = halves(100, None, half, 0)
        assert len(training) == len(test) == 50
        assert not set(training) & set(test)
        seen.add(tuple(training))
    assert len(seen) == 3
    few = halves(100, 10, 0, 0)
    assert [len(part) for part in few] == [5, 5]


def test_training_pictures_are_classified_by_others(data):
    """Labels that are pure noise cannot be predicted out of fold, but in sample they can."""
    rng = np.random.default_rng(2)
    images, truths = read_corel(data)
    pictures = [
        dataclasses.replace(
            picture,
            features=picture.features[:, :20],
            labels=rng.integers(0, 2, picture.n_regions).astype(np.int32),
        )
        for picture in (prepared(*pair, 20) for pair in zip(images, truths, strict=True))
    ]
    boosting = Boosting(
        n_members=1, n_rounds=30, learning_rate=0.5, n_leaves=12, share_of_features=1.0, l2=0.0
    )
    found = classified(pictures, pictures[:2], boosting, n_folds=3, seed=0)

    def right(potentials, chosen):
        truth = np.concatenate([pictures[index].labels for index in chosen])
        values = np.concatenate([potentials[index] for index in chosen])
        return np.mean(values.argmax(axis=1) == truth)

    everything = range(len(pictures))
    assert right(found.unseen, everything) < 0.65 < 0.8 < right(found.in_sample, everything)
    trial = found.trial
    assert sorted(trial.seen + trial.held_out) == list(everything)
    assert (
        right(trial.potentials, trial.held_out) < 0.65 < 0.8 < right(trial.potentials, trial.seen)
    )
    np.testing.assert_array_equal(found.test[1], found.in_sample[1])


def test_the_penalty_is_the_best_on_held_out_pictures(monkeypatch):
    """Whatever comes out for a penalty, the best of them is taken."""
    images, truths = zip(
        *(landscape(np.random.default_rng(seed)) for seed in range(4)), strict=True
    )
    pictures = [prepared(*pair, 20) for pair in zip(images, truths, strict=True)]
    potentials = [np.zeros((picture.n_regions, len(LABELS))) for picture in pictures]
    asked = []

    def fit(self, design, case, method, l2):
        asked.append((len(case.training), len(case.test), method, l2))
        labels = [picture.labels if l2 == 3.0 else picture.labels * 0 for picture in case.test]
        return camel_segmentation.Fitted({}, [], labels)

    trial = Trial(seen=[0, 2, 3], held_out=[1], potentials=potentials)
    monkeypatch.setattr(Superpixels, "_fit", fit)
    plan = Superpixels(Design(penalties=(1.0, 3.0, 9.0)), Settings())
    chosen = plan._best_penalty("camel0", pictures, trial)
    assert chosen == 3.0
    assert asked == [(3, 1, "camel0", l2) for l2 in (1.0, 3.0, 9.0)]


def test_pixel_accuracy_of_the_best_labels(data):
    images, truths = read_corel(data)
    picture = prepared(images[0], truths[0], 20)
    right = np.mean(picture.labels[picture.segments] == picture.truth)
    assert pixel_accuracy([picture], [picture.labels]) == right
    assert pixel_accuracy([picture], [np.zeros_like(picture.labels)]) == 0.0


def test_shown_pictures_are_spread_over_ranks():
    accuracies = np.random.default_rng(3).permutation(50) / 50
    assert [accuracies[index] for index in shown_indices(accuracies)] == [0.1, 0.3, 0.5, 0.7, 0.9]
    assert len(shown_indices([0.5, 0.4])) == 2
    assert len(COLOURS) == len(LABELS)


def test_the_full_design_is_the_papers():
    assert camel_segmentation.FULL.methods == METHODS
    assert camel_segmentation.FULL.n_halves == 3
    assert camel_segmentation.FULL.n_images is None


def test_missing_data_is_one_sentence(tmp_path, capsys):
    with pytest.raises(InvalidInputError, match=r"with the file corel/corel.npz"):
        read_corel(tmp_path)
    out = str(tmp_path / "out")
    arguments = ["--data", str(tmp_path), "--out", out, "--quick"]
    assert main(["camel-segmentation", *arguments]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert "corel/corel.npz" in line
    with pytest.raises(InvalidInputError, match="--data must name"):
        run_plan(Superpixels(SMALL, Settings()))
