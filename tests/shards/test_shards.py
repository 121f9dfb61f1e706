"""Shards in one process: files, errors, and the bits of a fit in memory."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fields import graphs, images
from reference.shards import two_level_sum
from scipy.sparse import csr_matrix

import fieldfit as ff
from fieldfit.errors import FileFormatError, InvalidInputError, WorkersLostError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.graph.memos import memos_of
from fieldfit.learners import loop
from fieldfit.models import conditional
from fieldfit.shards.problem_files import ProblemFile
from fieldfit.shards.shard_problem import ShardProblem
from fieldfit.shards.state_files import StateFile
from fieldfit.shards.workplace import Answer, Call, Request, Workplace, packed, unpacked

#: Variables and edges of a shard in these tests.
SIZE = 60
SIZES = ((3, 3), (4, 5), (3, 3), (4, 2), (5, 5), (3, 6), (4, 4))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """Data in memory are cut as finely as the files."""
    monkeypatch.setattr(conditional, "SHARD_SIZE", SIZE)


def grid(objective="trw", **options):
    return ff.GridCRF(objective, l2=0.1, max_iter=6, **options)


def graph(objective="cf-bethe", **options):
    return ff.GraphCRF(objective, l2=0.1, max_iter=6, **options)


def write(folder, estimator, X, Y, **options):
    return ff.shards.write(folder, estimator, zip(X, Y, strict=True), shard_size=SIZE, **options)


def pictures(**options):
    return images(sizes=SIZES, **options)


def same_fit(first, second):
    np.testing.assert_array_equal(first.weights_, second.weights_)
    seen = [[row["objective"] for row in one.trace_] for one in (first, second)]
    assert seen[0] == seen[1]
    return True


# -- the bits of memory -------------------------------------------------------------------


def with_missing(Y):
    return [np.where(np.arange(y.size).reshape(y.shape) % 5 == 0, -1, y) for y in Y]


CASES = {
    "tree-reweighted": lambda: (grid(), *pictures()),
    "OWL-QN": lambda: (grid(l1=0.5), *pictures()),
    "Adam": lambda: (grid(learner="adam", batch_size=1), *pictures()),
    "draws": lambda: (grid("cd"), *pictures()),
    "procedural": lambda: (grid("procedural"), *pictures()),
    "missing labels": lambda: (grid(), pictures()[0], with_missing(pictures()[1])),
    "threads": lambda: (grid(n_jobs=2), *pictures()),
    "features of edges": lambda: (grid(edge_features=True, batch_size=2), *pictures()),
    "contrastive": lambda: (graph(), *graphs(count=9)),
    "relative penalty": lambda: (
        grid(edge_features=True).set_params(l2=ff.models.RelativePenalty(1e-3, couplings=0.01)),
        *pictures(),
    ),
    "edges with features": lambda: (graph("trw"), *graphs(count=9, n_edge_features=2)),
}


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
@pytest.mark.parametrize("name", CASES)
def test_data_on_disk_give_the_bits_of_memory(tmp_path, name):
    estimator, X, Y = CASES[name]()
    shards = write(tmp_path / "shards", estimator, X, Y)
    assert len(shards) > 1
    in_memory = estimator.fit(X, Y)
    again = type(estimator)(**estimator.get_params())
    assert same_fit(in_memory, again.fit(shards))
    # nothing stays in memory: shards are read again, and messages come from scratch files
    assert same_fit(in_memory, again.fit(ff.shards.Shards(tmp_path / "shards", memory=0)))


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
def test_sparse_features_bytes_and_weights_of_examples(tmp_path):
    X, Y = graphs(count=9)
    X = [(csr_matrix(np.round(x[0])), *x[1:]) for x in X]
    weights = np.linspace(0.5, 2.0, len(X))
    shards = ff.shards.write(
        tmp_path / "a", graph(), zip(X, Y, weights, strict=True), shard_size=SIZE
    )
    assert same_fit(graph().fit(X, Y, sample_weight=weights), graph().fit(shards))
    X, Y = pictures()
    X = [np.round(20 * x - 30 * x.min()).astype(np.uint8) for x in X]
    shards = write(tmp_path / "b", grid(), X, Y)
    assert shards.read(0).arrays["features"].dtype == np.uint8
    assert same_fit(grid().fit(X, Y), grid().fit(shards))


def test_the_sum_has_two_levels(tmp_path):
    X, Y = pictures()
    estimator = grid("pseudolikelihood", batch_size=1)
    problem = estimator._problem(estimator._objective(), X, Y, None)
    weights = np.random.default_rng(0).normal(size=problem.n_weights)
    parts = [problem.evaluate_part(weights, part) for part in range(problem.n_parts)]
    value, gradient = two_level_sum(parts, estimator._sizes(X), SIZE)
    found = problem.evaluate(weights)
    assert found.value == value
    np.testing.assert_array_equal(found.gradient, gradient)


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
def test_a_checkpoint_resumes_with_the_same_bits(tmp_path):
    X, Y = pictures()
    shards = write(tmp_path / "shards", grid(), X, Y)
    options = {"l2": 0.1, "learner": ff.LBFGS(max_iter=12, checkpoint_every=3)}
    whole = ff.GridCRF("trw", **options).fit(shards, checkpoint=tmp_path / "whole")
    short = {"l2": 0.1, "learner": ff.LBFGS(max_iter=6, checkpoint_every=3)}
    ff.GridCRF("trw", **short).fit(shards, checkpoint=tmp_path / "cut")
    assert same_fit(whole, ff.GridCRF("trw", **options).fit(shards, checkpoint=tmp_path / "cut"))
    assert same_fit(whole, ff.GridCRF("trw", **options).fit(X, Y, checkpoint=tmp_path / "memory"))
    with pytest.raises(InvalidInputError, match="the digest of the data"):
        ff.GridCRF("trw", **options).fit(X, Y, checkpoint=tmp_path / "cut")


def test_predictions_scores_and_bounds(tmp_path):
    X, Y = pictures()
    shards = write(tmp_path / "shards", grid(), X, Y)
    crf = ff.GridCRF("trw", l2=0.1).fit(X, Y)
    answers = crf.predict(shards)
    assert len(answers) == len(X)
    paths = answers.write(tmp_path / "labels")
    assert [path.name for path in paths][:2] == [
        "labels-00000.safetensors",
        "labels-00001.safetensors",
    ]
    written = ff.shards.read_answers(tmp_path / "labels")
    for computed, read, expected in zip(answers, written, crf.predict(X), strict=True):
        np.testing.assert_array_equal(computed, expected)
        np.testing.assert_array_equal(read, expected)
    crf.predict_marginals(shards).write(tmp_path / "marginals")
    written = ff.shards.read_answers(tmp_path / "marginals")
    for read, expected in zip(written, crf.predict_marginals(X), strict=True):
        np.testing.assert_allclose(read, expected, atol=1e-6)
    assert crf.score(shards) == crf.score(X, Y)
    for found, expected in zip(
        crf.log_likelihood_bounds(shards), crf.log_likelihood_bounds(X, Y), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    paths[1].unlink()
    with pytest.raises(FileFormatError, match="expected answers of shard"):
        list(ff.shards.read_answers(tmp_path / "labels"))


# -- replay -------------------------------------------------------------------------------


def opened(folder, memory=1e9):
    """A workplace of a fit, and some weights."""
    shards, estimator = ff.shards.Shards(folder, memory=memory), grid()
    problem = ShardProblem(shards, estimator, estimator._objective(), None)
    rng = np.random.default_rng(0)
    weights = [0.3 * rng.normal(size=problem.n_weights) for _ in range(4)]
    return Workplace(shards, estimator, estimator._objective()), weights


@pytest.mark.parametrize("memory", [0, 1e9])
def test_a_worker_that_lacks_a_state_replays_the_log(tmp_path, memory):
    write(tmp_path / "shards", grid(), *pictures())
    home, weights = opened(tmp_path / "shards", memory)
    calls = tuple(Call(None, one) for one in weights)
    answers = [home.evaluate(Request(1, 0, k + 1, calls[k : k + 1])) for k in range(4)]
    assert all(answer.is_warm and answer.n_replayed == 0 for answer in answers)
    other, _ = opened(tmp_path / "shards", memory)
    assert other.evaluate(Request(1, 0, 4, calls[3:])).value is None  # it asks for the log
    replayed = other.evaluate(Request(1, 0, 4, calls))
    assert replayed.n_replayed == 3
    np.testing.assert_array_equal(replayed.value.gradient, answers[3].value.gradient)
    # messages matter to the last bits, so a start without them would have been seen
    afresh = other.evaluate(Request(1, 1, 1, calls[3:]))
    assert not np.array_equal(afresh.value.gradient, answers[3].value.gradient)
    # the same request twice: the state is of a later evaluation, so the log is needed
    assert home.evaluate(Request(1, 0, 4, calls[3:])).value is None
    twice = home.evaluate(Request(1, 0, 4, calls))
    np.testing.assert_array_equal(twice.value.gradient, answers[3].value.gradient)


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
@pytest.mark.parametrize("learner", [None, "adam"])
def test_the_log_is_short_without_a_checkpoint(tmp_path, monkeypatch, learner):
    X, Y = pictures()
    shards = write(tmp_path / "shards", grid(), X, Y)
    plain = grid(learner=learner, batch_size=2).fit(X, Y)
    assert same_fit(plain, grid(learner=learner, batch_size=2).fit(shards))
    monkeypatch.setattr(loop, "LOG_ITERATIONS", 2)
    longest, values = 0, ShardProblem._values

    def watched(self, calls):
        nonlocal longest
        found = values(self, calls)
        longest = max([longest, *map(len, self._logs.values())])
        return found

    monkeypatch.setattr(ShardProblem, "_values", watched)
    reset = grid(learner=learner, batch_size=2).fit(X, Y)
    assert same_fit(reset, grid(learner=learner, batch_size=2).fit(shards))
    assert not np.array_equal(reset.weights_, plain.weights_)  # messages are in the last bits
    assert 0 < longest <= 6


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
def test_many_weights_make_the_log_shorter(monkeypatch):
    X, Y = pictures()
    plain = grid().fit(X, Y)
    monkeypatch.setattr(loop, "LOG_BYTES", 2 * 8 * len(plain.weights_) + 2)
    by_bytes = grid().fit(X, Y)
    monkeypatch.setattr(loop, "LOG_ITERATIONS", 2)
    monkeypatch.setattr(loop, "LOG_BYTES", 2**30)
    assert same_fit(by_bytes, grid().fit(X, Y))


def test_states_on_disk_are_the_same_bit_by_bit(tmp_path):
    old, new = FactorGraph.chain(3, 2), FactorGraph.chain(3, 2)
    message = np.random.default_rng(0).normal(size=1000)
    constant = np.broadcast_to(np.float64(0.0), (10_000,))
    state = [(message, None, {"graph": old, "few": np.arange(3)}), (constant, message[::-1])]
    (found, nothing, named), (zeros, reverse) = StateFile(state, [old], tmp_path).load([new])
    np.testing.assert_array_equal(found, message)
    np.testing.assert_array_equal(reverse, message[::-1])
    assert nothing is None
    assert named["graph"] is new
    assert zeros.strides == (0,)
    found[0] = 7.0  # private
    assert not any(tmp_path.iterdir())  # the file has no name


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
def test_prepared_shards_are_not_made_again(tmp_path, monkeypatch):
    X, Y = graphs(count=9)
    write(tmp_path / "shards", graph("trw"), X, Y)
    shards = ff.shards.Shards(tmp_path / "shards", memory=0, scratch=tmp_path)
    made, load = [], Workplace.load
    monkeypatch.setattr(
        Workplace, "load", lambda self, shard: (made.append(shard), load(self, shard))[1]
    )
    crf = graph("trw")
    crf.fit(shards)
    assert sorted(made) == sorted(2 * list(range(len(shards))))  # of independent variables, too
    assert not any(path.is_file() for path in tmp_path.iterdir())  # files have no names


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
def test_a_stored_problem_is_the_same_with_its_memos(tmp_path):
    X, Y = graphs(count=3)
    crf = graph("trw").fit(X, Y)
    problem = crf._problem(crf._objective(), X, Y, None)
    value = problem.evaluate(crf.weights_)
    problem.take_warm_start()
    file = ProblemFile(tmp_path)
    stored = [file.store(problem) for _ in range(2)][1]
    found = file.load(stored)
    old, new = problem.parts[0].batch.graph, found.parts[0].batch.graph
    assert old is not new
    assert new is found.graphs()[0]
    assert memos_of(new).keys() == memos_of(old).keys() >= {"counting numbers"}
    for name, array in vars(old).items():
        if isinstance(array, np.ndarray):
            again = getattr(new, name)
            np.testing.assert_array_equal(array, again)
            assert array.flags.writeable == again.flags.writeable  # what kernels are compiled for
            assert again.flags.aligned
    np.testing.assert_array_equal(found.evaluate(crf.weights_).gradient, value.gradient)


def test_gradients_travel_short_where_they_are_sparse():
    gradient = np.zeros(100)
    gradient[[3, 50]] = [1.5, -0.0]
    value = ff.learners.ProblemValue(1.0, gradient, 0, 1)
    short = packed(Answer(0, value))
    assert len(short.value.gradient.entries) == 2
    found = unpacked(short).value.gradient
    np.testing.assert_array_equal(found.view(np.int64), gradient.view(np.int64))
    dense = Answer(0, ff.learners.ProblemValue(1.0, np.ones(4), 0, 1))
    assert packed(dense) is dense


# -- plain executors ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
@pytest.mark.parametrize("objective", ["trw", "procedural"])
def test_any_executor_gives_the_same_bits(tmp_path, objective):
    shards = write(tmp_path / "shards", grid(), *pictures())
    with ThreadPoolExecutor(2) as client:
        there = grid(objective).fit(shards, client=client)
    here = grid(objective).fit(shards)
    assert same_fit(here, there)
    row = there.trace_[-1]
    assert {"seconds_computing", "seconds_communicating", "seconds_replaying", "replays"} <= set(
        row
    )
    assert "replays" not in here.trace_[-1]


def test_processes_of_joblib(tmp_path):
    from joblib.externals.loky import get_reusable_executor

    shards = write(tmp_path / "shards", grid(n_labels=np.int64(2)), *pictures())
    made = [ff.GridCRF("pseudolikelihood", l2=0.1, n_labels=2) for _ in range(2)]
    client = get_reusable_executor(max_workers=1)
    try:
        assert same_fit(made[0].fit(shards), made[1].fit(shards, client=client))
    finally:
        client.shutdown(wait=True)


class Forgetful:
    """An executor whose workers are new every time, so that every state must be replayed."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(1)

    def submit(self, function, job, requests):
        return self.pool.submit(self._run, function, job, requests)

    def _run(self, function, job, requests):
        from dataclasses import replace

        return function(replace(job, run=f"{job.run}-{np.random.default_rng().random()}"), requests)


@pytest.mark.filterwarnings("ignore::fieldfit.ConvergenceWarning")
def test_workers_without_memory_replay_everything(tmp_path):
    shards = write(tmp_path / "shards", grid(), *pictures())
    there = grid().fit(shards, client=Forgetful())
    assert same_fit(grid().fit(shards), there)
    assert sum(row["replays"] for row in there.trace_) > 6


class Silent:
    """An executor that never answers."""

    def submit(self, function, *arguments):
        from concurrent.futures import Future

        return Future()


def test_an_executor_that_never_answers_is_not_waited_for(tmp_path):
    shards = write(tmp_path / "shards", grid(), *pictures())
    with pytest.raises(
        WorkersLostError, match=r"no worker has answered in 0\.1 seconds .* shards 0, 1"
    ):
        grid().fit(shards, client=ff.shards.Workers(Silent(), task_seconds=0.1))


def test_what_a_shard_raises_names_it(tmp_path, monkeypatch):
    shards = write(tmp_path / "shards", grid(), *pictures())
    path = tmp_path / "shards" / shards.manifest.shards[2].file
    path.write_bytes(path.read_bytes()[:-1])
    with (
        ThreadPoolExecutor(1) as client,
        pytest.raises(InvalidInputError, match="does not match its checksum"),
    ):
        grid().fit(shards, client=client)

    def fail(self, request):
        raise ZeroDivisionError("nothing to divide")

    monkeypatch.setattr(Workplace, "evaluate", fail)
    with (
        ThreadPoolExecutor(1) as client,
        pytest.raises(InvalidInputError, match=r"shard \d: ZeroDivisionError: nothing to divide"),
    ):
        grid().fit(shards, client=client)


# -- files --------------------------------------------------------------------------------


def test_writing_holds_one_shard_at_a_time(tmp_path, monkeypatch):
    X, Y = pictures()
    alive, most = set(), 0

    class Picture(np.ndarray):
        pass

    def stream():
        import gc
        import weakref

        nonlocal most
        for x, y in zip(X, Y, strict=True):
            picture = np.array(x).view(Picture)
            alive.add(id(picture))
            weakref.finalize(picture, alive.discard, id(picture))
            yield picture, y
            del picture
            gc.collect()
            most = max(most, len(alive))

    ff.shards.write(tmp_path / "shards", grid(), stream(), shard_size=1)
    assert most <= 2


def test_an_interrupted_writing_leaves_no_manifest(tmp_path):
    X, Y = pictures()

    def stream():
        yield X[0], Y[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ff.shards.write(tmp_path / "shards", grid(), stream(), shard_size=1)
    with pytest.raises(FileFormatError, match=r"expected a folder of shards with a manifest\.json"):
        ff.shards.Shards(tmp_path / "shards")
    assert len(write(tmp_path / "shards", grid(), X, Y)) > 1  # it can be written again


def test_damage_is_named_in_a_sentence(tmp_path):
    folder = tmp_path / "shards"
    shards = write(folder, grid(), *pictures())
    shards.verify()
    path = folder / shards.manifest.shards[1].file
    content = path.read_bytes()
    for damaged in (content[:-1], content[:-9] + b"x" + content[-8:], b"", content[:100]):
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=f"{path.name}: the file is"):
            grid().fit(ff.shards.Shards(folder))
    path.write_bytes((folder / shards.manifest.shards[0].file).read_bytes())
    with pytest.raises(FileFormatError, match="expected the file of digest"):
        ff.shards.Shards(folder).verify()
    path.unlink()
    with pytest.raises(FileFormatError, match=r"expected shard 1 of \d, found no such file"):
        grid().fit(ff.shards.Shards(folder))


def test_an_altered_manifest_is_refused(tmp_path):
    folder = tmp_path / "shards"
    write(folder, grid(), *pictures())
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    for change, sentence in {
        ("kind", "GraphCRF"): "expected the digest of its content",
        ("format", "x"): "expected format fieldfit-shards, found 'x'",
        ("version", 99): "expected version 2 at most, found 99",
        ("shards", ()): "expected at least one shard, found none",
        ("model", 3): "expected 'model' to be an object",
    }.items():
        path.write_text(json.dumps({**content, change[0]: change[1]}))
        with pytest.raises(FileFormatError, match=sentence):
            ff.shards.Shards(folder)
    entry = {**content["shards"][0], "file": "../x"}
    path.write_text(json.dumps({**content, "shards": [entry]}))
    with pytest.raises(FileFormatError, match="expected the name of a file in the folder"):
        ff.shards.Shards(folder)
    path.write_text("{")
    with pytest.raises(FileFormatError, match="expected JSON"):
        ff.shards.Shards(folder)


def test_what_does_not_belong_together_is_refused(tmp_path):
    X, Y = pictures()
    shards = write(tmp_path / "shards", grid(), X, Y)
    with pytest.raises(InvalidInputError, match="must be new or empty"):
        write(tmp_path / "shards", grid(), X, Y)
    with pytest.raises(
        InvalidInputError, match="shards must be those of a GraphCRF, got shards of GridCRF"
    ):
        graph().fit(shards)
    with pytest.raises(InvalidInputError, match="written with ignore_label=1 as here"):
        grid(ignore_label=1).fit(shards)
    with pytest.raises(InvalidInputError, match="Y must be None, because shards hold it"):
        grid().fit(shards, Y)
    with pytest.raises(InvalidInputError, match="sample_weight must be None"):
        grid().fit(shards, sample_weight=np.ones(len(X)))
    with pytest.raises(InvalidInputError, match="client must be None without shards"):
        grid().fit(X, Y, client=ThreadPoolExecutor(1))
    with pytest.raises(InvalidInputError, match=r"client must have a method submit"):
        grid().fit(shards, client=3)
    for objective, name in (("camel", "CAMEL"), ("mle-struct", "MLE-Struct")):
        with pytest.raises(
            InvalidInputError, match=f"must be a sum over examples for shards, got {name}"
        ):
            grid(objective).fit(shards)
    with pytest.raises(
        InvalidInputError, match="X must be a list of examples for SkipChainCRF, got shards"
    ):
        ff.SkipChainCRF(skip_edges="w").fit(shards)
    wide = grid("pseudolikelihood")
    with pytest.warns(ff.ConvergenceWarning):
        wide.fit([np.dstack([x, x]) for x in X], Y)
    with pytest.raises(
        InvalidInputError, match="shards must have n_features_in=4 as the fitted model"
    ):
        wide.predict(shards)
    with pytest.raises(InvalidInputError, match="Y must be None"):
        wide.score(shards, Y)


@pytest.mark.parametrize(
    ("examples", "sentence"),
    [
        ([], "examples must hold at least one example, got none"),
        ([3], r"examples\[0\] must be a pair \(x, y\)"),
        (7, r"examples must be pairs \(x, y\), got 7"),
        ([(np.zeros((2, 2)), np.zeros((3, 2), int))], r"Y\[0\] must have shape \(2, 2\)"),
        ([(np.zeros((2, 2)), np.eye(2, dtype=int)), (np.zeros((2, 2, 3)), np.eye(2, dtype=int))],
         r"X\[1\]: there must be 1 features as in the first example, got 3"),
        ([(np.full((2, 2), np.nan), np.eye(2, dtype=int))], r"X\[0\]: features must be finite"),
        ([(np.zeros((2, 2)), np.zeros((2, 2), int))], "at least two different labels"),
        ([(np.zeros((2, 2)), np.eye(2, dtype=int), -1)], r"examples\[0\] must have a finite"),
    ],
)  # fmt: skip
def test_bad_examples_are_refused_in_a_sentence(tmp_path, examples, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        ff.shards.write(tmp_path / "shards", grid(), examples)
    assert not (tmp_path / "shards" / "manifest.json").exists()


def test_only_shards_with_a_client_need_threads(tmp_path):
    """Nothing is left running by a fit in this process."""
    shards = write(tmp_path / "shards", grid(), *pictures())
    before = threading.active_count()
    with pytest.warns(ff.ConvergenceWarning):
        grid("pseudolikelihood").fit(shards)
    assert threading.active_count() == before
