"""Missing values of samples filled in: `predict` and `predict_marginals` against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ising_problems import SPARSE, random_samples

from fieldfit.errors import ConvergenceWarning, InvalidInputError
from fieldfit.inference.auto import infer
from fieldfit.models.pairwise import missing_values
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.potts_model import PottsModel

NAN = np.nan


def enumerated(model, row, values):
    """Probabilities of the values of each entry of a row, by all configurations."""
    _, potentials = model.to_model()
    known = {i: values.index(value) for i, value in enumerate(row) if not np.isnan(value)}
    found = np.zeros((len(row), len(values)))
    for labels in itertools.product(range(len(values)), repeat=len(row)):
        if all(labels[i] == label for i, label in known.items()):
            weight = np.exp(potentials.score(np.array(labels)))
            found[np.arange(len(row)), labels] += weight
    return found / found.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("edges", [None, SPARSE], ids=["all pairs", "given edges"])
@pytest.mark.parametrize("limit", [2**14, 1], ids=["one table", "inference"])
@pytest.mark.parametrize("kind", ["binary", "spin", "potts"])
def test_against_enumeration(kind, limit, edges, monkeypatch):
    monkeypatch.setattr(missing_values, "MAX_CONFIGURATIONS", limit)
    values = {"binary": [0, 1], "spin": [-1, 1], "potts": [0, 1, 2]}[kind]
    model = PottsModel() if kind == "potts" else IsingModel(encoding=kind)
    model.fit(random_samples(60, seed=3, values=values), edges)
    rows = random_samples(12, missing=0.5, seed=4, values=values)
    rows[2] = NAN  # nothing is known
    rows[3:5] = rows[5]  # equal rows
    marginals = model.predict_marginals(rows)
    filled = model.predict(rows)
    assert filled.dtype == np.int64
    for row, found, answer in zip(rows, marginals, filled, strict=True):
        expected = enumerated(model, row, values)
        np.testing.assert_allclose(found, expected, atol=1e-8)
        known = ~np.isnan(row)
        np.testing.assert_array_equal(answer[known], row[known])
        np.testing.assert_array_equal(answer, np.array(values)[found.argmax(axis=1)])
        assert np.isin(found[known], (0.0, 1.0)).all()


def test_a_surrogate_predicts_with_itself():
    model = IsingModel("trw", l2=0.1).fit(random_samples(60, seed=3))
    row = np.array([[1, NAN, NAN, 0, NAN]])
    result = infer(*model.to_model(), "trw", observed={0: 1, 3: 0})
    expected = np.stack([result.beliefs.unary(i) for i in range(5)])
    np.testing.assert_allclose(model.predict_marginals(row)[0], expected, atol=1e-6)


def test_rows_are_cut_into_pieces(monkeypatch):
    model = IsingModel().fit(random_samples(60, seed=3))
    rows = random_samples(40, seed=5)
    rows[:, 2:4] = NAN
    expected = model.predict_marginals(rows)
    monkeypatch.setattr(missing_values, "MAX_ENTRIES", 12)
    np.testing.assert_allclose(model.predict_marginals(rows), expected, atol=1e-12)


def test_what_did_not_converge_is_said(monkeypatch):
    model = IsingModel().fit(random_samples(60, seed=3))

    def failing(*arguments):
        return np.full((5, 2), 0.5), False

    monkeypatch.setattr(missing_values, "MAX_CONFIGURATIONS", 1)
    monkeypatch.setattr(missing_values, "_inferred", failing)
    for method in (model.predict, model.predict_marginals):
        with pytest.warns(ConvergenceWarning, match="1 of 2 examples did not converge") as caught:
            method([[0, 1, 0, 1, 1], [0, NAN, 0, 1, 1]])
        assert caught[0].filename == __file__


def test_other_columns_are_refused():
    model = IsingModel().fit(random_samples(60, seed=3))
    with pytest.raises(InvalidInputError, match="must have 5 columns, got 2"):
        model.predict([[0, 1]])


def test_missing_values_of_pandas():
    """Whole numbers with gaps, as ``convert_dtypes`` makes them."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, (60, 3)).astype(float)
    values[0, 0] = values[5, 2] = np.nan
    frame = pandas.DataFrame(values, columns=list("abc")).convert_dtypes()
    assert str(frame.dtypes["a"]) == "Int64"
    named, plain = IsingModel().fit(frame), IsingModel().fit(values)
    np.testing.assert_array_equal(named.weights_, plain.weights_)
    assert list(named.feature_names_in_) == list("abc")
    np.testing.assert_array_equal(named.predict(frame), plain.predict(values))
