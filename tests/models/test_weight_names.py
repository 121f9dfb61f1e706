"""Names of weights: lists and data frames of every estimator, edge lists of networks."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import bad_input
import numpy as np
import pytest

import fieldfit as ff
from fieldfit._registry import MODELS
from fieldfit.errors import InvalidInputError, MissingDependencyError

RNG = np.random.default_rng(0)
SAMPLES = RNG.integers(0, 2, (200, 3))
SAMPLES[:, 1] = np.where(RNG.random(200) < 0.8, SAMPLES[:, 0], SAMPLES[:, 1])


class Frame:
    """An array with named columns, as data frames have."""

    def __init__(self, values, columns):
        self.values, self.columns = values, columns

    def __array__(self, dtype=None, copy=None):
        return self.values


NAMED = Frame(SAMPLES, ["anxiety", "sleep", "focus"])


@pytest.fixture
def pandas(monkeypatch):
    """A module that makes dictionaries of what would be data frames."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))


# -- every estimator ----------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_weight_has_a_name_of_its_own(name, pandas):
    model = bad_input.fitted(name)
    n = len(model.weights_)
    named = model.top_weights(n + 5)
    assert len({what for _, what in named}) == len(named) == n
    assert [abs(weight) for weight, _ in named] == sorted(abs(model.weights_))[::-1]
    assert model.top_weights(2) == named[:2]
    frame = model.weights_frame()
    assert set(frame) - {"standard_error"} == {"block", "name", "weight"}
    np.testing.assert_array_equal(frame["weight"], model.weights_)
    assert dict(zip(frame["name"], frame["weight"].tolist(), strict=True)) == {
        what: weight for weight, what in named
    }
    for block, values in model.weight_blocks_.items():
        np.testing.assert_array_equal(frame["weight"][frame["block"] == block], values.reshape(-1))


def entries(model):
    return {what: weight for weight, what in model.top_weights(len(model.weights_))}


def test_names_of_a_network(pandas):
    model = ff.IsingModel().fit(NAMED)
    named = entries(model)
    assert named["threshold of focus"] == model.thresholds_[2]
    assert named["anxiety - sleep"] == model.couplings_[0, 1]
    np.testing.assert_array_equal(model.weights_frame()["standard_error"], model.standard_errors_)
    assert "standard_error" not in ff.IsingModel(l1=1.0).fit(NAMED).weights_frame()
    assert "variable 0 - variable 1" in entries(ff.IsingModel().fit(SAMPLES))


def test_names_of_full_tables():
    potts = ff.PottsModel(n_labels=3).fit(NAMED)
    named = entries(potts)
    assert named["sleep / label 2"] == potts.fields_[1, 2]
    assert named["anxiety - focus / labels 2, 1"] == potts.couplings_[1, 2, 1]
    field = bad_input.fitted("MixtureField")
    named = entries(field)
    assert named["variable (1, 0) / label 1"] == field.potentials_.unary(2)[1]
    i, j = (tuple(map(int, np.unravel_index(k, (2, 2)))) for k in field.graph_.scope(3))
    assert named[f"variable {i} - variable {j} / labels 1, 0"] == field.potentials_.factor(3)[1, 0]


def test_names_of_weights_for_every_sweep():
    X, Y = bad_input.data_of("GridCRF").values()
    objective = ff.ProceduralLoss(n_sweeps=2, per_sweep_weights=True)
    with pytest.warns(ff.ConvergenceWarning):
        model = ff.GridCRF(objective, l2=1.0, max_iter=1).fit(X, Y)
    named = entries(model)
    assert len(named) == len(model.weights_)
    block = model.weight_blocks_["horizontal, sweep 2"]
    assert named["horizontal label 1 - label 0, sweep 2"] == block[1, 0]


def test_given_scores_have_one_weight():
    Y = RNG.integers(0, 2, (4, 3, 3))
    X = np.log(np.stack([0.3 + 0.4 * (k == Y) for k in range(2)], axis=-1))
    model = ff.GridCRF("pseudolikelihood", l2=1.0).fit(X, Y)
    assert entries(model)["scale of the given scores"] == model.weight_blocks_["unary"].item()


def test_a_frame_needs_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'fieldfit\[frame\]'"):
        bad_input.fitted("IsingModel").weights_frame()


def test_a_frame_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = bad_input.fitted("GridCRF").weights_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["block", "name", "weight"]


# -- networks -----------------------------------------------------------------------------


def test_edges_of_a_network():
    model = ff.IsingModel().fit(NAMED)
    edges = model.edge_list()
    assert edges[0][:3] == ("anxiety", "sleep", model.couplings_[0, 1])
    assert edges[0].standard_error == model.coupling_errors_[0, 1]
    assert [abs(edge.weight) for edge in edges] == sorted(
        (abs(edge.weight) for edge in edges), reverse=True
    )
    assert len(edges) == 3
    assert model.edge_list(names=["a", "b", "c"])[0][:2] == ("a", "b")
    assert len(model.edge_list(minimum=1.0)) == 1
    sparse = ff.IsingModel(l1=10.0).fit(NAMED)
    edges = sparse.edge_list()
    assert len(edges) == np.count_nonzero(sparse.weight_blocks_["couplings"]) < 3
    assert edges[0].standard_error is None


def test_networkx_takes_the_edges():
    networkx = pytest.importorskip("networkx")
    model = ff.IsingModel().fit(NAMED)
    network = networkx.Graph()
    network.add_weighted_edges_from(edge[:3] for edge in model.edge_list())
    assert network["sleep"]["anxiety"]["weight"] == model.couplings_[0, 1]


def test_edges_of_a_potts_model_have_the_corrected_score():
    model = ff.PottsModel(l1=0.5).fit(NAMED)  # which has no standard errors
    scores = model.contact_scores()
    edges = model.edge_list()
    assert edges[0] == ("anxiety", "sleep", scores[0, 1], None)
    assert [edge.weight for edge in edges] == sorted(scores[np.triu_indices(3, 1)])[::-1]
    assert min(edge.weight for edge in edges) < 0
    assert [edge.weight for edge in model.edge_list(minimum=1e-3)] == [
        edge.weight for edge in edges if edge.weight >= 1e-3
    ]


# -- tables and refusals ------------------------------------------------------------------


def test_a_summary_without_standard_errors_says_why():
    text = ff.IsingModel(l1=1.0).fit(NAMED).summary()
    assert "no standard errors: standard errors need l1 = 0" in text
    assert "l2 0.01, l1 1" in text
    assert "interval" not in text
    assert text.count(" - ") == 3
    assert "anxiety - sleep" in ff.PottsModel(l1=1.0).fit(NAMED).summary()


@pytest.mark.parametrize(
    ("model", "column", "value", "message"),
    [
        (ff.IsingModel(), "sleep", 1, r"\(drop .*\), got no 0 in column 'sleep'"),
        (ff.IsingModel(), "focus", np.nan, "got none in column 'focus'"),
        (ff.IsingModel(), "focus", 7, "got 7.0 in row 0, column 'focus'"),
        (ff.PottsModel(l2=0.0), "sleep", 1, r"\(drop .*\), got only 1 in column 'sleep'"),
    ],
)
def test_a_bad_column_is_named(model, column, value, message):
    values = SAMPLES.astype(float)
    values[:, NAMED.columns.index(column)] = value
    with pytest.raises(InvalidInputError, match=message) as caught:
        model.fit(Frame(values, NAMED.columns))
    assert caught.value.place.name == column
    fitted = ff.IsingModel().fit(NAMED)
    values[0] = 7
    with pytest.raises(InvalidInputError, match="column 'anxiety'"):
        fitted.score(Frame(values, NAMED.columns))
