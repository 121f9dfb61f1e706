"""Reports of chains: tokens coloured by label and confidence, transitions, strongest attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from fieldfit._typing import FloatArray
from fieldfit.metrics import chunk_f1
from fieldfit.report.heat_maps import heat_map
from fieldfit.report.kinds.base import strongest_first, weight_table
from fieldfit.report.kinds.labelled_report import LabelledReport, Shown
from fieldfit.report.label_colors import css_color
from fieldfit.report.page_parts import Cell, card, cards, number, table, text
from fieldfit.report.predictions import Predictions

__all__ = ["SequenceReport", "token_word"]

#: Keys under which features hold the word itself, in the order in which they are looked for.
WORD_KEYS = ("word", "w", "w[0]", "token", "form", "text", "word.lower()", "word.lower", "lower")
#: Attributes of each label in the table of labels.
N_EACH = 5
#: Tokens of one example that are drawn.
MAX_TOKENS = 120
TRANSITIONS = "Weight of a label (row) that is followed by another (column)."
UNSEEN = " Empty: the pair did not occur in training and scores 0."
#: A colour at full and at no confidence; text must be readable on the stronger.
FULL, FAINT = 0.5, 0.08


class SequenceReport(LabelledReport):
    """Of `ChainCRF` and `SkipChainCRF`."""

    unit = "tokens"
    example = "Sequence"

    def n_labels(self) -> int:
        return len(self.estimator.classes_)

    def n_features(self) -> int | None:
        """Attributes have names of their own; those of columns can be given."""
        return None if self.estimator._vocabulary is not None else self.estimator.n_features_in_

    def label_names(self) -> list[str]:
        if self.request.label_names is None:
            return [str(name) for name in self.estimator.classes_]
        return super().label_names()

    def figures(self) -> dict[str, Any]:
        found = {"labels": self.n_labels(), "attributes": len(self._attributes())}
        return found | {"weights": len(self.estimator.weights_)}

    def _attributes(self) -> list[str]:
        names: list[str] = self.estimator.attributes_
        given = self.feature_names() if self.request.feature_names is not None else []
        return [*given, *names[len(given) :]]

    # -- data -------------------------------------------------------------------------------

    def sizes(self) -> list[int]:
        return [x.shape[0] if hasattr(x, "shape") else len(x) for x in self._tokens()]

    def _tokens(self) -> Any:
        return self.estimator._sequences(self.request.X)

    def further_scores(self, found: Predictions, count: int) -> dict[str, Any]:
        """F1 of chunks, where labels are those of chunks."""
        names = found.names
        if not all(re.fullmatch(r"[BIES]-.+|O", name) for name in names) or len(names) < 2:
            return {}
        ends = np.cumsum(self._sizes[:count])[:-1]
        texts = np.array([*names, "O"], dtype=object)  # -1, unknown, is the last
        pairs = [
            [texts[part].tolist() for part in np.split(labels, ends)]
            for labels in (found.given, found.predicted)
        ]
        return {"F1 of chunks": f"{100.0 * chunk_f1(pairs[0], pairs[1]):.2f} %"}

    def about_examples(self) -> str:
        return (
            "Each token has the colour of its predicted label, stronger where the model is surer, "
            "and below it the label with its probability. Mistakes are underlined in red and "
            "followed by the true label."
        )

    def draw(self, shown: Shown) -> str:
        names, tokens = self.label_names(), self._tokens()[shown.index]
        confidence, wrong = shown.confidence, shown.wrong
        parts = []
        for t, label in enumerate(shown.predicted[:MAX_TOKENS].tolist()):
            share = float(confidence[t])
            name = text(names[label])
            said = f"{name} {100 * share:.0f} %"
            if wrong[t] and shown.given is not None:
                true = int(shown.given[t])
                said = f"<del>{name}</del> {100 * share:.0f} % → "
                said += text(names[true]) if true >= 0 else "unknown label"
            color = css_color(label, FAINT + (FULL - FAINT) * share)
            kind = "token wrong" if wrong[t] else "token"
            parts.append(
                f'<span class="{kind}" style="background:{color}" title="{_hint(names, shown, t)}">'
                f"{text(token_word(tokens, t))}<small>{said}</small></span>"
            )
        more = len(shown.predicted) - MAX_TOKENS
        tail = f" … and {more} more tokens" if more > 0 else ""
        return f'<p class="tokens">{" ".join(parts)}{tail}</p>'

    # -- weights ----------------------------------------------------------------------------

    def weights(self) -> list[str]:
        model, names = self.estimator, self.label_names()
        blocks = model.weight_blocks_
        layout = model._layout
        boxes = [
            card(
                heat_map(
                    _table_of(blocks["transition"], layout.transitions),
                    names,
                    names,
                    caption="Weights of transitions",
                    corner="from ↓ to →",
                ),
                title="Transitions",
                note=TRANSITIONS + (UNSEEN if (layout.transitions < 0).any() else ""),
            )
        ]
        if "start" in blocks:
            both = np.stack([blocks["start"], blocks["end"]])
            boxes.append(
                card(heat_map(both, ("start", "end"), names, caption="Ends"), title="Ends")
            )
        if "skip" in blocks:
            groups = model._groups()[max(model._groups())].reshape(len(names), len(names))
            values = _table_of(blocks["skip"].reshape(-1), groups)
            boxes.append(
                card(
                    heat_map(values, names, names, caption="Weights of linked tokens"),
                    title="Linked tokens",
                    note="Weight of the labels of two tokens that are linked.",
                )
            )
        attributes = self._attributes()
        rows = [
            (model._describe_weight(k, attributes), float(model.weights_[k]))
            for k in strongest_first(model.weights_)
        ]
        strongest = card(
            weight_table("attribute / label", rows, "Strongest weights"), title="Strongest weights"
        )
        by_label = card(self._by_label(attributes), title="Attributes of each label")
        return [cards(boxes[0], strongest), cards(*boxes[1:]), by_label]

    def _by_label(self, attributes: list[str]) -> str:
        """The attributes that speak most for each label, and most against it."""
        layout, names = self.estimator._layout, self.label_names()
        weights = self.estimator.weights_[: layout.n_states]
        owner = np.repeat(np.arange(layout.n_attributes), np.diff(layout.state_offsets))
        rows = []
        for label, name in enumerate(names):
            own = np.flatnonzero(layout.state_labels == label)
            order = own[np.argsort(-weights[own], kind="stable")]
            best, worst = order[:N_EACH], order[::-1][:N_EACH]
            cells = [
                Cell(
                    ", ".join(
                        f"{text(attributes[owner[k]])}&nbsp;<span class='soft'>"
                        f"{number(float(weights[k]), 3)}</span>"
                        for k in chosen
                        if sign * weights[k] > 0
                    )
                    or number(None)
                )
                for chosen, sign in ((best, 1), (worst, -1))
            ]
            rows.append((name, *cells))
        return table(
            ("label", "speaks for it", "speaks against it"),
            rows,
            sortable=False,
            caption="Attributes of each label",
            text_columns=(1, 2),
        )


def token_word(tokens: Any, t: int) -> str:
    """What a token is called: its word where features hold it, else its number.

    >>> token_word([{"w": "dog", "w[-1]": "the"}, ["pos[0]=DT", "w[0]=a"]], 0)
    'dog'
    >>> token_word([{"w": "dog", "w[-1]": "the"}, ["pos[0]=DT", "w[0]=a"]], 1)
    'a'
    """
    if hasattr(tokens, "shape"):
        return str(t)
    token = tokens[t]
    if isinstance(token, Mapping):
        for key in WORD_KEYS:
            if isinstance(token.get(key), str):
                return str(token[key])
        names = [str(name) for name in token]
    elif isinstance(token, (list, tuple, set)) and all(isinstance(a, str) for a in token):
        names = list(token)
    else:
        return str(t)
    for key in WORD_KEYS:
        for name in names:
            if name.startswith((f"{key}=", f"{key}:")):
                return name[len(key) + 1 :]
    return str(t)


def _hint(names: list[str], shown: Shown, t: int) -> str:
    """The likeliest labels of a token."""
    order = np.argsort(-shown.marginals[t], kind="stable")[:4]
    return text(", ".join(f"{names[k]} {100 * shown.marginals[t, k]:.1f} %" for k in order))


def _table_of(values: FloatArray, groups: Any) -> FloatArray:
    """Parameters as a table of two labels; NaN where a pair has none."""
    flat = np.append(values.reshape(-1), np.nan)
    return np.asarray(flat[groups])
