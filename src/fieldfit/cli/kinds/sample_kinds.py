"""Ising and Potts models on the command line: joint observations in tables or alignments."""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

from fieldfit._registry import OBJECTIVES_OF
from fieldfit.cli._options import number, words
from fieldfit.cli.kinds.base import Answer, Data, Kind, Report, Table
from fieldfit.cli.kinds.sample_files import SampleReader, read_edges

__all__ = ["IsingKind", "PottsKind"]

#: The estimators compute errors by inverting a matrix of this order: a second.
MAX_WEIGHTS_WITH_ERRORS = 1500


class _SampleKind(Kind):
    """What Ising and Potts models have in common."""

    objectives = OBJECTIVES_OF["pairwise"]
    has_shards = True

    def add_options(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(
            "--columns",
            metavar="A,B",
            nargs="+",
            type=words,
            help="columns to use, separated by commas or spaces (default: all)",
        )
        parser.add_argument(
            "--drop",
            metavar="A,B",
            nargs="+",
            type=words,
            help="columns not to use, such as a group",
        )
        parser.add_argument(
            "--edges", metavar="F", help="CSV file of pairs of columns (default: all pairs)"
        )

    def reader(self, args: argparse.Namespace) -> SampleReader:
        columns = None if args.columns is None else tuple(chain(*args.columns))
        drop = tuple(chain(*(args.drop or ())))
        if columns is not None:
            columns = tuple(name for name in columns if name not in drop)
        return SampleReader(columns, drop)

    def stored_reader(self, model: Any) -> SampleReader:
        reader = SampleReader.from_notes(getattr(model, "notes_", {}).get("reader", {}))
        names = getattr(model, "feature_names_in_", None)
        if reader.columns is None and names is not None:
            reader = replace(reader, columns=tuple(map(str, names)))
        return reader

    def fit(
        self, estimator: Any, data: Data, validation: Data | None, args: argparse.Namespace
    ) -> None:
        estimator.fit(
            data.examples,
            **self.fit_options(args, data),
            checkpoint=args.checkpoint,
            validation=None if validation is None else validation.examples,
            client=args.client,
        )

    def fit_options(self, args: argparse.Namespace, data: Data) -> dict[str, Any]:
        edges = None if args.edges is None else read_edges(args.edges, data.columns)
        return {"edges": edges, "sample_weight": self.sample_weight(args)}

    def sample_weight(self, args: argparse.Namespace) -> str | None:
        """What the estimator's ``sample_weight`` is."""
        return None

    def accuracy(self, model: Any, data: Data) -> float | None:
        return None

    def predict(self, model: Any, data: Data, args: argparse.Namespace) -> Answer:
        from fieldfit.cli.kinds.sample_answers import log_likelihoods, missing_marginals

        if args.marginals:
            return missing_marginals(model, data, self.value_names(model))
        return log_likelihoods(model, data)

    def score(self, model: Any, data: Data) -> Report:
        from fieldfit.cli.kinds.sample_answers import score_samples

        return score_samples(model, data)

    def value_names(self, model: Any) -> list[str]:
        """How the labels are written in files."""
        return [str(value) for value in range(model._parameters.n_labels)]

    def report_names(self, model: Any) -> dict[str, Any]:
        return {"label_names": self.value_names(model)}

    def describe(self, model: Any) -> dict[str, Any]:
        return {"n_variables": model.n_features_in_, "n_couplings": len(model.edges_)}


class IsingKind(_SampleKind):
    """``fieldfit fit ising``."""

    name = "ising"
    estimator = "IsingModel"
    sentence = "couplings of binary variables, with standard errors"
    data = "a CSV table of 0 and 1 (or numbers and --threshold), NA where missing"
    example = "fieldfit fit ising --train symptoms.csv --threshold 3 --model network.ff"
    defaults: ClassVar[dict[str, Any]] = {
        "objective": "pseudolikelihood", "l2": 0.01, "l1": 0.0, "max_iter": 1000, "tol": 1e-6,
        "encoding": "binary",
    }  # fmt: skip

    def add_options(self, parser: argparse._ActionsContainer) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--threshold",
            metavar="X",
            type=number("that is finite", lambda x: True),
            help="values of at least X become 1, others 0",
        )
        parser.add_argument(
            "--encoding",
            choices=("binary", "spin"),
            default="binary",
            help="values are 0 and 1 (default), or -1 and 1",
        )

    def parameters(self, args: argparse.Namespace, reader: Any) -> dict[str, Any]:
        return {"encoding": args.encoding}

    def reader(self, args: argparse.Namespace) -> SampleReader:
        return replace(super().reader(args), threshold=args.threshold)

    def finish(self, model: Any, args: argparse.Namespace) -> dict[str, Any]:
        """Compute the standard errors, so that they are in the model file."""
        is_small = len(model.weights_) <= MAX_WEIGHTS_WITH_ERRORS and args.shards is None
        if model.l1 == 0.0 and is_small and model._objective().is_conservative:
            assert len(model.standard_errors_)
            return {"standard_errors": True}
        return {"standard_errors": False}

    def value_names(self, model: Any) -> list[str]:
        return ["0", "1"] if model.encoding == "binary" else ["-1", "1"]

    def strongest(self, model: Any, count: int) -> list[Table]:
        import numpy as np

        names, n = model._names(), model.n_features_in_
        errors = None if model._covariance is None else model.standard_errors_

        def row(key: str, name: str, index: int) -> dict[str, Any]:
            found = {key: name, "estimate": float(model.weights_[index])}
            return found if errors is None else found | {"error": float(errors[index])}

        order = np.argsort(-np.abs(model.weights_[n:]), kind="stable")[:count]
        pairs = [f"{names[i]} - {names[j]}" for i, j in model.edges_[order]]
        couplings = [row("coupling", p, n + int(e)) for p, e in zip(pairs, order, strict=True)]
        # all of them: an order by size says nothing
        thresholds = [row("threshold", name, k) for k, name in enumerate(names)] if count else []
        return [
            Table("strongest couplings", couplings, len(model.edges_)),
            Table("thresholds", thresholds, n),
        ]


class PottsKind(_SampleKind):
    """``fieldfit fit potts``."""

    name = "potts"
    estimator = "PottsModel"
    sentence = "couplings of variables with several labels, such as columns of an alignment"
    data = (
        "an alignment (FASTA, A2M, A3M, Stockholm), or a CSV table of labels 0, 1, 2, ... with NA "
        "where missing"
    )
    example = (
        "fieldfit fit potts --train family.fasta --l2 100 --identity 0.8 --model family.ff "
        "--contacts contacts.csv"
    )
    defaults: ClassVar[dict[str, Any]] = {
        "objective": "pseudolikelihood", "l2": 1.0, "l1": 0.0, "max_iter": 500, "tol": 1e-4,
    }  # fmt: skip

    def add_options(self, parser: argparse._ActionsContainer) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--identity",
            metavar="X",
            type=number("above 0 and at most 1", lambda x: 0 < x <= 1),
            help="weigh sequences by one over the number of those that are equal in this share "
            "of columns (0.8, say)",
        )
        parser.add_argument(
            "--contacts",
            metavar="F",
            help="write the scores of all pairs (CSV); the first column of an alignment is 1",
        )
        parser.add_argument(
            "--alphabet",
            metavar="LETTERS",
            help="of an alignment, --alphabet=-ACGT, say (default: gap and amino acids)",
        )
        parser.add_argument(
            "--unknown", metavar="LETTER", help="read letters outside the alphabet as this one"
        )

    def parameters(self, args: argparse.Namespace, reader: Any) -> dict[str, Any]:
        given: dict[str, Any] = {} if args.identity is None else {"identity": args.identity}
        if reader.alphabet is not None:  # letters that do not occur may do so in prediction
            given["n_labels"] = len(reader.alphabet)
        return given

    def reader(self, args: argparse.Namespace) -> SampleReader:
        return replace(super().reader(args), alphabet=args.alphabet, unknown=args.unknown)

    def fit_options(self, args: argparse.Namespace, data: Data) -> dict[str, Any]:
        edges = None if args.edges is None else read_edges(args.edges, data.columns)
        return {"edges": edges, "sample_weight": self.sample_weight(args)}

    def sample_weight(self, args: argparse.Namespace) -> str | None:
        return None if args.identity is None else "identity"

    def check_shards(self, args: argparse.Namespace) -> None:
        from fieldfit.errors import InvalidInputError

        if args.identity is not None:
            raise InvalidInputError(
                f"--identity must not be given for shards, because it compares all sequences with "
                f"each other, got {args.identity:g}"
            )

    def output_files(self, args: argparse.Namespace) -> dict[str, str | None]:
        return {"--contacts": args.contacts}

    def finish(self, model: Any, args: argparse.Namespace) -> dict[str, Any]:
        if args.contacts is None:
            return {}
        from fieldfit.io._atomic_file import write_atomically

        rows = self.strongest(model, len(model.edges_))[0].rows
        lines = ["first,second,score,norm\n"]
        lines += [
            f"{row['first']},{row['second']},{row['score']:.8g},{row['norm']:.8g}\n" for row in rows
        ]
        write_atomically(args.contacts, ["".join(lines).encode()])
        return {"contacts": args.contacts}

    def value_names(self, model: Any) -> list[str]:
        alphabet = self.stored_reader(model).alphabet
        return super().value_names(model) if alphabet is None else list(alphabet)

    def describe(self, model: Any) -> dict[str, Any]:
        return super().describe(model) | {"n_labels": model._parameters.n_labels}

    def strongest(self, model: Any, count: int) -> list[Table]:
        """Pairs by their corrected score (`PottsModel.contact_scores`)."""
        import numpy as np

        names = model._names()
        first, second = model.edges_[:, 0], model.edges_[:, 1]
        scores = model.contact_scores()[first, second]
        norms = model.contact_scores(correction=None)[first, second]
        order = np.argsort(-scores, kind="stable")[:count]
        rows = [
            {
                "first": names[first[e]],
                "second": names[second[e]],
                "score": float(scores[e]),
                "norm": float(norms[e]),
            }
            for e in order
        ]
        is_alignment = self.stored_reader(model).alphabet is not None
        note = "columns of the alignment, the first is 1" if is_alignment else ""
        return [Table("strongest pairs", rows, len(model.edges_), note)]
