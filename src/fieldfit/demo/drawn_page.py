"""Demonstrations on drawn data: compare methods, fit the winner, write a page about both."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from fieldfit.comparison.compare_methods import compare
from fieldfit.comparison.comparison_page import comparison_lead, comparison_sections
from fieldfit.comparison.comparison_result import Comparison
from fieldfit.comparison.method_search import Data
from fieldfit.demo.drawn_examples import DRAWN, Drawn, DrawnDemo
from fieldfit.io._atomic_file import write_atomically
from fieldfit.report.page_parts import Section, card, page, table, text, words

__all__ = ["DrawnRun", "run_drawn"]

#: Seconds for all methods; they need a few.
BUDGET = 40.0


@dataclass(frozen=True)
class DrawnRun:
    """What a demonstration found, and its pages."""

    demo: DrawnDemo
    found: Comparison
    model: Any
    page: str
    report: str


def run_drawn(name: str, folder: str, seed: int, is_quick: bool, verbose: int) -> DrawnRun:
    """Draw, compare, fit the winner on all training data, write ``index.html`` and ``fit.html``."""
    demo = DRAWN[name]
    drawn = demo.draw(np.random.default_rng(seed), is_quick)
    train, test = drawn.train, drawn.test
    tested = test.X if test.Y is None else (test.X, test.Y)
    found = compare(
        demo.estimator(),
        train.X,
        train.Y,
        demo.methods,
        BUDGET,
        test=tested,
        random_state=seed,
        verbose=verbose,
    )
    quick = " --quick" if is_quick else ""
    found = replace(found, command=f"fieldfit demo {name} --seed {seed}{quick}")
    model = _winner(demo, found, train)
    index, report = (os.path.join(folder, file) for file in ("index.html", "fit.html"))
    model.report(report, test.X, test.Y, **drawn.report_options)
    write_atomically(index, [_page(demo, drawn, found, model).encode()])
    return DrawnRun(demo, found, model, index, report)


def _winner(demo: DrawnDemo, found: Comparison, train: Data) -> Any:
    best = found.best
    assert best is not None  # independent variables always can be fitted to drawn data
    model = clone(demo.estimator()).set_params(objective=best.method, l2=best.l2)
    return model.fit(train.X) if train.Y is None else model.fit(train.X, train.Y)


def _page(demo: DrawnDemo, drawn: Drawn, found: Comparison, model: Any) -> str:
    count = f"{len(drawn.train)} to learn from, {len(drawn.test)} to test on."
    lead = f'<p class="soft">{text(demo.about)} {text(count)}</p>{comparison_lead(found)}'
    lead += '<p><a href="fit.html">Report of the fit of the winner</a>, with predictions.</p>'
    sections = comparison_sections(found)
    sections.insert(1, Section("What was learned", _learned(demo, drawn, model)))
    return page(f"fieldfit demo: {demo.title.lower()}", *sections, lead=lead)


def _learned(demo: DrawnDemo, drawn: Drawn, model: Any) -> str:
    what, truth = drawn.truth
    learned = demo.learned(model)
    if not truth:
        rows: list[list[Any]] = [[name, value] for name, value in learned.items()]
        return card(table(["weight of", "learned"], rows, caption="Strongest weights"))
    rows = [[name, value, learned[name]] for name, value in truth]
    note = f"Learned by {model.objective} from all training examples, beside what is true."
    return words(note) + card(table([what, "true", "learned"], rows, caption="Weights"))
