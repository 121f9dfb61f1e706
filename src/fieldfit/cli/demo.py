"""``fieldfit demo``: learn from small data in several ways, and write a page about it."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from fieldfit.cli._options import count, number
from fieldfit.cli._output import Reporter, format_table, print_json

if TYPE_CHECKING:
    from fieldfit.demo.demo_methods import Level, Outcome
    from fieldfit.demo.demo_page import Report

__all__ = ["add_parser", "run"]

#: Training and test pictures of each digit.  Four weights need no more.
TRAIN_EACH, TEST_EACH = 2, 5
#: Of methods that do not converge in time, in a quick run.
QUICK_ITERATIONS = 10
#: Alone, a pixel is then wrong almost every fifth time, and methods differ most visibly.
NOISE = 0.8

#: What there is to be seen.
MENU = {
    "digits": "restore noisy handwritten digits (28 x 28 pixels, from scikit-learn's data)",
    "text": "tell the classes of ambiguous words in drawn sentences",
    "network": "find the couplings of a questionnaire that is drawn from a known network",
    "matching": "find out by what people are matched",
}

DESCRIPTION = """\
Learn from small data that come with the package or are drawn, by several methods, and write
DIR/index.html: one file that needs no network.

  digits    restore noisy handwritten digits (28 x 28 pixels, from the data that scikit-learn
            ships): each pixel alone, and as a random field trained by pseudo-likelihood, by the
            tree-reweighted (TRW) and the Bethe surrogate likelihood, and by the methods of five
            papers: CAMEL, contrastive free energies, MLE-Struct, implicit and procedural fitting.
            Pictures, marginals, learning curves, errors at other levels of noise; and
            DIR/digits.png, the first ten test digits (from top to bottom: seen, restored by each
            method in the order of the table, the truth).
  text      tell the classes of ambiguous words in drawn sentences (a chain)
  network   find the couplings of a questionnaire that is drawn from a known network
  matching  find out by what people are matched

The last three compare methods, recommend one, and write DIR/fit.html, the report of its fit.

The first run on a machine compiles the kernels, which takes a minute or two; later ones take less
than a minute.
"""

EXAMPLES = """\
examples:
  fieldfit demo                        then open demo/index.html
  fieldfit demo --noise 0.4 --seed 1   little noise, other digits: now all fields do well
  fieldfit demo text --out words       another one
  fieldfit demo --quick --json         a small run, the table as one JSON object
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the options of the command."""
    parser = subparsers.add_parser(
        "demo",
        help="learn from small data in several ways and write a page about it",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "what",
        nargs="?",
        choices=tuple(MENU),
        default="digits",
        help="what to learn (default: digits)",
    )
    parser.add_argument(
        "--out", metavar="DIR", default="demo", help="folder of the page (default: demo)"
    )
    parser.add_argument(
        "--noise",
        metavar="S",
        type=number("above 0 and at most 10", lambda value: 0.0 < value <= 10.0),
        help="of digits: standard deviation of the noise; paper is 0 and ink is 1 "
        f"(default: {NOISE:g})",
    )
    parser.add_argument(
        "--seed", metavar="N", type=count(0), default=0, help="choice of the data (default: 0)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer data; of digits one picture each and no other levels of noise",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def run(args: argparse.Namespace) -> int:
    """Learn, print, write the page."""
    from fieldfit.errors import InvalidInputError

    reporter = Reporter(quiet=args.quiet)
    if args.what != "digits" and args.noise is not None:
        raise InvalidInputError(f"--noise must not be given but for digits, got {args.noise:g}")
    os.makedirs(args.out, exist_ok=True)  # a folder that cannot be made should not cost a minute
    reporter.note("demo: loading kernels (the first run on a machine compiles them, a minute)")
    if args.what == "digits":
        args.noise = NOISE if args.noise is None else args.noise
        return _run_digits(args, reporter)
    return _run_drawn(args, reporter)


def _run_drawn(args: argparse.Namespace, reporter: Reporter) -> int:
    """Compare methods on drawn data, and report the fit of the winner."""
    from fieldfit.demo.drawn_page import run_drawn

    has_bars = not args.quiet and not args.json and sys.stderr.isatty()
    with reporter.warnings_at_the_end():
        done = run_drawn(args.what, args.out, args.seed, args.quick, int(has_bars))
    if args.json:
        fields = {"page": done.page, "report": done.report, "methods": done.found.rows}
        print_json(fields | {"recommendation": done.found.recommendation, "code": done.found.code})
    else:
        print(done.found)
    reporter.note(f"demo: the pages are {done.page} and {done.report}")
    return 0


def _run_digits(args: argparse.Namespace, reporter: Reporter) -> int:
    from importlib.metadata import version

    from fieldfit.demo.demo_page import Report, demo_page, digits_png
    from fieldfit.io._atomic_file import write_atomically

    levels = _learn_all(args, reporter)
    report = Report(levels, args.noise, args.seed, args.quick, version("fieldfit"))
    page, pictures = (os.path.join(args.out, name) for name in ("index.html", "digits.png"))
    write_atomically(page, [demo_page(report).encode()])
    write_atomically(pictures, [digits_png(report.main)])
    if args.json:
        print_json(_fields(report, page, pictures))
    else:
        print(format_table(COLUMNS, [_row(report.main, o) for o in report.main.outcomes]))
    for outcome in report.main.outcomes:
        for warning in outcome.warnings if outcome.method.in_time else ():
            reporter.warning(f"{outcome.method.name}: {warning}")
    reporter.note(f"demo: the page is {page}")
    return 0


def _learn_all(args: argparse.Namespace, reporter: Reporter) -> list[Level]:
    """The chosen level of noise and, unless the run is quick, others; in increasing order."""
    from fieldfit.demo.demo_digits import NoisyDigits
    from fieldfit.demo.demo_methods import METHODS, STUDY_NOISE, Level, learn, study_levels, warm_up

    warm_up()
    train_each, test_each = (1, 1) if args.quick else (TRAIN_EACH, TEST_EACH)
    digits = NoisyDigits.load(train_each, test_each, args.noise, args.seed)
    has_bars = not args.quiet and sys.stderr.isatty()
    outcomes = []
    for method in METHODS:
        reporter.note(f"demo: learning, {method.name}")
        limit = QUICK_ITERATIONS if args.quick and not method.in_time else None
        outcomes.append(learn(method, digits, max_iter=limit, show_progress=has_bars))
    main = Level(digits, tuple(outcomes))
    others: list[Level] = []
    if not args.quick:
        from tqdm import tqdm

        missing = [noise for noise in STUDY_NOISE if noise != args.noise]
        reporter.note("demo: learning at other levels of noise")
        bar = tqdm(total=len(missing), unit="level", file=sys.stderr, disable=not has_bars)
        with bar:
            for level in study_levels(digits, missing):
                others.append(level)
                bar.update()
    return sorted([main, *others], key=lambda level: level.noise)


# -- output -------------------------------------------------------------------------------

COLUMNS = (
    "method",
    "seconds",
    "iterations",
    "converged",
    "pixel error",
    "log-loss",
    "pixel weight",
    "horizontal",
    "vertical",
)


def _row(level: Level, outcome: Outcome) -> dict[str, Any]:
    horizontal, vertical = outcome.couplings or (None, None)
    values = (
        outcome.method.name,
        outcome.seconds,
        outcome.n_iter,
        outcome.converged,
        level.error(outcome),
        level.digits.log_loss(outcome.ink),
        outcome.pixel_weight,
        horizontal,
        vertical,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _fields(report: Report, page: str, pictures: str) -> dict[str, Any]:
    main = report.main
    methods = [
        {
            "method": outcome.method.name,
            "objective": outcome.method.objective,
            "seconds": outcome.seconds,
            "n_iter": outcome.n_iter,
            "converged": outcome.converged,
            "status": outcome.status,
            "pixel_error": main.error(outcome),
            "standard_error": main.standard_error(outcome),
            "confidence": main.confidence(outcome),
            "log_loss": main.digits.log_loss(outcome.ink),
            "pixel_weight": outcome.pixel_weight,
            "couplings": outcome.couplings,
        }
        for outcome in main.outcomes
    ]
    levels = [
        {
            "noise": level.noise,
            "pixel_error": {o.method.name: level.error(o) for o in level.outcomes},
            "converged": {o.method.name: o.converged for o in level.outcomes},
        }
        for level in report.levels
    ]
    return {
        "noise": main.noise,
        "seed": report.seed,
        "size": main.digits.size,
        "n_train": main.digits.n_train,
        "n_test": len(main.digits.test[0]),
        "methods": methods,
        "levels": levels,
        "page": page,
        "pictures": pictures,
    }
