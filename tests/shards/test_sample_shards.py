"""Shards of samples: rows of a table for Ising and Potts models."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fieldfit as ff
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.learners.problem import SumProblem
from fieldfit.models.dispatch import make_problem
from fieldfit.models.pairwise import pairwise_mrf
from fieldfit.models.pairwise.sample_data import Samples

#: Entries of a shard: ten rows of five columns.
SIZE = 50
EDGES = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]

pytestmark = pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """Data in memory are cut as finely as the files."""
    monkeypatch.setattr(pairwise_mrf, "SHARD_SIZE", SIZE)


def table(n_labels=3, n_rows=47, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, n_labels, (n_rows, 5))
    rows[:, 1] = np.where(rng.random(n_rows) < 0.6, rows[:, 0], rows[:, 1])
    rows[rng.random(rows.shape) < missing] = -1
    return rows


class Frame:
    """What a data frame has of names and numbers."""

    columns = tuple("abcde")

    def __init__(self, rows):
        self.rows = rows

    def __array__(self, dtype=None, copy=None):
        return self.rows


def potts(objective="pseudolikelihood", **options):
    return ff.PottsModel(objective, **{"max_iter": 8, **options})


def ising(objective="pseudolikelihood", **options):
    return ff.IsingModel(objective, **{"max_iter": 8, **options})


def write(folder, estimator, rows, weights=None):
    """In pieces whose ends are not those of shards."""
    pieces = np.array_split(np.arange(len(rows)), 7)
    given = [rows[piece] if weights is None else (rows[piece], weights[piece]) for piece in pieces]
    return ff.shards.write(folder, estimator, iter(given), shard_size=SIZE)


def same_fit(first, second):
    np.testing.assert_array_equal(first.weights_, second.weights_)
    seen = [[row["objective"] for row in one.trace_] for one in (first, second)]
    assert seen[0] == seen[1]
    return True


CASES = {
    "potts": (potts, {}, None),
    "threads": (potts, {"n_jobs": 2}, EDGES),
    "OWL-QN": (potts, {"l1": 0.5}, EDGES),
    "Adam": (potts, {"learner": "adam"}, EDGES),
    "ising": (ising, {}, None),
    "blocks": (ising, {"objective": ff.PseudoLikelihood(blocks=[[0, 1], [2, 3], [4]])}, EDGES),
    "piecewise": (potts, {"objective": "piecewise"}, EDGES),
    "copies with messages": (ising, {"objective": "cf-bethe"}, EDGES),
    "likelihood": (ising, {"objective": "likelihood"}, None),
    "tree-reweighted": (potts, {"objective": "trw"}, EDGES),
    "CAMEL": (ising, {"objective": "camel", "max_iter": 3}, EDGES),
    "MLE-Struct": (ising, {"objective": "mle-struct", "l2": 1.0}, EDGES),
    "closed form": (potts, {"objective": ff.MomentMatching(smoothing=1.0)}, EDGES),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_samples_on_disk_give_the_bits_of_memory(tmp_path, name, is_weighted):
    make, options, edges = CASES[name]
    rows = table(2 if make is ising else 3)
    weights = np.random.default_rng(1).random(len(rows)) if is_weighted else None
    shards = write(tmp_path / "shards", make(**options), rows, weights)
    assert [entry.n_examples for entry in shards.manifest.shards] == [10, 10, 10, 10, 7]
    in_memory = make(**options).fit(rows, edges, weights)
    assert same_fit(in_memory, make(**options).fit(shards, edges))
    nothing_kept = ff.shards.Shards(tmp_path / "shards", memory=0)
    assert same_fit(in_memory, make(**options).fit(nothing_kept, edges))
    with ThreadPoolExecutor(2) as client:
        assert same_fit(in_memory, make(**options).fit(shards, edges, client=client))
    checkpoint = tmp_path / "checkpoint"
    resumed = make(**options).fit(shards, edges, checkpoint=checkpoint)
    assert same_fit(resumed, make(**options).fit(shards, edges, checkpoint=checkpoint))


@pytest.mark.parametrize("make", [potts, ising])
def test_missing_entries_of_a_sum_over_rows(tmp_path, make):
    rows = table(2 if make is ising else 3, missing=0.2)
    rows[3] = -1  # says nothing about the model
    shards = write(tmp_path / "shards", make(), rows)
    assert same_fit(make().fit(rows), make().fit(shards))
    with pytest.raises(InvalidInputError, match="for shards with missing entries, got 'trw'"):
        make("trw").fit(shards)


def test_the_cut_in_memory_is_a_sum_of_shards(monkeypatch):
    rows, model = table(), potts().fit(table())
    assert len(model._data.shards) == 5
    assert isinstance(make_problem("samples", model._objective(), model._data), SumProblem)
    monkeypatch.setattr(pairwise_mrf, "SHARD_SIZE", 10**6)
    whole = potts().fit(rows)
    np.testing.assert_allclose(model.weights_, whole.weights_, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(model._data.samples.inverse, whole._data.samples.inverse)


def test_merged_shards_are_the_samples():
    rows = table(n_labels=2, missing=0.6).astype(np.int16)
    weights = np.random.default_rng(0).integers(1, 4, len(rows)).astype(float)
    parts = [slice(0, 20), slice(20, 21), slice(21, None)]
    merged = Samples.merged([Samples.of(rows[part], weights[part]) for part in parts])
    whole = Samples.of(rows, weights)
    for name in ("labels", "weights", "squared_weights", "n_complete", "inverse"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))


def test_names_hidden_columns_and_scores(tmp_path):
    frame = Frame(table(2))
    shards = ff.shards.write(tmp_path / "a", ising(), frame, shard_size=SIZE)
    model = ising().fit(shards)
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.score(shards) == pytest.approx(model.score(frame), rel=1e-12)
    with pytest.raises(InvalidInputError, match="standard errors need the samples in memory"):
        _ = model.standard_errors_
    rows = table(2)
    rows[:, 2] = -1
    hidden = ff.shards.write(tmp_path / "b", ising(), (row for row in rows), shard_size=SIZE)
    assert same_fit(ising().fit(rows, EDGES), ising().fit(hidden, EDGES))
    with pytest.raises(InvalidInputError, match="must have a label in every column unless edges"):
        ising().fit(hidden)
    more = ff.shards.write(tmp_path / "c", model, table(2, n_rows=3, seed=5))
    assert model.score(more) == pytest.approx(model.score(table(2, n_rows=3, seed=5)))


def test_workers_have_nothing_to_do_for_counts(tmp_path):
    shards = write(tmp_path / "shards", potts(), table())
    with ThreadPoolExecutor(1) as client:
        model = potts("trw").fit(shards, EDGES, client=client)
    assert "workers had nothing to do" in model.status_
    with pytest.raises(InvalidInputError, match="client must have a method submit"):
        potts("trw").fit(shards, EDGES, client=3)


def test_what_does_not_belong_together_is_refused(tmp_path):
    shards = write(tmp_path / "shards", potts(), table())
    with pytest.raises(InvalidInputError, match="shards must be those of a IsingModel"):
        ising().fit(shards)
    with pytest.raises(InvalidInputError, match="sample_weight must be None, because shards"):
        potts().fit(shards, sample_weight="identity")
    with pytest.raises(InvalidInputError, match=r"shards must have labels 0\.\.1, got 2"):
        potts(n_labels=2).fit(shards)
    assert potts(n_labels=4).fit(shards).fields_.shape == (5, 4)
    with pytest.raises(InvalidInputError, match="client must be None without shards"):
        potts().fit(table(), client=ThreadPoolExecutor(1))
    with pytest.raises(InvalidInputError, match="got contrastive divergence"):
        potts("cd").fit(shards)
    with pytest.raises(InvalidInputError, match="got 'mean-field', which starts from the samples"):
        potts("mean-field").fit(shards)
    spins = write(tmp_path / "spins", ising(encoding="spin"), 2 * table(2) - 1)
    with pytest.raises(InvalidInputError, match="written with encoding='binary' as here"):
        ising().fit(spins)
    wide = potts().fit(table()[:, :4])
    with pytest.raises(InvalidInputError, match="got 5 variables with 3 labels"):
        wide.score(shards)
    path = tmp_path / "shards" / shards.manifest.shards[1].file
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FileFormatError, match="does not match its checksum"):
        potts().fit(ff.shards.Shards(tmp_path / "shards"))


@pytest.mark.parametrize(
    ("examples", "sentence"),
    [
        ([], "examples must hold at least one example, got none"),
        (7, "examples must be rows or tables, got 7"),
        ([[0, 1], [1, 7]], r"samples must be 0 or 1, .* got 7 in row 1, column 1"),
        ([[0, 1], [1, 0, 1]], r"samples must have 2 columns, got 3 in row 1"),
        ([np.zeros((2, 2, 2))], r"samples must have two axes"),
        ([([0, 1], -1.0)], r"examples\[0\] must have 1 finite weights of at least 0, got -1.0"),
        ([([0, 1], [1.0, 2.0])], r"examples\[0\] must have 1 finite weights"),
        ([[[0], [1, 0]]], "rows of different lengths"),
    ],
)  # fmt: skip
def test_bad_samples_are_refused_in_a_sentence(tmp_path, examples, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        ff.shards.write(tmp_path / "shards", ising(), examples)
    assert not (tmp_path / "shards" / "manifest.json").exists()


def test_nothing_to_learn_from_is_refused(tmp_path):
    shards = ff.shards.write(tmp_path / "a", ising(), np.zeros((3, 2)))
    with pytest.raises(InvalidInputError, match="drop a column that is constant"):
        ising().fit(shards)
    shards = ff.shards.write(tmp_path / "b", potts(), [(table(), np.zeros(47))])
    with pytest.raises(InvalidInputError, match="a sample with a label and a positive weight"):
        potts().fit(shards)
    shards = ff.shards.write(tmp_path / "c", potts(), np.full((3, 2), -1))
    with pytest.raises(InvalidInputError, match="a sample with a label and a positive weight"):
        potts().fit(shards, [[0, 1]])
    rows = np.full((30, 25), -1)
    rows[:, 0] = np.arange(30) % 2
    rows[::2, 1:] = 0
    rows[4, 1:] = 1
    shards = ff.shards.write(tmp_path / "d", ising(), rows)
    with pytest.raises(
        ff.errors.TooLargeError, match="must have at most 15 missing labels in a row"
    ):
        ising().fit(shards)
