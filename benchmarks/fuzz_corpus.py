"""The formats that `benchmarks.fuzz` mutates: small files made by code, and how each is read.

A *format* has examples that can be read, and a reader of bytes.  Containers (model files and
checkpoints) are mutated twice over: as bytes, which their digest must notice, and in what they
hold, with a right digest.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fieldfit as ff
from benchmarks.fuzz_mutations import mutated_bytes, mutated_stored
from fieldfit.cli.kinds.base import NamedBytes
from fieldfit.io._container import read_container, write_container
from fieldfit.io.graphs import read_graphs
from fieldfit.io.images import read_image_archive, read_image_folder
from fieldfit.io.matchings import read_matchings
from fieldfit.io.sequences import read_crfsuite

__all__ = ["Format", "formats"]


@dataclass(frozen=True)
class Format:
    """A name, examples, how they are mutated and read."""

    name: str
    examples: tuple[bytes, ...]
    mutate: Callable[[bytes, np.random.Generator, bytes], bytes]
    read: Callable[[bytes], Any]


def formats(folder: Path) -> list[Format]:
    """Every format that the package reads; those that need files write them into a folder."""
    return [*_texts(), *_archives(folder), *_pictures(folder), *_containers(folder)]


# -- text ----------------------------------------------------------------------------------------

UAI = b"MARKOV\n3\n2 2 3\n3\n1 0\n2 0 1\n2 1 2\n\n2\n 0.5 1e-3\n4\n 4.0 1 1.0 2\n6\n 1 1 0 1 2 3\n"
BAYES = b"BAYES 2 2 2 2 1 0 2 0 1 2 0.25 0.75 4 0.5 0.5 0.1 0.9\n"
FG = b"2\n\n2\n0 1\n2 3\n4\n0 4.0\n1 1.0\n3 2.5\n5 1e-3\n\n1\n2\n2\n2\n0 1.0 # a comment\n1 0.5\n"
CSV = b"first,second,third\n0,1,NA\n1,0,1\n0,,1\n1,1,0\n"
NUMBERS = b"0,1,2\n2,1,0\n1,1,1\n"
FASTA = b">one\nACDEF\nGH-\n>two\nACDEFGHI\n>three\nA-DEFGHI\n"
A3M = b">one\nACDEF\n>two\nAC.dD-eF\n>three\n-CaDEF\n"
STOCKHOLM = (
    b"# STOCKHOLM 1.0\n#=GF ID family\n\none/1-3  ACD\ntwo      A-D\n#=GC RF   xxx\n\n"
    b"one/1-3  EF.\ntwo      EFa\n//\n"
)
COLUMNS = b"He PRP B-NP\nreckons VBZ B-VP\n\nSo RB O\nit PRP B-NP\n"
CRFSUITE = b"NOUN\tw=dog\tlength:3\nVERB\tw=\\:\\\\x\n\nNOUN\tw=cat\tlength:3\n\tw=unlabelled\n"
GRAPHS = (
    b'{"nodes": [[0.5, 1], [0.1, 2]], "edges": [[0, 1]], "edge_features": [[0.3]], "labels": '
    b'[0, 1]}\n{"nodes": [[1, 2], [3, 4], [5, 6]], "edges": [], "labels": [null, 1, -1]}\n'
)
MATCHINGS = b"example,row,column,matched,age\n0,a,x,1,0.5\n0,a,y,0,2\n0,b,y,1,1\n1,a,x,1,3\n"


def _texts() -> Iterator[Format]:
    graph = ff.FactorGraph([2, 2, 3], [(0, 1), (1, 2)])
    readers: dict[str, tuple[tuple[bytes, ...], Callable[[Any], Any]]] = {
        "uai model": ((UAI, BAYES), lambda source: _used(*ff.read_uai(source, max_memory=1e8))),
        "fg model": ((FG,), lambda source: _used(*ff.read_fg(source, max_memory=1e8))),
        "evidence": ((b"2 0 1 2 2\n", b"1 1 0 1\n", b"0"), ff.io.read_evidence),
        "evidence of a model": ((b"2 0 1 2 2\n",), lambda s: ff.io.read_evidence(s, graph)),
        "answer": (
            (b"MAR\n2 2 0.25 0.75 3 0.5 0.5 0\n", b"PR\n-1.5\n", b"MAP\n3 0 1 2\n"),
            ff.io.read_answer,
        ),
        "samples": ((CSV, NUMBERS), ff.io.read_samples),
        "fasta": ((FASTA,), ff.io.read_fasta),
        "fasta with unknown letters": ((FASTA,), lambda s: ff.io.read_fasta(s, unknown="-")),
        "alignment": ((A3M, STOCKHOLM, FASTA), ff.io.read_alignment),
        "columns": ((COLUMNS,), ff.io.read_columns),
        "crfsuite": ((CRFSUITE,), read_crfsuite),
        "graphs": ((GRAPHS,), read_graphs),
        "matchings": ((MATCHINGS,), read_matchings),
        "general matchings": ((MATCHINGS,), lambda s: read_matchings(s, general=True)),
    }
    for name, (examples, read) in readers.items():
        yield Format(name, examples, mutated_bytes, _of_bytes(name, read))


def _of_bytes(name: str, read: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    return lambda data: read(NamedBytes(data, name))


def _used(graph: ff.FactorGraph, potentials: ff.Potentials) -> None:
    """What was read must also be fit for use, if it is small."""
    if graph.table_offsets[-1] < 1000 and graph.n_variables < 20:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ff.SumProduct(max_iter=5).run(graph, potentials)


# -- archives and pictures -----------------------------------------------------------------------


def _archives(folder: Path) -> Iterator[Format]:
    rng = np.random.default_rng(0)
    path = folder / "archive.npz"

    def archive(**arrays: Any) -> bytes:
        memory = io.BytesIO()
        np.savez(memory, **arrays)
        return memory.getvalue()

    def read_images(data: bytes) -> Any:
        path.write_bytes(data)
        return read_image_archive(path)

    bytes_of_pixels = rng.integers(0, 256, (2, 3, 3), dtype=np.uint8)
    images = (
        archive(x=rng.normal(size=(2, 3, 3, 2)), y=rng.integers(-1, 3, (2, 3, 3))),
        archive(X=bytes_of_pixels, Y=np.full((2, 3, 3), 255, dtype=np.uint8)),
    )
    yield Format("image archive", images, mutated_bytes, read_images)
    partners = np.array([[0, 1], [1, 0]])
    matchings = (archive(features=rng.normal(size=(2, 2, 2, 3)), partners=partners),)
    read = _of_bytes("matching archive", read_matchings)
    yield Format("matching archive", matchings, mutated_bytes, read)


def _pictures(folder: Path) -> Iterator[Format]:
    from PIL import Image

    rng = np.random.default_rng(0)
    examples = []
    for pixels in (
        rng.integers(0, 256, (4, 5, 3), dtype=np.uint8),
        rng.integers(0, 3, (4, 5), dtype=np.uint8),
        rng.integers(0, 2**16, (4, 5), dtype=np.uint16),
    ):
        memory = io.BytesIO()
        Image.fromarray(pixels).save(memory, format="PNG")
        examples.append(memory.getvalue())
    for name in ("images", "labels"):
        (folder / "pictures" / name).mkdir(parents=True)

    def read(data: bytes) -> Any:
        (folder / "pictures" / "images" / "one.png").write_bytes(examples[0])
        (folder / "pictures" / "labels" / "one.png").write_bytes(data)
        found = read_image_folder(folder / "pictures")
        (folder / "pictures" / "images" / "one.png").write_bytes(data)
        read_image_folder(folder / "pictures")
        return found

    yield Format("picture", tuple(examples[1:]), mutated_bytes, read)


# -- model files and checkpoints -----------------------------------------------------------------


def _containers(folder: Path) -> Iterator[Format]:
    for name in _MODELS:
        yield from _model(name, folder)
    for name in _LEARNERS:
        yield from _checkpoint(name, folder)


_TOKENS = [[{"a": 1.0}, {"b": 1.0, "key": "k"}, {"a": 1.0, "key": "k"}]] * 2
_NAMES = [["x", "y", "x"]] * 2
_NODES = np.array([[1.0], [0.2], [-1.0]])
_GRAPHS = [(_NODES, [(0, 1), (1, 2)], [[0.5], [1.0]])] * 2
_LABELS = np.array([[[0, 1], [1, 0]], [[1, 1], [0, 0]]])
_SAMPLES = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]])
_PAIRS = np.random.default_rng(0).normal(size=(2, 2, 2, 1))
_PARTNERS = [[0, 1], [1, 0]]

#: An estimator with data, and what is done with it after it was loaded.
_MODELS: dict[str, tuple[Callable[[], Any], tuple[Any, ...], Callable[[Any], Any]]] = {
    "ChainCRF": (
        lambda: ff.ChainCRF(boundary_weights=True),
        (_TOKENS, _NAMES),
        lambda model: (model.predict(_TOKENS), model.top_weights(3)),
    ),
    "ChainCRF of matrices": (
        ff.ChainCRF,
        ([_NODES] * 2, _NAMES),
        lambda model: model.predict([_NODES]),
    ),
    "SkipChainCRF": (
        lambda: ff.SkipChainCRF("pseudolikelihood", skip_edges="key", edge_features=True),
        (_TOKENS, _NAMES),
        lambda model: model.predict(_TOKENS),
    ),
    "GridCRF": (
        lambda: ff.GridCRF("pseudolikelihood", neighbors=8, edge_features=[0]),
        (_LABELS + 0.1, _LABELS),
        lambda model: model.predict(_LABELS + 0.1),
    ),
    "GraphCRF": (
        lambda: ff.GraphCRF("pseudolikelihood"),
        (_GRAPHS, [[0, 1, 1]] * 2),
        lambda model: model.predict(_GRAPHS),
    ),
    "MatchingCRF": (
        lambda: ff.MatchingCRF("likelihood"),
        (_PAIRS, _PARTNERS),
        lambda model: model.predict(_PAIRS),
    ),
    "IsingModel": (ff.IsingModel, (_SAMPLES,), lambda model: model.score(_SAMPLES)),
    "PottsModel": (ff.PottsModel, (_SAMPLES,), lambda model: model.contact_scores()),
    "MixtureField": (
        ff.MixtureField,
        (_LABELS,),
        lambda model: model.predict(np.zeros((2, 2)), 0.5),
    ),
}
#: An estimator whose learner writes checkpoints.
_LEARNERS: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "LBFGS": (lambda: ff.GridCRF("pseudolikelihood", max_iter=3), (_LABELS + 0.1, _LABELS)),
    "Adam": (
        lambda: ff.GridCRF("perceptron", max_iter=3),
        (_LABELS + 0.1, _LABELS),
    ),
    "CamelRounds": (lambda: ff.GraphCRF("camel", max_iter=3), (_GRAPHS, [[0, 1, 1]] * 2)),
    "DualFrankWolfe": (
        lambda: ff.GraphCRF("mle-struct", l2=1.0, max_iter=3),
        (_GRAPHS, [[0, 1, 1]] * 2),
    ),
    "DualNewton": (lambda: ff.MatchingCRF("mle-struct", max_iter=2), (_PAIRS, _PARTNERS)),
}


def _model(name: str, folder: Path) -> Iterator[Format]:
    make, data, use = _MODELS[name]
    path = folder / "model.ff"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(ff.load(path))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make().fit(*data).save(path)
    example = (path.read_bytes(),)
    yield Format(f"bytes of a {name} file", example, mutated_bytes, read)
    yield Format(f"content of a {name} file", example, _forger(path, "fieldfit-model"), read)


def _checkpoint(name: str, folder: Path) -> Iterator[Format]:
    make, data = _LEARNERS[name]
    path = folder / "checkpoint.ff"

    def resume(content: bytes) -> None:
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # the rounds of CAMEL have no limit of their own that could be raised
            more = {} if name == "CamelRounds" else {"max_iter": 5}
            make().set_params(**more).fit(*data, checkpoint=path)

    path.unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make().fit(*data, checkpoint=path)
    example = (path.read_bytes(),)
    yield Format(f"bytes of a checkpoint of {name}", example, mutated_bytes, resume)
    forge = _forger(path, "fieldfit-checkpoint")
    yield Format(f"content of a checkpoint of {name}", example, forge, resume)


def _forger(path: Path, kind: str) -> Callable[[bytes, np.random.Generator, bytes], bytes]:
    """Changes what a container holds and signs it again."""

    @cache
    def content_of(data: bytes) -> tuple[Any, dict[str, np.ndarray]]:
        path.write_bytes(data)
        return read_container(path, kind, 1)

    def forge(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
        content, arrays = mutated_stored(*content_of(data), rng)
        write_container(path, kind, 1, content, arrays)
        return path.read_bytes()

    return forge
