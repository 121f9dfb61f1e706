"""Probing: bounds that hold, below those of roof duality; what is left has the same best score."""

from __future__ import annotations

import numpy as np
import pytest
from problems import ising, pair_model
from reference.max_flow import best_score

import fieldfit as ff
from fieldfit.inference import CycleCuts, Probing, RoofDuality
from fieldfit.inference.map.graph_cut.probing import Effort, probe

KINDS = (
    {},
    {"ties": True},
    {"zeros": 0.1},
    {"one_label": True},
    {"field": 0.1, "slope": 0.0},
    {"field": 0.0, "slope": 0.0, "density": 3.0},
    {"ties": True, "zeros": 0.1, "one_label": True, "field": 0.5},
)


def models(kind, count):
    """Random models that have a labelling, some with evidence, and their best scores."""
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(count):
        graph, potentials = pair_model(rng, int(rng.integers(1, 9)), **kind)
        observed = {0: 0} if rng.random() < 0.3 else None
        best = best_score(graph, potentials, observed)
        if best > -np.inf:
            yield graph, potentials, observed, best


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bounds_hold_and_are_at_most_those_of_roof_duality(kind):
    for graph, potentials, observed, best in models(kind, 60):
        found = Probing().run(graph, potentials, observed)
        roof = RoofDuality().run(graph, potentials, observed)
        assert found.score == pytest.approx(potentials.score(found.labels), abs=1e-9)
        assert found.score <= best + 1e-9
        assert best - 1e-9 <= found.upper_bound <= roof.upper_bound + 1e-9
        assert found.score >= roof.score - 1e-9
        if found.optimal:
            assert found.score == pytest.approx(best, abs=1e-8)
        if observed is not None:
            assert found.labels[0] == observed[0]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("max_work", [0.0, 10.0, 40.0])
def test_what_is_left_has_the_same_best_score(kind, max_work):
    """However early the search stops."""
    for graph, potentials, observed, best in models(kind, 30):
        evidence = np.full(graph.n_variables, -1, dtype=np.int32)
        evidence[list(observed or {})] = list((observed or {}).values())
        found = probe(graph, potentials, evidence, Effort(2, max_work=max_work))
        rest = ff.ExactMap().run(found.graph, found.potentials)
        assert max(found.score, found.constant + rest.score) == pytest.approx(best, abs=1e-9)
        lifted = found.lifted(rest.labels)
        assert potentials.score(lifted) == pytest.approx(found.constant + rest.score, abs=1e-9)
        assert (found.lowered(lifted) == rest.labels).all()


def test_a_grid_with_fields_shrinks_and_is_proved():
    """Roof duality leaves half of it; two methods prove the same score."""
    graph, potentials = ising(np.random.default_rng(0), 12, 12, 1.0, field=0.5)
    roof = RoofDuality().run(graph, potentials)
    found = Probing().run(graph, potentials)
    cuts = CycleCuts(branch=True).run(graph, potentials)
    assert found.upper_bound < roof.upper_bound
    assert found.score <= cuts.score + 1e-8 <= found.upper_bound + 2e-8
    assert ff.Map().run(graph, potentials).score == pytest.approx(cuts.score, abs=1e-8)


def test_time_and_models_that_do_not_fit():
    graph, potentials = ising(np.random.default_rng(0), 30, 30, 1.0, field=0.0)
    cut_off = Probing(time_limit=1e-9).run(graph, potentials)
    assert not cut_off.converged
    assert cut_off.upper_bound >= cut_off.score
    three = ff.FactorGraph.chain(3, 3)
    with pytest.raises(ff.errors.InvalidInputError, match="variable 0 must have at most two"):
        Probing().run(three, ff.Potentials(three))


def test_batches_are_their_examples():
    rng = np.random.default_rng(0)
    pairs = [pair_model(rng, 7, field=0.3) for _ in range(4)]
    batch = ff.graph.Batch.of([graph for graph, _ in pairs])
    joined = ff.Potentials.from_flat(
        batch.graph,
        np.concatenate([potentials.unary_values for _, potentials in pairs]),
        np.concatenate([potentials.factor_values for _, potentials in pairs]),
    )
    together = Probing().run_batch(batch, joined)
    alone = [Probing().run(graph, potentials) for graph, potentials in pairs]
    assert np.allclose(together.scores, [result.score for result in alone])
    assert together.upper_bound == pytest.approx(sum(r.upper_bound for r in alone))
