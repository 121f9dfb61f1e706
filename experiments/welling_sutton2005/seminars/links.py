"""Which equal words of a mail are linked: chosen for every fold on its training mails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.seminar_mails import Example, in_matrices, split_mails
from experiments.welling_sutton2005.seminars.methods import predict_speakers, token_scores, train
from fieldfit import Objective

#: The method that compares them, on the 2-clique model: the one that trains fastest.
CHOOSER = "CF5-bethe"
#: One of so many training mails is held out.
SHARE = 4


def choose_links(
    make: Callable[[Objective], Any],
    examples: Mapping[int, Sequence[Example]],
    labels: list[list[int]],
    test: slice,
    min_count: int,
) -> tuple[int, list[dict[str, Any]]]:
    """The best of some rules for links, and the token F1 of each; test mails are not looked at.

    ``examples`` are all mails under each rule: the largest number of equal words that are linked
    pair by pair.  A quarter of the training mails is held out, the rest is learned from.  Ties go
    to the first rule.
    """
    known = labels[: test.start] + labels[test.stop :]
    held_out = slice(0, len(known) // SHARE)
    found = []
    for rule, mails in examples.items():
        training = [*mails[: test.start], *mails[test.stop :]]
        split = in_matrices(split_mails(training, known, held_out, min_count))
        trained = train(make, CHOOSER, split.training, split.training_labels)
        true = np.concatenate(split.test_labels).astype(bool)
        guess = predict_speakers(trained.estimator, split.test)
        found.append({"max_links": rule, "f1": token_scores(true, guess)["f1"]})
    best = max(found, key=lambda row: row["f1"])
    return int(best["max_links"]), found
