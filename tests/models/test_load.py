"""Model files of all estimators: read back as they were, or refused in one sentence."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fieldfit import models
from fieldfit._registry import MODELS, PUBLIC
from fieldfit.entropy.counting_numbers import TreeReweighted
from fieldfit.errors import FileFormatError
from fieldfit.inference.messages.sum_product import SumProduct
from fieldfit.io.model_file import read_model, write_model
from fieldfit.models.base import FieldEstimator
from fieldfit.models.chain.chain_crf import ChainCRF
from fieldfit.models.chain.skip_chain_crf import SkipChainCRF
from fieldfit.models.graphs.graph_crf import GraphCRF
from fieldfit.models.grid_crf import GridCRF
from fieldfit.models.loading import load
from fieldfit.models.matching_crf import MatchingCRF
from fieldfit.models.mixture_field import MixtureField
from fieldfit.models.pairwise.ising_model import IsingModel
from fieldfit.models.pairwise.potts_model import PottsModel
from fieldfit.objectives.likelihood import Likelihood

SEQUENCES = [
    [{"w": "the"}, {"w": "Dog"}, {"w": "saw"}, {"w": "Dog"}],
    [{"w": "a"}, {"w": "cat"}],
]
NAMES = [["DET", "NOUN", "VERB", "NOUN"], ["DET", "NOUN"]]
EDGES = np.array([[0, 1], [1, 2], [0, 2]])


def examples(name):
    """An estimator, what it is fitted to, and what it predicts from."""
    rng = np.random.default_rng(3)
    nodes, labels = rng.normal(size=(5, 3, 2)), rng.integers(0, 2, size=(5, 3))
    graphs = [(x, EDGES) for x in nodes]
    images = rng.normal(size=(4, 3, 4, 2))
    pixels = np.where(images[..., 0] > 0, 1, 0)
    linked = [[{**token, "key": token["w"]} for token in tokens] for tokens in SEQUENCES]
    trw = Likelihood(SumProduct(entropy=TreeReweighted(rho=0.6), damping=0.1))
    return {
        "ChainCRF": (ChainCRF(l2=0.3), (SEQUENCES, NAMES), SEQUENCES),
        "GraphCRF": (GraphCRF("bethe", l2=0.3), (graphs, labels), graphs),
        "GridCRF": (GridCRF(trw, l2=0.3, pairwise="potts"), (images, pixels), images),
        "IsingModel": (IsingModel(l2=0.3), (labels,), labels),
        "MatchingCRF": (
            MatchingCRF(l2=0.3, perfect=False, capacity=(2, 3)),
            (images[..., 1:], pixels * (np.arange(4) < 2)),
            images[..., 1:],
        ),
        "MixtureField": (MixtureField("bethe"), (labels, EDGES), labels * 0.4),
        "PottsModel": (PottsModel(n_labels=3, l2=0.3), (labels + 1,), labels + 1),
        "SkipChainCRF": (SkipChainCRF(skip_edges="key", l2=0.3), (linked, NAMES), linked),
    }[name]


def predicted(model, X):
    if isinstance(model, MixtureField):
        return [model.predict(X, 0.5)]
    if hasattr(model, "predict"):
        return [*model.predict(X), *model.predict_marginals(X)]
    return [np.array(model.score(X)), *model.to_model()[1].unary_values]


@pytest.mark.parametrize("name", MODELS)
def test_what_is_saved_is_loaded(name, tmp_path):
    model, data, X = examples(name)
    model.fit(*data)
    model.notes_ = {"text": "grüße", "numbers": [1, 2.5, None]}
    model.save(tmp_path / "model.ff")
    again = load(tmp_path / "model.ff")
    assert type(again) is type(model)
    assert repr(again.get_params()) == repr(model.get_params())
    assert_array_equal(again.weights_, model.weights_)
    assert again.weight_blocks_.keys() == model.weight_blocks_.keys()
    assert again.trace_ == model.trace_
    assert (again.n_iter_, again.converged_, again.status_) == (
        model.n_iter_, model.converged_, model.status_,
    )  # fmt: skip
    assert again.notes_ == model.notes_
    for one, other in zip(predicted(again, X), predicted(model, X), strict=True):
        assert_array_equal(one, other)
    again.save(tmp_path / "again.ff")
    assert (tmp_path / "again.ff").read_bytes() == (tmp_path / "model.ff").read_bytes()


def test_every_estimator_can_be_loaded():
    for module in pkgutil.walk_packages(models.__path__, "fieldfit.models."):
        importlib.import_module(module.name)

    def concrete(cls):
        for child in cls.__subclasses__():
            if not inspect.isabstract(child) and "__init__" in vars(child):
                yield child
            yield from concrete(child)

    found = {child.__name__: child.__module__ for child in concrete(FieldEstimator)}
    assert found == {name: f"fieldfit.{PUBLIC[name].module}" for name in MODELS}


@pytest.fixture
def path(tmp_path):
    model, data, _ = examples("IsingModel")
    model.fit(*data).save(tmp_path / "model.ff")
    return tmp_path / "model.ff"


def test_damaged_files(path):
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(data), size=40):
        path.write_bytes(data[:position])
        with pytest.raises(FileFormatError, match=r"model\.ff"):
            load(path)
        altered = bytearray(data)
        altered[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(altered)
        with pytest.raises(FileFormatError, match=r"model\.ff"):
            load(path)


def rewritten(path, **changes):
    stored = read_model(path)
    fields = {
        "kind": stored.kind, "parameters": stored.parameters, "metadata": stored.metadata,
        "arrays": stored.arrays,
    }  # fmt: skip
    write_model(path, **(fields | changes))
    return path


def test_files_that_name_something_else(path):
    with pytest.raises(FileFormatError, match=r"expected a model of ChainCRF, .*found 'Pickle'"):
        load(rewritten(path, kind="Pickle"))


def test_files_of_another_version(path):
    stored = read_model(path)
    with pytest.raises(FileFormatError, match=r"does not fit this version.*no_such_option"):
        load(rewritten(path, parameters={**stored.parameters, "no_such_option": 1}))
    rewritten(path, parameters=stored.parameters)
    with pytest.raises(FileFormatError, match=r"expected an entry 'n_iter', found none"):
        load(rewritten(path, metadata={}))
    rewritten(path, metadata=stored.metadata)
    with pytest.raises(FileFormatError, match="expected an array 'edges', found none"):
        load(rewritten(path, arrays={"weights": stored.arrays["weights"]}))
    with pytest.raises(FileNotFoundError):
        load(path.with_name("none.ff"))


# -- forged content, with a right digest ----------------------------------------------------


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("metadata", {"n_iter": "many"}, "expected 'n_iter' to be an integer of at least 0"),
        ("metadata", {"converged": 1}, "expected 'converged' to be true or false, found 1"),
        ("metadata", {"trace": [3]}, "expected 'trace' to be a list"),
        ("metadata", {"model": []}, "expected 'model' to be an object"),
        ("metadata", {"block_shapes": [["thresholds", [2]]]}, "expected 'weights' to be numbers"),
        ("metadata", {"block_shapes": [["a", [6]]]}, "expected 'block_shapes'"),
        ("metadata", {"block_shapes": [["a", [-1]]]}, "expected 'block_shapes' of at least 0"),
        ("parameters", {"l2": "much"}, "l2 must be at least 0, got 'much'"),
        ("parameters", {"objective": 3}, "objective must be one of"),
        ("arrays", {"weights": np.zeros((2, 3))}, r"numbers of shape \(6\), found float64"),
        ("arrays", {"weights": np.full(6, np.nan)}, "expected 'weights' to be finite"),
        ("arrays", {"weights": np.zeros(6, dtype=np.int64)}, "found int64"),
        ("arrays", {"edges": np.array([[0, 9], [1, 2], [0, 2]])}, "edges must name variables"),
        ("arrays", {"edges": np.zeros((3, 2))}, "expected 'edges' to be integers"),
    ],
)
def test_forged_content_is_refused_in_a_sentence(path, part, change, message):
    stored = read_model(path)
    with pytest.raises(FileFormatError, match=message) as caught:
        load(rewritten(path, **{part: {**getattr(stored, part), **change}}))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_indices_that_kernels_would_follow_are_checked(tmp_path):
    model, data, _ = examples("ChainCRF")
    model.fit(*data).save(tmp_path / "model.ff")
    stored = read_model(tmp_path / "model.ff")
    for name, array in {
        "state_labels": np.full_like(stored.arrays["state_labels"], 60_000),
        "state_offsets": stored.arrays["state_offsets"][::-1],
        "transitions": stored.arrays["transitions"] * 0 + 7,
        "name_ends": stored.arrays["name_ends"] + 10**9,
    }.items():
        rewritten(tmp_path / "model.ff", arrays={**stored.arrays, name: array})
        with pytest.raises(FileFormatError, match=f"expected '{name}'"):
            load(tmp_path / "model.ff")
