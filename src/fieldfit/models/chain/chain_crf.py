"""Linear-chain conditional random fields: a label for every token of a sequence.

    p(y | x) ∝ exp(sum_t sum_f x_t[f] w(f, y_t) + sum_t w(y_t, y_{t+1}))

Inference on a chain is exact, so the likelihood is; it has a path of its own through fused kernels
(`chain_problem`).  Other objectives take the general path (`chain_parts`).  Reference: Lafferty,
McCallum and Pereira, "Conditional random fields", ICML (2001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfit._typing import FloatArray, LabelArray
from fieldfit._validation import (
    require_flag,
    require_number,
    require_one_of,
    shown,
)
from fieldfit.errors import FileFormatError, InvalidInputError, Place
from fieldfit.graph.factor_graph import FactorGraph
from fieldfit.io.stored import Stored
from fieldfit.learners.problem import WHOLE_KINDS, Part, Problem, SumProblem
from fieldfit.models.chain.chain_features import (
    TokenFeatures,
    Vocabulary,
    is_matrix,
    read_items,
    read_matrices,
)
from fieldfit.models.chain.chain_labels import (
    MISSING,
    label_classes,
    number_labels,
    require_lengths,
)
from fieldfit.models.chain.chain_layout import (
    ChainLayout,
    build_layout,
    build_layout_of_chunks,
)
from fieldfit.models.chain.chain_parts import chain_parts, is_exact_on_chains
from fieldfit.models.chain.chain_problem import ChainData
from fieldfit.models.chain.chain_shards import (
    ChainCoder,
    StoredSequences,
    part_of,
    stored_sequences,
)
from fieldfit.models.chain.chain_tokens import EncodedTokens
from fieldfit.models.conditional import ConditionalEstimator
from fieldfit.models.dispatch import make_problem
from fieldfit.models.parts import beliefs_of
from fieldfit.models.single_examples import refuse_one_sequence
from fieldfit.models.weight_names import describe_labels
from fieldfit.objectives.base import Objective
from fieldfit.shards.cutting import SHARD_SIZE, cut_into_shards
from fieldfit.shards.reading import Shards, stored_weights
from fieldfit.shards.writing import Chunks, ShardCoder

__all__ = ["ChainCRF", "describe_weight", "pack_names", "unpack_names"]

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
        return describe_labels(layout.transitions.reshape(-1), position, classes, "->")
    position -= layout.n_transitions
    where = "start" if position < layout.n_labels else "end"
    return f"{where} / {classes[position % layout.n_labels]}"


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
    #: Whether its sequences can be written to shards.
    _has_shards = True
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

    def _weight_namer(self) -> Callable[[int], str]:
        attributes = self.attributes_
        return lambda position: self._describe_weight(position, attributes)

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
        refuse_one_sequence(X)
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
        features = X.features if isinstance(X, StoredSequences) else self._read(X)
        return EncodedTokens.of(self._layout, features)

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
        shards = cut_into_shards([max(2 * len(y) - 1, 0) for y in Y], SHARD_SIZE)
        if len(shards) == 1 or not self._has_shards or objective.problem_kind in WHOLE_KINDS:
            tokens = self._encode_training(X, labels)
            return self._problem_of_tokens(objective, tokens, labels, weights)
        features, dense = self._read_training(self._sequences(X))
        self._layout = self._choose_weights(features, labels, dense)
        self._block_shapes = self._layout.block_shapes()
        problems = []
        for chosen in shards:
            begin, end = int(chosen[0]), int(chosen[-1]) + 1
            first, last = features.sequence_offsets[[begin, end]]
            tokens = EncodedTokens.of(self._layout, part_of(features, begin, end))
            own = None if weights is None else weights[begin:end]
            problems.append(self._problem_of_tokens(objective, tokens, labels[first:last], own))
        return SumProblem(problems)

    def _problem_of_tokens(
        self,
        objective: Objective,
        tokens: EncodedTokens,
        labels: LabelArray,
        weights: FloatArray | None,
    ) -> Problem:
        data = ChainData(tokens, labels, weights, self.batch_size, self.n_jobs)
        return make_problem("chains", objective, data)

    # -- shards -----------------------------------------------------------------------------

    def _shard_options(self) -> dict[str, Any]:
        states = self.all_possible_states
        return {
            "fit_intercept": bool(self.fit_intercept),
            "all_possible_states": None if states is None else bool(states),
            "all_possible_transitions": bool(self.all_possible_transitions),
            "min_freq": float(self.min_freq),
            "boundary_weights": bool(self.boundary_weights),
        }

    def _shard_coder(self) -> ShardCoder | None:
        return ChainCoder(self) if self._has_shards else None

    def _read_shard(self, X: Sequences, coder: ChainCoder) -> TokenFeatures:
        """Features of some sequences, with a vocabulary that grows unless the model is fitted."""
        if coder.is_fitted:
            return self._read(X)
        if coder.is_matrix is None:
            coder.is_matrix = _holds_matrices(X)
        if not coder.is_matrix:
            return read_items(self._sequences(X), coder.vocabulary, grow=True)
        has_intercept = bool(self.fit_intercept)
        features, dense = read_matrices(self._sequences(X), coder.n_features, has_intercept)
        coder.n_features = features.n_attributes - int(has_intercept)
        coder.is_dense &= dense
        return features

    def _model_of_shards(self, coder: ChainCoder, shards: Chunks) -> Stored:
        """Class names, vocabulary and layout, when all sequences have been written."""
        names = list(coder.classes)
        if not coder.is_fitted:
            self = type(self)(**self.get_params(deep=False))  # nothing is left in the user's object
            self.classes_ = label_classes([names])
            self._vocabulary = None if coder.is_matrix else coder.vocabulary
            self.n_features_in_ = coder.n_features or len(coder.vocabulary)
            n_attributes = len(coder.vocabulary)
            if coder.is_matrix:
                n_attributes = self.n_features_in_ + int(bool(self.fit_intercept))
            ranks = np.searchsorted(self.classes_, names).astype(np.int32)
            self._layout = build_layout_of_chunks(
                lambda: (stored_sequences(one, n_attributes, ranks) for one in shards()),
                n_attributes,
                len(self.classes_),
                all_possible_states=self._has_all_states(bool(coder.is_matrix) and coder.is_dense),
                all_possible_transitions=bool(self.all_possible_transitions),
                min_freq=self.min_freq,
                boundary=bool(self.boundary_weights),
            )
        ranks = np.searchsorted(self.classes_, names).astype(np.int32)
        return Stored(
            {**self._model_arrays(), "label_ranks": ranks}, ChainCRF._model_metadata(self)
        )

    def _open_shards(self, shards: Shards) -> None:
        """Set all that is known of the model before its weights."""
        self._restore_model(shards.model())
        self._block_shapes = self._layout.block_shapes()

    def _stored(self, stored: Stored) -> tuple[TokenFeatures, LabelArray]:
        count = len(self.classes_)
        ranks = stored.indices("label_ranks", (count,), 0, count - 1)
        return stored_sequences(stored, self._layout.n_attributes, ranks)

    def _shard_problem(
        self, objective: Objective, stored: Stored | None, n_examples: int, unions: dict[Any, Any]
    ) -> Problem:
        """The sum over a shard; ``None``: over one token without attributes."""
        weights = None
        if stored is None:
            nothing = np.zeros(0, dtype=np.int32)
            ends = np.array([0, 1], dtype=np.int64)
            n_attributes = self._layout.n_attributes
            features = TokenFeatures(ends, 0 * ends, nothing, np.zeros(0), n_attributes)
            labels = np.array([MISSING], dtype=np.int32)
        else:
            features, labels = self._stored(stored)
            weights = stored_weights(stored)
        tokens = EncodedTokens.of(self._layout, features)
        return self._problem_of_tokens(objective, tokens, labels, weights)

    def _shard_mini_batches(self, objective: Objective, n_own: int, n_examples: int) -> int | None:
        """Mini-batches of a shard; ``None``: it is evaluated as a whole."""
        if not self._is_stochastic(objective):
            return None
        if self.batch_size is None:
            raise InvalidInputError(
                "batch_size must be given for a stochastic learner over shards of sequences, "
                "got None"
            )
        return -(-n_own // self.batch_size)

    def _shard_bytes(self, n_variables: int, n_edges: int) -> int:
        """Memory of a shard's encoded tokens beside its file, about."""
        return 400 * n_variables

    def _stored_examples(self, stored: Stored) -> StoredSequences:
        return StoredSequences(self._stored(stored)[0])

    def _stored_labels(self, stored: Stored) -> list[LabelArray]:
        features, labels = self._stored(stored)
        return np.split(labels, features.sequence_offsets[1:-1])

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
