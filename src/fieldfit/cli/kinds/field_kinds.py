"""Grids and graphs on the command line: a label (an integer) for every pixel or node."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fieldfit.cli._options import choices_by_name, count, word_pair
from fieldfit.cli.kinds.base import Answer, Data, Kind, Reader, Report, open_source

__all__ = ["GraphKind", "GridKind"]

PAIRWISE = ("auto", "full", "symmetric", "potts", "potts-labels")
FACTOR_TABLES = (*PAIRWISE, "robust-potts")


class _FieldKind(Kind):
    """What grids and graphs have in common."""

    #: What has a label.
    unit: ClassVar[str]
    #: Tables of neighbours, unless told otherwise.
    tables: ClassVar[str]
    has_shards = True

    def add_options(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(
            "--pairwise",
            choices=PAIRWISE,
            default="auto",
            help=f"tables of neighbours (default: {self.tables}; Potts for features)",
        )
        parser.add_argument(
            "--unary",
            choices=("auto", "full", "scale"),
            default="auto",
            help="a weight for each feature and label (full), or one factor of given scores of the "
            "labels (scale); default: scale if features are log-probabilities of the labels",
        )
        parser.add_argument(
            "--n-labels", metavar="K", type=count(2), help="labels are 0..K-1 (default: as seen)"
        )
        parser.add_argument(
            "--decode",
            choices=("marginals", "map"),
            help="labels of largest belief, or jointly best (default: as the objective means)",
        )
        parser.add_argument(
            "--batch-size", metavar="N", type=count(1), help="examples in a mini-batch"
        )

    def parameters(self, args: argparse.Namespace, reader: Any) -> dict[str, Any]:
        names = ("pairwise", "unary", "n_labels", "decode", "batch_size")
        return {name: getattr(args, name) for name in names}

    def score(self, model: Any, data: Data) -> Report:
        import numpy as np

        from fieldfit.cli._evaluation import LabelCounts
        from fieldfit.cli._output import format_pairs
        from fieldfit.errors import InvalidInputError

        assert data.labels is not None
        for index, label in enumerate(data.labels):
            if label.max(initial=-1) >= model.n_labels_:
                raise InvalidInputError(
                    f"{data.place(index)}: labels must be in 0..{model.n_labels_ - 1} as in the "
                    f"model, got {label.max()}"
                )
        given = np.concatenate([label.reshape(-1) for label in data.labels])
        if not (given >= 0).any():
            raise InvalidInputError(f"{data.place(0)}: there must be a label to score against")
        predicted = np.concatenate([found.reshape(-1) for found in model.predict(data.examples)])
        counts = LabelCounts.of(given, predicted, [str(k) for k in range(model.n_labels_)])
        fields = {
            "n_examples": len(data.labels),
            "n_labels": counts.n_labels,
            "accuracy": counts.accuracy,
            "mean_iou": counts.mean_iou,
            "labels": counts.rows(),
        }
        pairs = {
            "examples": f"{len(data.labels)}, {counts.n_labels} labelled {self.unit}",
            "accuracy": counts.accuracy,
            "mean IoU": counts.mean_iou,
        }
        return Report(fields, f"{format_pairs(pairs)}\n\n{counts.table(with_iou=True)}")

    def describe(self, model: Any) -> dict[str, Any]:
        return {"n_labels": model.n_labels_, "n_features": model.n_features_in_}


# -- grids --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageReader(Reader):
    """Archives and folders of PNG files."""

    arrays: tuple[str, str] | None = None
    missing: int = 255

    def read(self, paths: Sequence[str], *, with_labels: bool = True) -> tuple[Self, Data]:
        from fieldfit.io.images import read_images

        names = None if self.arrays is None else (self.arrays[0], self.arrays[1])
        parts = [
            read_images(path, with_labels=with_labels, missing=self.missing, arrays=names)
            for path in paths
        ]
        places = [place for part in parts for place in part.places]
        images = [image for part in parts for image in part.images]
        labels = [label for part in parts for label in part.labels or ()]
        data = Data(
            files=paths,
            examples=images,
            labels=labels if with_labels else None,
            place=lambda index, position=None: places[index],
            summary=f"{len(images)} images, {sum(image[..., 0].size for image in images)} pixels",
        )
        return self, data


class GridKind(_FieldKind):
    """``fieldfit fit grid``."""

    name = "grid"
    estimator = "GridCRF"
    sentence = "labels of pixels, given images"
    data = (
        "an .npz archive with x (n, height, width[, features]) and y (n, height, width), or a "
        "folder with images/NAME.png and labels/NAME.png"
    )
    example = "fieldfit fit grid --train scenes.npz --objective trw --model scenes.ff"
    unit = "pixels"
    tables = "full"
    defaults: ClassVar[dict[str, Any]] = {
        "objective": "trw", "l2": "auto", "l1": 0.0, "max_iter": 200, "tol": 1e-5,
        "pairwise": "auto", "unary": "auto", "neighbors": 4, "directions": "separate",
    }  # fmt: skip

    def add_options(self, parser: argparse._ActionsContainer) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--neighbors", type=int, choices=(4, 8), default=4, help="of a pixel (default: 4)"
        )
        parser.add_argument(
            "--directions",
            choices=("separate", "shared"),
            default="separate",
            help="tables for each direction (default), or the same for all",
        )
        parser.add_argument(
            "--edge-features",
            action="store_true",
            help="tables depend on how much the features of neighbours differ",
        )
        parser.add_argument(
            "--arrays",
            metavar="X,Y",
            type=word_pair,
            help="names of the arrays in an archive (default: x,y or X,Y)",
        )
        parser.add_argument(
            "--missing",
            metavar="N",
            type=int,
            default=255,
            help="label of pixels that are not labelled, besides -1 (default: 255)",
        )

    def parameters(self, args: argparse.Namespace, reader: Any) -> dict[str, Any]:
        names = ("neighbors", "directions", "edge_features")
        return super().parameters(args, reader) | {name: getattr(args, name) for name in names}

    def reader(self, args: argparse.Namespace) -> Reader:
        return ImageReader(args.arrays, args.missing)

    def stored_reader(self, model: Any) -> Reader:
        return ImageReader.from_notes(getattr(model, "notes_", {}).get("reader", {}))

    def predict(self, model: Any, data: Data, args: argparse.Namespace) -> Answer:
        labels = model.predict(data.examples)
        marginals = model.predict_marginals(data.examples) if args.marginals else None
        fields: dict[str, Any] = {"labels": [label.tolist() for label in labels]}
        if marginals is not None:
            fields["marginals"] = [beliefs.tolist() for beliefs in marginals]

        def write(path: str) -> None:
            from fieldfit.io.images import write_image_archive

            if path.endswith(".npz"):
                write_image_archive(path, labels, marginals)
            else:
                names = [_picture_name(data.place(k), k) for k in range(len(labels))]
                _write_folder(path, names, labels, marginals)

        return Answer(fields, None, write)


def _picture_name(place: str, index: int) -> str:
    """Name of the predicted picture: that of the image, if it was a file of its own."""
    is_picture = place.lower().endswith(".png")
    return os.path.basename(place)[:-4] if is_picture else f"image_{index:05d}"


def _write_folder(folder: str, names: list[str], labels: Any, marginals: Any) -> None:
    """PNG files with labels and, beside each, an archive with marginals."""
    from fieldfit.errors import InvalidInputError
    from fieldfit.io.images import write_image_archive, write_label_images

    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError(
            f"images must have different names to be written to one folder, got {twice}.png twice"
        )
    write_label_images(folder, [f"{name}.png" for name in names], labels)
    for k, name in enumerate(names if marginals is not None else ()):
        path = os.path.join(folder, f"{name}.npz")
        write_image_archive(path, labels[k : k + 1], marginals[k : k + 1])


# -- graphs -------------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphReader(Reader):
    """JSON, one graph on each line."""

    def read(self, paths: Sequence[str], *, with_labels: bool = True) -> tuple[Self, Data]:
        from fieldfit.io.graphs import read_graphs

        parts = [read_graphs(open_source(path), with_labels=with_labels) for path in paths]
        places = [place for part in parts for place in part.places]
        graphs = [graph for part in parts for graph in part.graphs]
        labels = [label for part in parts for label in part.labels or ()]
        data = Data(
            files=paths,
            examples=graphs,
            labels=labels if with_labels else None,
            place=lambda index, position=None: places[index],
            summary=f"{len(graphs)} graphs, {sum(len(graph[0]) for graph in graphs)} nodes",
        )
        return self, data


class GraphKind(_FieldKind):
    """``fieldfit fit graph``."""

    name = "graph"
    estimator = "GraphCRF"
    sentence = "labels of nodes, given their features and edges"
    data = (
        'JSON, one graph on each line: {"nodes": [[0.5, 1.0], ...], "edges": [[0, 1], ...], '
        '"edge_features": [[0.3], ...] (optional), "labels": [0, 1, ...]}; factors of more nodes '
        'stand under names of your choice, "factors": {"triples": [[0, 1, 2], ...]}, or with '
        'features, "factors": {"triples": {"scopes": [[0, 1, 2], ...], "features": [[0.5], ...]}}'
    )
    example = "fieldfit fit graph --train graphs.jsonl --objective bethe --model graphs.ff"
    unit = "nodes"
    tables = "symmetric"
    defaults: ClassVar[dict[str, Any]] = {
        "objective": "trw", "l2": "auto", "l1": 0.0, "max_iter": 200, "tol": 1e-5,
        "pairwise": "auto", "unary": "auto",
    }  # fmt: skip

    def add_options(self, parser: argparse._ActionsContainer) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--factors",
            metavar="TYPE=TABLES,...",
            type=choices_by_name(FACTOR_TABLES),
            help=f"tables of types of factors, of {', '.join(FACTOR_TABLES)}, such as "
            "triples=potts (default: auto, which is symmetric up to 1000 weights, then "
            "robust-potts, and potts for features)",
        )

    def parameters(self, args: argparse.Namespace, reader: Any) -> dict[str, Any]:
        return super().parameters(args, reader) | {"factors": args.factors}

    def reader(self, args: argparse.Namespace) -> Reader:
        return GraphReader()

    def stored_reader(self, model: Any) -> Reader:
        return GraphReader()

    def describe(self, model: Any) -> dict[str, Any]:
        factors = [
            f"{name}: {kind.arity} nodes, {kind.n_features} features, "
            f"tables {model._forms(name)[0]}"
            for name, kind in model.factor_types_.items()
            if name != "edges"
        ]
        about = super().describe(model) | {"n_edge_features": model.n_edge_features_}
        return about | {"factors": factors} if factors else about

    def predict(self, model: Any, data: Data, args: argparse.Namespace) -> Answer:
        import json

        labels = model.predict(data.examples)
        fields: dict[str, Any] = {"labels": [label.tolist() for label in labels]}
        if args.marginals:
            found = model.predict_marginals(data.examples)
            fields["marginals"] = [beliefs.tolist() for beliefs in found]
        lines = [
            json.dumps({name: values[k] for name, values in fields.items()}) + "\n"
            for k in range(len(labels))
        ]
        return Answer.of_text(fields, "".join(lines))
