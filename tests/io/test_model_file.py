"""Model files: what is written is read, and anything damaged, foreign or too new is refused."""

from __future__ import annotations

import json
import os
import pkgutil
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from importlib import import_module

import numpy as np
import pytest
from safetensors.numpy import load_file

import fieldfit as ff
from fieldfit._registry import stored_classes
from fieldfit.errors import FileFormatError, InvalidInputError
from fieldfit.inference.kikuchi.hypertree_entropy import HypertreeReweighted
from fieldfit.io.model_file import ModelFile, decode, encode, read_model, write_model
from fieldfit.learners.base import Learner
from fieldfit.learners.lbfgs import LBFGS
from fieldfit.objectives.base import Objective
from fieldfit.objectives.likelihood import Likelihood
from fieldfit.objectives.marginal_losses import MarginalLoss


def write_small(path):
    write_model(
        path,
        "ChainCRF",
        {"objective": Likelihood(ff.SumProduct(ff.TreeReweighted(0.5))), "l2": 0.1},
        {"labels": ["A", "Ö"]},
        {"weights": np.array([1.5, -2.0]), "mask": np.array([True, False, True])},
    )


def round_trip(path, value):
    write_model(path, "Test", {"value": value}, {}, {})
    return read_model(path).parameters["value"]


# -- content ------------------------------------------------------------------------------


def test_a_model_is_read_as_it_was_written(tmp_path):
    rng = np.random.default_rng(0)
    parameters = {
        "objective": Likelihood(ff.SumProduct(ff.TreeReweighted(), schedule="residual", tol=1e-7)),
        "l2": 1e-3,
        "max_iter": 200,
        "n_jobs": None,
        "fit_intercept": True,
        "learner": LBFGS(history=5),
    }
    metadata = {"labels": ("B", "I"), "counts": {"words": 7, 3: [1.5, None]}, "n_iter": 12}
    arrays = {
        "weights": rng.normal(size=(3, 4)),
        "edges": rng.integers(0, 9, (5, 2)),
        "nothing": np.zeros((0, 3)),
        "number": np.array(2.5),
        "transposed": rng.normal(size=(3, 4)).T,
        "single": rng.normal(size=7).astype(np.float32),
        "mask": rng.random(5) < 0.5,
        "labels": np.array([1, -1], dtype=np.int8),
    }
    write_model(tmp_path / "model", "GridCRF", parameters, metadata, arrays)
    model = read_model(tmp_path / "model")
    assert isinstance(model, ModelFile)
    assert (model.kind, model.parameters, model.metadata) == ("GridCRF", parameters, metadata)
    assert set(model.arrays) == set(arrays)
    for name, array in arrays.items():
        assert model.arrays[name].dtype == array.dtype
        assert model.arrays[name].flags.writeable
        np.testing.assert_array_equal(model.arrays[name], array, strict=True)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -(2**70), 0.1, np.inf, -np.inf, "text", '"sha256":"' + "0" * 64 + '"', "Ω\n",
        [], [1, [2.0, "x"]], (), (1, (2, None)), {}, {"a": {"b": (1,)}, 2: "c"}, {"tuple": [1]},
        {"class": "os.system", "fields": {}},
    ],
    ids=repr,
)  # fmt: skip
def test_plain_values(value, tmp_path):
    found = round_trip(tmp_path / "model", value)
    assert found == value
    assert type(found) is type(value)


def test_values_that_need_care(tmp_path):
    path = tmp_path / "model"
    assert np.isnan(round_trip(path, np.nan))
    assert round_trip(path, np.float64(0.1)) == 0.1
    assert type(round_trip(path, np.int64(3))) is int
    assert type(round_trip(path, np.bool_(True))) is bool
    labels = np.array(["B-NP", "O"])
    found = round_trip(path, {"classes": labels})["classes"]
    np.testing.assert_array_equal(found, labels, strict=True)
    rho = ff.TreeReweighted(rho=np.array([0.25, 0.75]))
    assert round_trip(path, [rho, rho])[1] == rho


@dataclass(frozen=True)
class Exact:
    """Has the name of one of fieldfit's classes, but is not it."""


@pytest.mark.parametrize("value", [object(), Exact(), len, {1, 2}, np.array([object()]), b"x"])
def test_other_objects_are_refused(value, tmp_path):
    with pytest.raises(InvalidInputError, match=r"parameter objective.* must be a number, text"):
        write_model(tmp_path / "model", "Test", {"objective": [value]}, {}, {})
    assert not list(tmp_path.iterdir())


def test_arrays_of_objects_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"array 'arrays\.x' must hold numbers"):
        write_model(tmp_path / "model", "Test", {}, {}, {"x": np.array(["a"])})


def option_classes():
    """Frozen dataclasses of options: objectives, learners, entropies, inferences, penalties."""
    found = {ff.models.RelativePenalty, ff.models.FactorType}
    for package in ("entropy", "inference", "objectives", "learners"):
        folder = import_module(f"fieldfit.{package}")
        for info in pkgutil.walk_packages(folder.__path__, f"fieldfit.{package}."):
            for name, value in vars(import_module(info.name)).items():
                is_option = isinstance(value, type) and is_dataclass(value) and name[0] != "_"
                if is_option and value.__module__ == info.name:
                    is_kind = issubclass(
                        value,
                        (Objective, Learner, ff.entropy.Entropy, HypertreeReweighted, MarginalLoss),
                    )
                    if is_kind or hasattr(value, "run"):
                        found.add(value)
    return found


def test_every_option_object_can_be_stored(tmp_path):
    classes = option_classes()
    assert len(classes) >= 12
    assert {cls.__name__: cls.__module__ for cls in classes} == stored_classes()
    for cls in classes:
        given = round_trip(tmp_path / "model", cls())
        assert given == cls()
        assert all(field.init for field in fields(cls)), "a field that the file would not hold"


def test_classes_that_are_not_in_the_table_are_not_made():
    for name in ("Popen", "os.system", "FactorGraph", "fieldfit.Exact"):
        with pytest.raises(FileFormatError, match="option object of this version"):
            decode({"class": name, "fields": {}}, {})
    with pytest.raises(FileFormatError, match="unknown kind 'pickle'"):
        decode({"pickle": "gASVJgAAAAAAAAC="}, {})
    with pytest.raises(FileFormatError, match="with one key"):
        decode({"tuple": [], "array": "x"}, {})
    arrays = {}
    assert decode(encode(ff.Convex(), arrays), arrays) == ff.Convex()


# -- damage -------------------------------------------------------------------------------


def test_a_file_altered_at_any_byte_is_refused(tmp_path):
    path = tmp_path / "model"
    write_small(path)
    data = path.read_bytes()
    assert len(data) < 1500
    rng = np.random.default_rng(0)
    for place in range(len(data)):
        # another case (of a letter of the digest, for example), and any other byte
        for change in {0x20, int(rng.integers(1, 256))} if chr(data[place]).isalpha() else {0x11}:
            altered = bytearray(data)
            altered[place] ^= change
            path.write_bytes(altered)
            with pytest.raises(FileFormatError, match="model: the file"):
                read_model(path)
    path.write_bytes(data)
    assert read_model(path).kind == "ChainCRF"


def test_a_file_cut_short_at_any_byte_is_refused(tmp_path):
    path = tmp_path / "model"
    write_small(path)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(FileFormatError, match="model: the file"):
            read_model(path)
    for addition in (b"\0", b" ", b"\n" * 9):
        path.write_bytes(data + addition)
        with pytest.raises(FileFormatError, match="cut short or damaged"):
            read_model(path)


@pytest.mark.parametrize("data", [b"", b"\x80\x04]\x94.", b"{}", b"\xff" * 100, bytes(100)])
def test_other_files_are_refused(data, tmp_path):
    (tmp_path / "model").write_bytes(data)
    with pytest.raises(FileFormatError, match="not a fieldfit-model file, or it is cut short"):
        read_model(tmp_path / "model")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_model(tmp_path / "nowhere")


def signed(header, data=b""):
    """A file with a right digest, whatever it says."""
    header["__metadata__"]["sha256"] = "0" * 64
    text = json.dumps(header, separators=(",", ":")).encode()
    file = len(text).to_bytes(8, "little") + text + data
    return file.replace(b"0" * 64, sha256(file).hexdigest().encode())


def small_header(**changes):
    metadata = {
        "format": "fieldfit-model",
        "version": "1",
        "fieldfit": "0.1.0",
        "content": '{"kind":"X","parameters":{},"metadata":{}}',
    }
    return {"__metadata__": {**metadata, **changes}}


def test_files_with_a_right_digest_and_wrong_content_are_refused(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(signed(small_header()))
    assert read_model(path).kind == "X"
    wrong = {
        "version 2 of fieldfit-model, written by fieldfit 9.9": {
            "version": "2", "fieldfit": "9.9",
        },
        "expected a fieldfit-model file, found a fieldfit-checkpoint file": {
            "format": "fieldfit-checkpoint",
        },
        "is not a fieldfit-model file": {"content": "no json"},
        "model: expected an entry 'kind'": {"content": '{"parameters":{},"metadata":{}}'},
        "option object of this version of fieldfit, found 'Popen'": {
            "content": '{"kind":"X","metadata":{},'
            '"parameters":{"x":{"class":"Popen","fields":{}}}}',
        },
        "model: .*max_iter": {
            "content": '{"kind":"X","metadata":{},'
            '"parameters":{"x":{"class":"LBFGS","fields":{"max_iter":-1}}}}',
        },
    }  # fmt: skip
    for message, changes in wrong.items():
        path.write_bytes(signed(small_header(**changes)))
        with pytest.raises(FileFormatError, match=message):
            read_model(path)
    # an array that is said to lie outside of the file
    header = small_header() | {"x": {"dtype": "F64", "shape": [9], "data_offsets": [0, 72]}}
    path.write_bytes(signed(header, bytes(8)))
    with pytest.raises(FileFormatError, match="is not a fieldfit-model file"):
        read_model(path)


# -- the file itself ----------------------------------------------------------------------


def test_equal_models_give_equal_bytes(tmp_path):
    write_small(tmp_path / "first")
    write_small(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_any_reader_of_safetensors_reads_the_arrays(tmp_path):
    write_small(tmp_path / "model")
    arrays = load_file(tmp_path / "model")
    np.testing.assert_array_equal(arrays["arrays.weights"], [1.5, -2.0])


def test_the_new_file_is_on_the_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda n: (events.append("flush"), fsync(n)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("rename"), replace(a, b)))
    write_small(tmp_path / "model")
    assert events == ["flush", "rename", "flush"]


def test_the_folder_must_exist(tmp_path):
    with pytest.raises(InvalidInputError, match="path must be a file in a folder that exists"):
        write_small(tmp_path / "missing" / "model")


def test_options_that_were_renamed_are_read_under_their_old_names():
    arrays = {}
    stored = encode(ff.FrankWolfe(keep_active_set=False), arrays)
    stored["fields"]["is_stored"] = stored["fields"].pop("keep_active_set")
    assert decode(stored, arrays) == ff.FrankWolfe(keep_active_set=False)
