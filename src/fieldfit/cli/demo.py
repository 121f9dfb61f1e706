"""``fieldfit demo``: restore a noisy picture in several ways, and write a page about it."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fieldfit.cli._output import Reporter, print_json

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fieldfit.cli.demo_methods import Outcome, Study
    from fieldfit.cli.demo_page import Report
    from fieldfit.cli.demo_picture import Restoration

__all__ = ["add_parser", "run"]

#: Log-potential of two neighbours that agree.  Above 0.88 large blobs form without any data
#: (the phase transition of the square lattice), and noise as strong as ours needs about that.
COUPLING = 1.0
#: Pictures up to this size are done exactly too: the width is 20, which takes about three seconds.
MAX_EXACT_SIZE = 20
#: The patch for the bounds, small enough for exact inference at every coupling in a moment.
PATCH_SIZE = 12
STUDY_COUPLINGS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)

DESCRIPTION = """\
Restore a noisy black-and-white picture with independent pixels, belief propagation,
tree-reweighted propagation, mean field and Gibbs sampling (and exactly, if it is small), print a
table and write DIR/index.html: pictures, marginals, convergence curves, bounds.  The first run on
a machine compiles the kernels, which takes most of a minute; later ones take a few seconds.
"""

Step = Callable[[str], None]


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Declare the options of the command."""
    parser = subparsers.add_parser(
        "demo",
        help="restore a noisy picture in several ways and write a page about it",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--out", metavar="DIR", default="demo", help="folder of the page (default: demo)"
    )
    parser.add_argument("--seed", metavar="N", type=_integer(0, None), default=0, help="default: 0")
    parser.add_argument(
        "--size",
        metavar="N",
        type=_integer(8, 2000),
        default=96,
        help=f"pixels along one side (default: 96); up to {MAX_EXACT_SIZE} exact is shown too",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def run(args: argparse.Namespace) -> int:
    """Restore, print, write the page."""
    from fieldfit import __version__
    from fieldfit.cli.demo_page import Report, demo_page
    from fieldfit.cli.demo_picture import Restoration

    os.makedirs(args.out, exist_ok=True)
    problem = Restoration.generate(args.size, args.seed, COUPLING)
    outcomes, study = _compute(problem, args.seed, args.quiet)
    report = Report(problem, outcomes, study, args.seed, __version__)
    path = os.path.join(args.out, "index.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(demo_page(report))
    if args.json:
        print_json(_fields(args, report, path))
    else:
        print(_text_table(report))
    Reporter(quiet=args.quiet or args.json).note(f"page: {path}")
    return 0


def _compute(problem: Restoration, seed: int, quiet: bool) -> tuple[list[Outcome], Study]:
    from fieldfit.cli.demo_methods import METHODS, exact_outcomes, warm_up

    patch = problem.patch(PATCH_SIZE)
    small = [patch.with_coupling(coupling) for coupling in STUDY_COUPLINGS]
    if problem.clean.size <= MAX_EXACT_SIZE**2:
        small.append(problem)
    # On first use exact inference alone compiles for half a minute, and Numba compiles one
    # function at a time in a process: a second process does it meanwhile.
    with _second_process() as pool, _steps(len(METHODS) + 3, quiet) as step:
        waiting = pool.submit(exact_outcomes, small)
        step("first use compiles the kernels")
        warm_up(seed)
        outcomes = []
        for method in METHODS:
            step(method.name)
            outcomes.append(method.restore(problem, seed))
        step("bounds on a patch")
        bounds = _bounds(small[: len(STUDY_COUPLINGS)], seed)
        step("exact inference on the patch")
        exact = waiting.result()
    outcomes += exact[len(STUDY_COUPLINGS) :]
    return outcomes, _study(patch, exact[: len(STUDY_COUPLINGS)], bounds)


def _bounds(problems: list[Restoration], seed: int) -> dict[str, tuple[Outcome, ...]]:
    from fieldfit.cli.demo_methods import BOUND_METHODS

    return {
        method.name: tuple(method.restore(problem, seed) for problem in problems)
        for method in BOUND_METHODS
    }


def _study(
    patch: Restoration, exact: list[Outcome], bounds: dict[str, tuple[Outcome, ...]]
) -> Study:
    from fieldfit.cli.demo_methods import Study

    return Study(patch, STUDY_COUPLINGS, tuple(exact), bounds)


@contextmanager
def _second_process() -> Iterator[Executor]:
    import signal
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # spawned, not forked: a fork would inherit locks of threads that it does not have;
    # an interrupt from the keyboard goes to both processes, and one of them has to report it
    with ProcessPoolExecutor(
        max_workers=1,
        mp_context=get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_DFL),
    ) as pool:
        yield pool


@contextmanager
def _steps(total: int, quiet: bool) -> Iterator[Step]:
    """Yield ``step(name)``: a progress bar on a terminal, a line for each step elsewhere."""
    reporter = Reporter(quiet=quiet)
    if quiet or not sys.stderr.isatty():
        yield lambda name: reporter.note(f"demo: {name}")
        return
    from tqdm import tqdm

    form = "{desc:<32} {bar} {n_fmt}/{total_fmt} [{elapsed}]"
    with tqdm(total=total, file=sys.stderr, leave=False, bar_format=form) as bar:

        def step(name: str) -> None:
            bar.set_description_str(name)
            bar.update(1)

        yield step


# -- output -------------------------------------------------------------------------------


def _text_table(report: Report) -> str:
    from fieldfit.cli.demo_page import bound_words

    problem = report.problem
    lines = [
        f"{'method':<20}{'pixels wrong':>13}{'log-loss':>10}{'seconds':>10}{'converged':>11}"
        f"{'log Z':>12}"
    ]
    for outcome in report.outcomes:
        value = outcome.log_partition
        written = "-" if _is_nan(outcome) else f"{value:.1f}"
        lines.append(
            f"{outcome.name:<20}{problem.n_wrong(outcome.ink):>13}"
            f"{problem.log_loss(outcome.ink):>10.4f}{outcome.seconds:>10.3f}"
            f"{'yes' if outcome.converged else 'no':>11}{written:>12}  {bound_words(outcome)}"
        )
    return "\n".join(line.rstrip() for line in lines)


def _fields(args: argparse.Namespace, report: Report, path: str) -> dict[str, Any]:
    problem, study = report.problem, report.study
    methods = [
        {
            "method": outcome.name,
            "pixels_wrong": problem.n_wrong(outcome.ink),
            "log_loss": problem.log_loss(outcome.ink),
            "seconds": outcome.seconds,
            "converged": outcome.converged,
            "n_iter": outcome.n_iter,
            "log_partition": None if _is_nan(outcome) else outcome.log_partition,
            "bound": outcome.bound,
            "status": outcome.status,
        }
        for outcome in report.outcomes
    ]
    bounds = {
        name: [outcome.log_partition for outcome in outcomes]
        for name, outcomes in study.approximate.items()
    }
    return {
        "size": args.size,
        "seed": args.seed,
        "coupling": problem.coupling,
        "methods": methods,
        "patch": {
            "size": study.patch.clean.shape[0],
            "couplings": list(study.couplings),
            "exact": [outcome.log_partition for outcome in study.exact],
            **bounds,
        },
        "page": path,
    }


def _is_nan(outcome: Outcome) -> bool:
    return math.isnan(outcome.log_partition)


def _integer(low: int, high: int | None) -> Callable[[str], int]:
    limits = f"of at least {low}" if high is None else f"in {low}..{high}"

    def parse(given: str) -> int:
        try:
            value = int(given)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"must be an integer {limits}, got {given!r}")
        return value

    return parse
