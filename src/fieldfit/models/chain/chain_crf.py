"""Linear-chain conditional random fields: a label for every token of a sequence.

    p(y | x) ∝ exp(sum_t sum_f x_t[f] w(f, y_t) + sum_t w(y_t, y_{t+1}))

Inference on a chain is exact, so the likelihood is; it has a path of its own through fused kernels
(`chain_problem`).  Other objectives take the general path (`chain_parts`).  Reference: Lafferty,
McCallum and Pereira, "Conditional random fields", ICML (2001).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LabelArray
from fieldfit._validation import (
    require_flag,
    require_integer,
    require_number,
    require_one_of,
    shown,
)
from fieldfit.errors import FileFormatError, InvalidInputError, Place, TooLargeError
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.io.stored import Stored
from fieldfit.learners.problem import Part, Problem
from fieldfit.models.chain.chain_features import (
    TokenFeatures,
    Vocabulary,
    is_matrix,
    read_items,
    read_matrices,
)
from fieldfit.models.chain.chain_layout import ChainLayout, build_layout
from fieldfit.models.chain.chain_parts import chain_parts, is_exact_on_chains
from fieldfit.models.chain.chain_problem import ChainData
from fieldfit.models.chain.chain_tokens import EncodedTokens
from fieldfit.models.conditional import ConditionalEstimator
from fieldfit.models.dispatch import make_problem
from fieldfit.models.parts import beliefs_of
from fieldfit.objectives.base import Objective

__all__ = [
    "MISSING",
    "ChainCRF",
    "describe_pair",
    "describe_weight",
    "label_classes",
    "number_labels",
    "pack_names",
    "require_lengths",
    "unpack_names",
]

# -- Label sequences: class names (strings or integers) to numbers and back ----------------


#: What a missing label becomes.
MISSING = -1
#: Half a gigabyte for each table of pairs; labels that are not classes tend to be many more.
MAX_LABELS = 2**13


def require_lengths(X: Sequence[Any], Y: Sequence[Any]) -> None:
    """Refuse empty lists, and sequences with another number of labels than of tokens."""
    if isinstance(Y, (str, bytes)) or not hasattr(Y, "__len__"):
        raise InvalidInputError(
            f"must be a list of sequences of labels, got {type(Y).__name__}", Place("Y")
        )
    if len(X) == 0:
        raise InvalidInputError("must hold at least one sequence, got an empty list", Place("X"))
    if len(X) != len(Y):
        raise InvalidInputError(
            f"X and Y must have one entry for each sequence, got {len(X)} and {len(Y)}"
        )
    for index, (x, y) in enumerate(zip(X, Y, strict=True)):
        if isinstance(y, (str, bytes)) or not hasattr(y, "__len__"):
            raise InvalidInputError(
                f"must be a sequence of labels, got {type(y).__name__}", Place("Y", index)
            )
        if not hasattr(x, "__len__") and not hasattr(x, "shape"):
            raise InvalidInputError(
                f"must be a sequence of tokens, got {type(x).__name__}", Place("X", index)
            )
        length = x.shape[0] if hasattr(x, "shape") else len(x)
        if length != len(y):
            raise InvalidInputError(
                f"must have one label for each of the {length} tokens of X[{index}], got {len(y)}",
                Place("Y", index),
            )


def label_classes(Y: Sequence[Sequence[Any]]) -> NDArray[Any]:
    """The class names that occur, sorted; at least two are required."""
    found: set[Any] = set()
    kinds: dict[type, int] = {}
    for index, y in enumerate(Y):
        try:
            names = set(np.unique(y).tolist()) if _is_integers(y) else set(y)
        except TypeError:
            raise InvalidInputError(
                f"labels must be strings or integers, or None for missing, "
                f"got {next(name for name in y if name.__hash__ is None)!r:.60}",
                Place("Y", index),
            ) from None
        for name in names - found:
            if is_missing(name):
                continue
            kind = _kind(index, name)
            kinds.setdefault(kind, index)
            if len(kinds) > 1:
                raise InvalidInputError(
                    f"must hold strings or integers, not both; got {name!r} in Y[{index}]",
                    Place("Y"),
                )
            found.add(name)
    if len(found) < 2:
        what = f"only {next(iter(found))!r}" if found else "no label at all"
        raise InvalidInputError(
            f"must hold at least two different labels over all {len(Y)} sequences, got {what}",
            Place("Y"),
        )
    if len(found) > MAX_LABELS:
        raise TooLargeError(
            f"Y must hold at most {MAX_LABELS} different labels, because a chain keeps tables of "
            f"all pairs, got {len(found)}"
        )
    return np.array(sorted(found))


def number_labels(Y: Sequence[Sequence[Any]], classes: NDArray[Any], unknown: int) -> LabelArray:
    """Numbers of all labels of all sequences; ``unknown`` for names that are not classes."""
    numbers: dict[Any, int] = {name: number for number, name in enumerate(classes.tolist())}
    flat: list[int] = []
    for index, y in enumerate(Y):
        names = y.tolist() if hasattr(y, "tolist") else y
        try:
            flat.extend([numbers[name] for name in names])
        except KeyError:
            for name in names:
                if is_missing(name):
                    flat.append(MISSING)
                else:
                    _kind(index, name)
                    flat.append(numbers.get(name, unknown))
    return np.array(flat, dtype=np.int32)


def is_missing(name: Any) -> bool:
    """``None`` or the integer -1."""
    return name is None or (not isinstance(name, str) and name == MISSING)


def _is_integers(y: Any) -> bool:
    return isinstance(y, np.ndarray) and y.dtype.kind in "iu"


def _kind(index: int, name: Any) -> type:
    if isinstance(name, str):
        return str
    if isinstance(name, (int, np.integer, np.bool_)):
        if name < MISSING:
            raise InvalidInputError(
                f"integer labels must be at least -1 (missing), got {name}", Place("Y", index)
            )
        return int
    raise InvalidInputError(
        f"labels must be strings or integers, or None for missing, got {name!r}", Place("Y", index)
    )


# -- Names of a chain model's weights, for people and for files ----------------------------


def describe_weight(
    layout: ChainLayout, position: int, attributes: Sequence[str], classes: NDArray[Any]
) -> str:
    """What a weight belongs to: ``attribute / label``, ``label -> label`` or ``start / label``."""
    if position < layout.n_states:
        attribute, label = layout.pair(position)
        return f"{attributes[attribute]} / {classes[label]}"
    position -= layout.n_states
    if position < layout.n_transitions:
        return describe_pair(layout.transitions.reshape(-1), position, classes, "->")
    position -= layout.n_transitions
    where = "start" if position < layout.n_labels else "end"
    return f"{where} / {classes[position % layout.n_labels]}"


def describe_pair(groups: NDArray[np.int64], group: int, classes: NDArray[Any], mark: str) -> str:
    """What a parameter of a table of two labels belongs to; ``groups`` has that of each entry.

    >>> describe_pair(np.array([0, 1, 1, 2]), 1, np.array(["A", "B"]), "~")
    'A ~ B'
    >>> describe_pair(np.array([0, -1, -1, 0]), 0, np.array(["A", "B"]), "~")
    'equal labels'
    """
    entries = np.flatnonzero(groups == group)
    first, second = np.divmod(entries, len(classes))
    if len(entries) > 1 and np.all(first == second):
        return "equal labels"
    return f"{classes[first[0]]} {mark} {classes[second[0]]}"


def pack_names(names: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Text as one array of bytes, and where each name ends; names may hold any character."""
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), ends


def unpack_names(text: NDArray[np.uint8], ends: NDArray[np.int64]) -> list[str]:
    """Inverse of `pack_names`."""
    raw, bounds = text.tobytes(), [0, *ends.tolist()]
    return [raw[first:last].decode("utf-8", "surrogatepass") for first, last in pairwise(bounds)]


# -- The estimator -------------------------------------------------------------------------


Sequences = Sequence[Any]
#: What the attribute is called that ``fit_intercept`` adds.
INTERCEPT = "intercept"
#: A label that was not seen in training: never predicted, so always an error in `score`.
UNSEEN = -2


class ChainCRF(ConditionalEstimator):
    """A linear-chain conditional random field, with sklearn-crfsuite's input.

    `fit` takes, for each sequence, a list of feature dictionaries or a dense or CSR matrix ``(T,
    F)``, and its labels, strings or integers; ``None`` or ``-1`` is a missing label.

    Parameters
    ----------
    objective
        ``"likelihood"`` (exact), ``"pseudolikelihood"``, ``"piecewise"``, ``"max-margin"``,
        ``"perceptron"``, ... or an object.
    l2, l1
        Penalties ``l2/2 |w|^2 + l1 |w|_1`` beside the sum over sequences.  CRFsuite's ``c2`` is
        half of ``l2``, its ``c1`` is ``l1``.
    learner
        ``None`` chooses: L-BFGS where the objective is smooth.
    max_iter, tol
        Limits of the learner.
    fit_intercept
        Give every label a constant.  For matrices only; dictionaries carry their own.
    all_possible_states
        Give every (attribute, label) pair a weight; ``False``: those that occur in training, as
        CRFsuite does.  ``None``: all for dense matrices, those that occur otherwise.
    all_possible_transitions
        The same for (label, next label).
    min_freq
        Drop pairs that occur less often (attributes count with their values).
    boundary_weights
        Also give labels weights at the first and at the last token.  CRFsuite has none.
    decode
        ``"marginals"`` (at each token the likeliest label), ``"map"`` (the likeliest sequence, by
        Viterbi's algorithm), ``None``: as the objective was made for.
    batch_size
        Sequences in a mini-batch of a stochastic learner; ``None``: as memory suggests.
    random_state, n_jobs, verbose
        Seed, threads (the result does not depend on their number), progress bar.

    Attributes
    ----------
    classes_
        Names of the labels, sorted.
    attributes_
        Names of the attributes, in the order of their weights.
    weights_, weight_blocks_
        All weights, and views of them: ``"state"``, ``"transition"``, ``"start"``, ``"end"``.

    Examples
    --------
    >>> X = [[{"word": "the"}, {"word": "dog"}], [{"word": "a"}, {"word": "cat"}]]
    >>> Y = [["DET", "NOUN"], ["DET", "NOUN"]]
    >>> crf = ChainCRF(l2=0.1).fit(X, Y)
    >>> [labels.tolist() for labels in crf.predict([[{"word": "the"}, {"word": "cat"}]])]
    [['DET', 'NOUN']]
    """

    classes_: NDArray[Any]
    n_features_in_: int
    _layout: ChainLayout
    #: Numbers of attribute names, or ``None`` if the model was fitted on matrices.
    _vocabulary: dict[str, int] | None

    def __init__(
        self,
        objective: str | Objective = "likelihood",
        *,
        l2: float = 1.0,  # rare attributes of text need a prior; CRFsuite's c2 is half of it
        l1: float = 0.0,
        learner: Any = None,
        max_iter: int = 200,
        tol: float = 1e-5,
        fit_intercept: bool = True,
        all_possible_states: bool | None = None,
        all_possible_transitions: bool = False,
        min_freq: float = 0,
        boundary_weights: bool = False,
        decode: str | None = None,
        batch_size: int | None = None,
        random_state: int | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.objective = objective
        self.l2 = l2
        self.l1 = l1
        self.learner = learner
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.min_freq = min_freq
        self.boundary_weights = boundary_weights
        self.decode = decode
        self.batch_size = batch_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    # -- names of weights -------------------------------------------------------------------

    @property
    def attributes_(self) -> list[str]:
        """Names of the attributes; ``x0``, ``x1``, ... for the columns of matrices."""
        self._require_fit()
        if self._vocabulary is not None:
            return list(self._vocabulary)
        names = [f"x{column}" for column in range(self.n_features_in_)]
        return [*names, INTERCEPT] if self._layout.n_attributes > self.n_features_in_ else names

    def top_weights(self, n: int = 20) -> list[tuple[float, str]]:
        """The ``n`` weights that are largest in size, each with what it belongs to.

        >>> X = [[{"word": "the"}, {"word": "dog"}]]
        >>> for weight, what in ChainCRF(l2=0.1).fit(X, [["DET", "NOUN"]]).top_weights(3):
        ...     print(f"{weight:.2f} {what}")
        1.60 DET -> NOUN
        0.93 word:dog / NOUN
        0.93 word:the / DET
        """
        self._require_fit()
        require_integer("n", n, at_least=0)
        order = np.argsort(-np.abs(self.weights_), kind="stable")[:n]
        attributes = self.attributes_
        return [(float(self.weights_[k]), self._describe_weight(int(k), attributes)) for k in order]

    def _describe_weight(self, position: int, attributes: Sequence[str]) -> str:
        return describe_weight(self._layout, position, attributes, self.classes_)

    # -- from sequences to arrays -----------------------------------------------------------

    def _check_options(self) -> None:
        super()._check_options()
        require_number("min_freq", self.min_freq, at_least=0)
        require_one_of("all_possible_states", self.all_possible_states, (True, False), or_none=True)
        require_flag("all_possible_transitions", self.all_possible_transitions)
        require_flag("boundary_weights", self.boundary_weights)

    def _sequences(self, X: Sequences) -> Sequences:
        """The sequences of tokens in ``X``; subclasses may be given more than these."""
        if isinstance(X, (str, bytes, dict)) or hasattr(X, "tocsr") or not hasattr(X, "__len__"):
            raise InvalidInputError(
                f"must be a list of sequences, got {type(X).__name__}", Place("X")
            )
        for index, x in enumerate(X):
            if not hasattr(x, "__len__") and not hasattr(x, "tocsr"):
                raise InvalidInputError(
                    f"must be a sequence of tokens, got {shown(x)}", Place("X", index)
                )
        return X

    def _encode_training(self, X: Sequences, labels: LabelArray) -> EncodedTokens:
        """Number the attributes, decide on the weights, and encode."""
        features, dense = self._read_training(self._sequences(X))
        self._layout = self._choose_weights(features, labels, dense)
        self._block_shapes = self._layout.block_shapes()
        return EncodedTokens.of(self._layout, features)

    def _choose_weights(
        self, features: TokenFeatures, labels: LabelArray, dense: bool
    ) -> ChainLayout:
        """Which weights the model has; chains are the sequences of ``features``."""
        return build_layout(
            features,
            labels,
            len(self.classes_),
            all_possible_states=self._has_all_states(dense),
            all_possible_transitions=bool(self.all_possible_transitions),
            min_freq=self.min_freq,
            boundary=bool(self.boundary_weights),
        )

    def _has_all_states(self, dense: bool) -> bool:
        return dense if self.all_possible_states is None else bool(self.all_possible_states)

    def _read_training(self, X: Sequences) -> tuple[TokenFeatures, bool]:
        if _holds_matrices(X):
            self._vocabulary = None
            features, dense = read_matrices(X, None, bool(self.fit_intercept))
            self.n_features_in_ = features.n_attributes - int(bool(self.fit_intercept))
            return features, dense
        vocabulary = Vocabulary()
        features = read_items(X, vocabulary, grow=True)
        self._vocabulary = vocabulary
        self.n_features_in_ = features.n_attributes
        return features, False

    def _read(self, X: Sequences) -> TokenFeatures:
        """Sequences with the attributes that the model knows."""
        sequences = self._sequences(X)
        if self._vocabulary is not None:
            return read_items(sequences, self._vocabulary)
        has_intercept = self._layout.n_attributes > self.n_features_in_
        return read_matrices(sequences, self.n_features_in_, has_intercept)[0]

    def _encode(self, X: Sequences, keep: bool = False) -> EncodedTokens:
        return EncodedTokens.of(self._layout, self._read(X))

    def _require_examples(self, X: Sequences, Y: Sequences) -> None:
        require_lengths(self._sequences(X), Y)

    def _labels(self, X: Sequences, Y: Sequences) -> list[LabelArray]:
        ends = np.cumsum([len(y) for y in Y])[:-1]
        return np.split(number_labels(Y, self.classes_, UNSEEN), ends)

    def _problem(
        self, objective: Objective, X: Sequences, Y: Sequences, weights: FloatArray | None
    ) -> Problem:
        self.classes_ = label_classes(Y)
        labels = number_labels(Y, self.classes_, UNSEEN)
        tokens = self._encode_training(X, labels)
        return self._problem_of_tokens(objective, tokens, labels, weights)

    def _problem_of_tokens(
        self,
        objective: Objective,
        tokens: EncodedTokens,
        labels: LabelArray,
        weights: FloatArray | None,
    ) -> Problem:
        data = ChainData(tokens, labels, weights, self.batch_size, self.n_jobs)
        return make_problem("chains", objective, data)

    # -- prediction -------------------------------------------------------------------------

    def _best_labels(
        self, objective: Objective, encoded: EncodedTokens, weights: FloatArray
    ) -> tuple[list[LabelArray], int]:
        if self._decoding(objective) == "map":
            return _split(self._best_sequences(encoded, weights), encoded), 0
        found, n_unconverged = self._flat_beliefs(objective, encoded, weights)
        return _split(found.argmax(axis=1).astype(np.int32), encoded), n_unconverged

    def _beliefs(
        self, objective: Objective, encoded: EncodedTokens, weights: FloatArray
    ) -> tuple[list[FloatArray], int]:
        found, n_unconverged = self._flat_beliefs(objective, encoded, weights)
        return _split(found, encoded), n_unconverged

    def _best_sequences(self, tokens: EncodedTokens, weights: FloatArray) -> LabelArray:
        """Jointly best labels of all tokens, by Viterbi's algorithm."""
        return tokens.best_labels(weights, self.n_jobs)[0]

    def _flat_beliefs(
        self, objective: Objective, tokens: EncodedTokens, weights: FloatArray
    ) -> tuple[FloatArray, int]:
        """Beliefs of all tokens, and how many sequences' inference did not converge."""
        if is_exact_on_chains(objective.prediction(FactorGraph.chain(2, self._layout.n_labels))):
            return tokens.marginals(weights, self.n_jobs), 0
        return self._beliefs_of_parts(objective, chain_parts(tokens), weights)

    def _beliefs_of_parts(
        self, objective: Objective, parts: Sequence[Part], weights: FloatArray
    ) -> tuple[FloatArray, int]:
        """Beliefs of the inference that the objective predicts with."""
        found, n_unconverged = beliefs_of(objective, parts, weights, self.n_jobs)
        return np.concatenate([np.zeros((0, self._layout.n_labels)), *found]), n_unconverged

    def _shown_labels(self, x: Any, labels: LabelArray) -> NDArray[Any]:
        """The names of labels."""
        return self.classes_[labels]

    # -- files ------------------------------------------------------------------------------

    def _model_metadata(self) -> dict[str, Any]:
        return {
            "classes": self.classes_.tolist(),
            "n_features_in": self.n_features_in_,
            "has_names": self._vocabulary is not None,
            "boundary": self._layout.boundary,
        }

    def _model_arrays(self) -> dict[str, NDArray[Any]]:
        text, ends = pack_names(self._vocabulary or {})
        return {
            "state_offsets": self._layout.state_offsets,
            "state_labels": self._layout.state_labels,
            "transitions": self._layout.transitions,
            "name_text": text,
            "name_ends": ends,
        }

    def _restore_model(self, stored: Stored) -> None:
        classes = stored.items("classes", (str, int))
        if len(set(classes)) != len(classes) or len({type(name) for name in classes}) > 1:
            raise FileFormatError(f"expected 'classes' that differ, found {shown(classes)}")
        self.classes_ = np.array(classes)
        self._layout = ChainLayout.restored(stored, len(classes), stored.flag("boundary"))
        self.n_features_in_ = stored.integer("n_features_in", 0, self._layout.n_attributes)
        self._vocabulary = None
        if stored.flag("has_names"):
            text = stored.array("name_text", (None,), "b")
            ends = stored.indices("name_ends", (self._layout.n_attributes,), 0, len(text))
            names = unpack_names(text, ends)
            self._vocabulary = {name: number for number, name in enumerate(names)}
            if len(self._vocabulary) != len(names):
                raise FileFormatError("expected 'name_text' to hold different names")
        elif self._layout.n_attributes - self.n_features_in_ > 1:
            raise FileFormatError(
                f"expected weights for {self.n_features_in_} features and an intercept, found "
                f"{self._layout.n_attributes}"
            )

    def _shapes_of_model(self) -> dict[str, tuple[int, ...]]:
        return self._layout.block_shapes()


def _holds_matrices(X: Sequences) -> bool:
    """Whether the first sequence that is not empty is one of numbers."""
    for x in X:
        if hasattr(x, "tocsr") or len(x):
            return is_matrix(x)
    return False


def _split(flat: NDArray[Any], tokens: EncodedTokens) -> list[NDArray[Any]]:
    """One array for each sequence."""
    return np.split(flat, tokens.sequence_offsets[1:-1]) if tokens.n_sequences else []
