"""A file that cannot be written: the old one is unchanged, and one sentence names it."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from faults import failing, full_disk, limited_file_size, needs_permissions
from learning import Remembering

import fieldfit as ff
from fieldfit.errors import CheckpointWarning, FileWriteError, InvalidInputError
from fieldfit.learners.base import Penalty
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.learners.stochastic import Adam

GRAPH = ff.FactorGraph.grid(3, 3, 2)
POTENTIALS = ff.Potentials(GRAPH)
SAMPLES = np.random.default_rng(0).integers(0, 2, (40, 5))
FAULTS = {
    "after some bytes": full_disk,
    "at the first byte": lambda: full_disk(0),
    "by the system": limited_file_size,
    "when it is flushed": lambda: failing("fsync"),
    "when it is renamed": lambda: failing("replace"),
}
WRITERS = {
    "save": lambda path: ff.IsingModel().fit(SAMPLES).save(path),
    "write_uai": lambda path: ff.write_uai(path, GRAPH, POTENTIALS),
    "write_fg": lambda path: ff.write_fg(path, GRAPH, POTENTIALS),
    "write_evidence": lambda path: ff.io.write_evidence(path, dict.fromkeys(range(40), 1)),
    "write_answer": lambda path: ff.io.write_answer(
        path, ff.io.MapAnswer(np.zeros(80, dtype=np.int32))
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("writer", WRITERS)
def test_the_old_file_is_unchanged(writer, fault, tmp_path):
    path = tmp_path / "old"
    path.write_bytes(b"what was there")
    with FAULTS[fault](), pytest.raises(FileWriteError) as caught:
        WRITERS[writer](path)
    message = str(caught.value)
    assert message.startswith(f"{path} could not be written: ")
    assert message.endswith(os.strerror(caught.value.__cause__.errno))
    assert path.read_bytes() == b"what was there"
    assert [entry.name for entry in tmp_path.iterdir()] == ["old"]
    WRITERS[writer](path)  # and it works as soon as there is room
    assert path.read_bytes() != b"what was there"


@needs_permissions
@pytest.mark.parametrize("writer", WRITERS)
def test_folders_that_may_not_be_written_to_are_refused_before_the_work(writer, tmp_path):
    path = tmp_path / "old"
    path.write_bytes(b"what was there")
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(InvalidInputError, match="in a folder that may be written to"):
            WRITERS[writer](path)
    finally:
        tmp_path.chmod(stat.S_IRWXU)
    assert path.read_bytes() == b"what was there"


def test_folders_are_asked_before_the_work(tmp_path, monkeypatch):
    """The same for a user whom permissions do not bind."""
    monkeypatch.setattr(os, "access", lambda folder, mode: Path(folder) != tmp_path)
    with pytest.raises(InvalidInputError, match="path must be a file in a folder that may be"):
        WRITERS["write_uai"](tmp_path / "model.uai")
    with pytest.raises(InvalidInputError, match="checkpoint must be a file in a folder that may"):
        train("LBFGS", tmp_path / "checkpoint")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_devices_are_written_to_and_stay_devices():
    with pytest.raises(FileWriteError, match="/dev/full could not be written: No space left"):
        WRITERS["write_uai"]("/dev/full")
    WRITERS["write_uai"](os.devnull)
    assert not os.path.isfile(os.devnull)


def test_links_stay_links(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    WRITERS["write_uai"](tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes().startswith(b"MARKOV")


def test_compressed_files_are_replaced_as_a_whole_too(tmp_path):
    plain, compressed = tmp_path / "model.uai", tmp_path / "model.uai.gz"
    for path in (plain, compressed):
        WRITERS["write_uai"](path)
    before = compressed.read_bytes()
    assert gzip.decompress(before) == plain.read_bytes()
    with full_disk(20), pytest.raises(FileWriteError, match=r"model\.uai\.gz could not be written"):
        WRITERS["write_uai"](compressed)
    assert compressed.read_bytes() == before


# -- checkpoints --------------------------------------------------------------------------

LEARNERS = {
    "LBFGS": (LBFGS(max_iter=12, tol=0.0, checkpoint_every=2), Penalty(l2=0.1)),
    "OWL-QN": (LBFGS(max_iter=12, tol=0.0, checkpoint_every=2), Penalty(l1=0.5)),
    "Adam": (Adam(max_iter=12, random_state=0, checkpoint_every=2), Penalty(l2=0.1)),
}


def train(name, checkpoint, problem=None):
    learner, penalty = LEARNERS[name]
    problem = problem or Remembering(n_parts=3)
    return learner.minimize(problem, np.full(12, 0.1), penalty=penalty, checkpoint=checkpoint)


@pytest.mark.parametrize("name", LEARNERS)
def test_learning_goes_on_to_the_same_weights(name, tmp_path):
    expected = train(name, tmp_path / "straight")
    with full_disk(), pytest.warns(CheckpointWarning) as caught:
        fit = train(name, tmp_path / "file")
    assert len(caught) == 1
    assert "file could not be written: No space left on device; learning goes on" in str(
        caught[0].message
    )
    np.testing.assert_array_equal(fit.weights, expected.weights)
    assert fit.status.startswith(expected.status.removesuffix("."))
    assert "the last checkpoint is missing" in fit.status
    assert not (tmp_path / "file").exists()


class FullForAWhile(Remembering):
    """The disk is full after some evaluations, and has room again after others."""

    def __init__(self, first, last, **options):
        super().__init__(**options)
        self.first, self.last, self.disk = first, last, None

    def evaluate_part(self, weights, part):
        if self.n_calls == self.first:
            self.disk = full_disk()
            self.disk.__enter__()
        if self.n_calls == self.last:
            self.disk.__exit__(None, None, None)
        return super().evaluate_part(weights, part)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_last_good_checkpoint_is_kept_and_later_ones_are_written(name, tmp_path):
    expected = train(name, tmp_path / "straight")
    with pytest.warns(CheckpointWarning):
        fit = train(name, tmp_path / "file", FullForAWhile(12, 25, n_parts=3))
    np.testing.assert_array_equal(fit.weights, expected.weights)
    assert fit.status == expected.status
    again = train(name, tmp_path / "file")
    np.testing.assert_array_equal(again.weights, expected.weights)


@pytest.mark.filterwarnings("ignore::fieldfit.errors.ConvergenceWarning")
def test_the_weights_are_in_the_estimator(tmp_path):
    expected = ff.IsingModel(max_iter=3).fit(SAMPLES, checkpoint=tmp_path / "straight")
    with full_disk(), pytest.warns(CheckpointWarning):
        model = ff.IsingModel(max_iter=3).fit(SAMPLES, checkpoint=tmp_path / "file")
    np.testing.assert_array_equal(model.weights_, expected.weights_)
    assert f"the last checkpoint is missing, {tmp_path / 'file'} could not be" in model.status_
