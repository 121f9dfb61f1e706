"""Chains on the command line: labelled sequences in CRFsuite files or columns."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from fieldfit.cli._options import count, number
from fieldfit.cli.kinds.base import Answer, Data, Kind, NamedBytes, Reader, Report, open_source
from fieldfit.cli.kinds.token_features import FEATURES, token_attributes

__all__ = ["ChainKind", "SequenceReader", "SkipChainKind"]

FORMATS = ("crfsuite", "columns")
#: Lines by which a format is recognised.
LINES_LOOKED_AT = 1000
#: The entry of a token that says what it is linked by; no attribute of a file has this name.
LINK = "\x00link"


@dataclass(frozen=True)
class SequenceReader(Reader):
    """CRFsuite files (attributes as they are) and column files (attributes made from columns).

    ``column`` is that of the labels, counted from 1, ``None`` is the last one; ``n_columns`` is
    found out from the first file.  ``link`` says which tokens a skip-chain links.
    """

    format: str | None = None
    column: int | None = None
    n_columns: int | None = None
    features: str = "window"
    window: int = 2
    link: str | None = None
    link_prefix: str = "w[0]="

    def read(self, paths: Sequence[str], *, with_labels: bool = True) -> tuple[Self, Data]:
        reader = self
        examples: list[Any] = []
        labels: list[Any] = []
        places: list[tuple[str, int]] = []
        for path in paths:
            source = open_source(path)
            if reader.format is None:
                reader = replace(reader, format=detect_format(source.getvalue()))
            if reader.format == "crfsuite":
                found = reader._read_crfsuite(source)
            else:
                reader, found = reader._read_columns(source, with_labels)
            examples += found[0]
            labels += found[1]
            places += [(source.name, line) for line in found[2]]
        if reader.link is not None:
            examples = [reader._linked(tokens) for tokens in examples]

        def place(index: int, position: int | None = None) -> str:
            name, line = places[index]
            return f"{name}, line {line + (position or 0)}"

        tokens = sum(map(len, examples))
        data = Data(
            files=paths,
            examples=examples,
            labels=labels if with_labels else None,
            place=place,
            summary=f"{len(examples)} sequences, {tokens} tokens ({reader.format} format)",
        )
        return reader, data

    def _linked(self, tokens: list[Any]) -> list[dict[str, Any]]:
        """Tokens as dictionaries, with an entry for what they are linked by."""
        found = []
        for token in tokens:
            entries = dict(token) if isinstance(token, dict) else dict.fromkeys(token, True)
            for name in entries:
                value = name.removeprefix(self.link_prefix)
                if value != name and (self.link == "words" or value[:1].isupper()):
                    entries[LINK] = value
                    break
            found.append(entries)
        return found

    def _read_crfsuite(self, source: NamedBytes) -> tuple[list[Any], list[Any], list[int]]:
        from fieldfit.io.sequences import read_crfsuite

        examples, labels = read_crfsuite(source)
        # a line with a tab alone is a token without label and attributes
        return examples, labels, first_lines(source, blanks=" ")

    def _read_columns(
        self, source: NamedBytes, with_labels: bool
    ) -> tuple[Self, tuple[list[Any], list[Any], list[int]]]:
        from fieldfit.errors import FileFormatError
        from fieldfit.io.sequences import read_columns

        sequences = read_columns(source)
        width = len(sequences[0][0])
        n_columns = width if self.n_columns is None else self.n_columns
        column = n_columns if self.column is None else self.column
        reader = replace(self, n_columns=n_columns, column=column)
        # a file to predict may come without the column of labels
        has_labels = width == n_columns
        if not has_labels and (with_labels or width != n_columns - 1):
            wanted = f"{n_columns}" if with_labels else f"{n_columns - 1} or {n_columns}"
            raise FileFormatError(f"{source.name}: expected {wanted} columns, found {width}")
        if n_columns < 2 or column > n_columns:
            raise FileFormatError(
                f"{source.name}: expected at least {max(column, 2)} columns, of which number "
                f"{max(column, 2)} has the labels, found {n_columns}"
            )
        labels: list[Any] = []
        examples: list[Any] = []
        for rows in sequences:
            if has_labels:
                labels.append([row[column - 1] for row in rows])
                rows = [row[: column - 1] + row[column:] for row in rows]
            examples.append(token_attributes(rows, self.features, self.window))
        return reader, (examples, labels, first_lines(source))


def detect_format(data: bytes) -> str:
    """CRFsuite files have tabs between attributes; their number differs, or all have ``=``."""
    lines = [line for line in data.split(b"\n", LINES_LOOKED_AT)[:LINES_LOOKED_AT] if line.strip()]
    fields = [line.rstrip(b"\r\n").split(b"\t") for line in lines]
    if max((len(found) for found in fields), default=1) == 1:
        return "columns"
    if len({len(found) for found in fields}) > 1:
        return "crfsuite"
    named = all(b"=" in field or b":" in field for found in fields for field in found[1:])
    return "crfsuite" if named else "columns"


def first_lines(source: NamedBytes, blanks: str | None = None) -> list[int]:
    """Numbers of the lines on which sequences begin; others hold nothing but ``blanks``."""
    from fieldfit.io.sequences import decoded_lines

    source.seek(0)
    _, lines = decoded_lines(source)
    is_token = [bool(line.strip(blanks)) for line in lines]
    return [
        position + 1
        for position, (before, here) in enumerate(zip([False, *is_token], is_token, strict=False))
        if here and not before
    ]


# -- the kinds ----------------------------------------------------------------------------


class ChainKind(Kind):
    """``fieldfit fit chain``."""

    name = "chain"
    estimator = "ChainCRF"
    has_shards = True
    sentence = "labels of the tokens of sequences"
    data = (
        "CRFsuite files (label, tab, attribute, tab, attribute, ...) or columns (token, tags, "
        "label, separated by blanks), blank lines between sequences"
    )
    example = "fieldfit fit chain --train train.txt --objective likelihood --model chunks.ff"
    defaults: ClassVar[dict[str, Any]] = {
        "objective": "likelihood", "l2": 1.0, "l1": 0.0, "max_iter": 200, "tol": 1e-5,
        "min_freq": 0,
    }  # fmt: skip

    def add_options(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(
            "--format", choices=FORMATS, help="of the files (default: seen from the first one)"
        )
        parser.add_argument(
            "--column",
            metavar="N",
            type=count(1),
            help="number of the column with labels, from 1 (default: the last one)",
        )
        parser.add_argument(
            "--features",
            choices=FEATURES,
            default="window",
            help="attributes made from columns: the token's own columns; words and tags in a "
            "window (default); these and the spelling of the word",
        )
        parser.add_argument(
            "--window",
            metavar="N",
            type=count(0),
            default=2,
            help="tokens before and behind that attributes are made from (default: 2)",
        )
        parser.add_argument(
            "--min-frequency",
            metavar="N",
            type=number("of at least 0", lambda x: x >= 0),
            default=0,
            help="drop attributes of a label that occur less often (default: 0)",
        )
        parser.add_argument(
            "--all-possible-transitions",
            action="store_true",
            help="weights for pairs of labels that do not occur in training, too",
        )
        parser.add_argument(
            "--boundary-weights",
            action="store_true",
            help="weights for labels at the beginning and at the end",
        )
        parser.add_argument(
            "--decode",
            choices=("marginals", "map"),
            help="likeliest labels, or likeliest sequence (default: as the objective means)",
        )
        parser.add_argument(
            "--batch-size", metavar="N", type=count(1), help="sequences in a mini-batch"
        )

    def parameters(self, args: argparse.Namespace, reader: Any) -> dict[str, Any]:
        names = ("all_possible_transitions", "boundary_weights", "decode", "batch_size")
        given = {name: getattr(args, name) for name in names}
        return given | {"min_freq": args.min_frequency}

    def reader(self, args: argparse.Namespace) -> SequenceReader:
        return SequenceReader(
            format=args.format, column=args.column, features=args.features, window=args.window
        )

    def stored_reader(self, model: Any) -> SequenceReader:
        notes = getattr(model, "notes_", {}).get("reader")
        if notes is None:
            # how a program made its attributes is not known: only files that have them will do
            return SequenceReader(format="crfsuite")
        return SequenceReader.from_notes(notes)

    def predict(self, model: Any, data: Data, args: argparse.Namespace) -> Answer:
        found = [labels.tolist() for labels in model.predict(data.examples)]
        fields: dict[str, Any] = {"labels": found}
        rows = [[str(label) for label in labels] for labels in found]
        if args.marginals:
            marginals = [beliefs.tolist() for beliefs in model.predict_marginals(data.examples)]
            names = [str(name) for name in model.classes_.tolist()]
            fields |= {"classes": model.classes_.tolist(), "marginals": marginals}
            for labels, beliefs in zip(rows, marginals, strict=True):
                for t, row in enumerate(beliefs):
                    shown = [f"{name}:{p:.6g}" for name, p in zip(names, row, strict=True)]
                    labels[t] = "\t".join([labels[t], *shown])
        text = "\n".join("".join(f"{line}\n" for line in labels) for labels in rows)
        return Answer.of_text(fields, text)

    def score(self, model: Any, data: Data) -> Report:
        from fieldfit.cli.kinds.sequence_scores import score_sequences

        return score_sequences(model, data)

    def describe(self, model: Any) -> dict[str, Any]:
        return {"n_attributes": len(model.attributes_), "labels": model.classes_.tolist()}


class SkipChainKind(ChainKind):
    """``fieldfit fit skip-chain``."""

    name = "skip-chain"
    estimator = "SkipChainCRF"
    has_shards = False
    sentence = "labels of the tokens of sequences, in which equal words are linked"
    example = "fieldfit fit skip-chain --train mails.txt --objective trw --model mails.ff"
    defaults: ClassVar[dict[str, Any]] = ChainKind.defaults | {
        "objective": "trw", "max_links": 10, "skip_table": "symmetric",
    }  # fmt: skip

    def add_options(self, parser: argparse._ActionsContainer) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--link",
            choices=("capitalised", "words"),
            default="capitalised",
            help="link equal words of a sequence that begin with a capital (default), or all",
        )
        parser.add_argument(
            "--link-prefix",
            metavar="TEXT",
            default="w[0]=",
            help="how the attribute begins that has the word (default: w[0]=)",
        )
        parser.add_argument(
            "--max-links",
            metavar="N",
            type=count(2),
            default=10,
            help="link more than N equal words in a row, not pair by pair (default: 10)",
        )
        parser.add_argument(
            "--skip-table",
            choices=("symmetric", "full", "potts", "potts-labels"),
            default="symmetric",
            help="table of linked tokens (default: symmetric)",
        )
        parser.add_argument(
            "--edge-features",
            action="store_true",
            help="tables of neighbours and of linked tokens that depend on their attributes",
        )

    def parameters(self, args: argparse.Namespace, reader: Any) -> dict[str, Any]:
        names = ("max_links", "skip_table", "edge_features")
        given = {name: getattr(args, name) for name in names}
        return super().parameters(args, reader) | given | {"skip_edges": LINK}

    def reader(self, args: argparse.Namespace) -> SequenceReader:
        return replace(super().reader(args), link=args.link, link_prefix=args.link_prefix)

    def stored_reader(self, model: Any) -> SequenceReader:
        from fieldfit.errors import InvalidInputError

        reader = super().stored_reader(model)
        if reader.link is None:
            raise InvalidInputError(
                "--model must be a skip-chain that fieldfit fit has written, because files do not "
                "say which tokens are linked, got one that a program has written"
            )
        return reader
