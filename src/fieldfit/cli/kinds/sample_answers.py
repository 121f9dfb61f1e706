"""What Ising and Potts models say about samples: log-likelihoods, missing values, scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from fieldfit._typing import FloatArray, LabelMatrix
from fieldfit.cli._output import format_pairs
from fieldfit.cli.kinds.base import Answer, Data, Report
from fieldfit.errors import InvalidInputError, TooLargeError
from fieldfit.graph.batch import Batch
from fieldfit.inference.likelihood_bounds import log_partition_bounds
from fieldfit.objectives.pseudo_likelihood import PseudoLikelihood

__all__ = ["log_likelihoods", "missing_marginals", "score_samples"]

#: Entries of tables that are looked up at a time.
CHUNK = 2**22


# -- log-likelihoods ----------------------------------------------------------------------


def log_likelihoods(model: Any, data: Data) -> Answer:
    """Log-probability of each sample (of its known values), or proved bounds on it."""
    labels = sample_labels(model, data)
    graph, potentials = model.to_model()
    batch = Batch.of([graph])
    total_low, total_high = _log_partition(model)
    lower, upper = np.empty(len(labels)), np.empty(len(labels))
    complete = (labels >= 0).all(axis=1)
    lower[complete] = upper[complete] = _scores(model, labels[complete])
    for row in np.flatnonzero(~complete):
        # few values are missing as a rule, so that what is left is small
        low, high = log_partition_bounds(batch, potentials, labels[row].astype(np.int32))
        lower[row], upper[row] = low[0], high[0]
    lower, upper = lower - total_high, np.minimum(upper - total_low, 0.0)
    fields = {
        "exact": bool(np.all(lower == upper)),
        "lower": lower.tolist(),
        "upper": upper.tolist(),
    }
    lines = ["sample\tlower\tupper\n"]
    lines += [
        f"{row + 1}\t{low:.10g}\t{high:.10g}\n"
        for row, (low, high) in enumerate(zip(lower, upper, strict=True))
    ]
    return Answer.of_text(fields, "".join(lines))


def _log_partition(model: Any) -> tuple[float, float]:
    """The exact log-partition twice, where the estimator reaches it, else bounds on it."""
    labels = np.zeros((1, model.n_features_in_), dtype=np.int16)
    try:
        # the estimator knows quick ways for dense models
        value = float(_scores(model, labels)[0]) - model.log_likelihood(
            model._values(labels.astype(np.int64))
        )
    except TooLargeError:
        graph, potentials = model.to_model()
        low, high = log_partition_bounds(Batch.of([graph]), potentials)
        return float(low[0]), float(high[0])
    return value, value


def _scores(model: Any, labels: LabelMatrix) -> FloatArray:
    """``s(y)`` of complete samples, by looking up all table entries at once."""
    unary, tables = model._parameters.tables(model.weights_)
    first, second = model.edges_[:, 0], model.edges_[:, 1]
    columns, edges = np.arange(labels.shape[1]), np.arange(len(first))
    size = max(1, CHUNK // (len(columns) + len(edges)))
    found = [np.zeros(0)]
    for begin in range(0, len(labels), size):
        rows = labels[begin : begin + size]
        found.append(
            unary[columns, rows].sum(axis=1)
            + tables[edges, rows[:, first], rows[:, second]].sum(axis=1)
        )
    return np.concatenate(found)


# -- missing values -----------------------------------------------------------------------


def missing_marginals(model: Any, data: Data, value_names: list[str]) -> Answer:
    """Beliefs about every missing value given the known ones of its sample."""
    labels = sample_labels(model, data)
    beliefs, converged = model._beliefs(labels)
    columns = data.examples.columns
    entries: list[dict[str, Any]] = [
        {
            "sample": int(row) + 1,
            "column": columns[column],
            "marginals": dict(zip(value_names, beliefs[row, column].tolist(), strict=True)),
            "converged": bool(converged[row]),
        }
        for row, column in np.argwhere(labels < 0)
    ]
    lines = []
    for entry in entries:
        shown = [f"{name}:{belief:.6g}" for name, belief in entry["marginals"].items()]
        lines.append("\t".join([str(entry["sample"]), entry["column"], *shown]) + "\n")
    return Answer.of_text({"n_samples": len(labels), "missing": entries}, "".join(lines))


# -- scores -------------------------------------------------------------------------------


def score_samples(model: Any, data: Data) -> Report:
    """Mean log pseudo-likelihood, and the log-likelihood or bounds on it, for each sample."""
    labels = sample_labels(model, data)
    samples = model._other_samples(data.examples)
    pseudo = model._score(PseudoLikelihood(), samples, model.weights_)
    try:
        value = model.log_likelihood(data.examples)
        lower, upper, exact = value, value, True
    except TooLargeError:
        lower, upper = model.log_likelihood_bounds(data.examples)
        exact = False
    count = len(labels)
    fields = {
        "n_samples": count,
        "log_pseudo_likelihood": pseudo,
        "log_likelihood_lower": lower / count,
        "log_likelihood_upper": upper / count,
        "exact": exact,
    }
    shown = (
        {"log-likelihood": lower / count}
        if exact
        else {"log-likelihood": f"between {lower / count:.4f} and {upper / count:.4f}"}
    )
    pairs = {"samples": count, "log pseudo-likelihood": pseudo, **shown}
    return Report(fields, f"{format_pairs(pairs)}\n(means over samples, natural logarithms)")


def sample_labels(model: Any, data: Data) -> LabelMatrix:
    """Checked labels, -1 where missing."""
    values = np.asarray(data.examples)
    if values.shape[1] != model.n_features_in_:
        raise InvalidInputError(
            f"{data.place(0)}: there must be {model.n_features_in_} columns as in the model, "
            f"got {values.shape[1]}"
        )
    labels: LabelMatrix = model._given_labels(values)
    return labels
