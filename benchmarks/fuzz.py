"""Files that were tampered with: every one is read, or refused in one sentence.

python -m benchmarks.fuzz [--mutants N] [--seed S] [--case K] [--only WORDS] [--write PAGE]

Each mutant of each format (`benchmarks.fuzz_corpus`) must be read, or refused by one of fieldfit's
own errors, within a few seconds and a gigabyte.  Anything else is a crash, and is printed with its
number, by which ``--case`` runs it again.  Mutants run in a process of their own, whose memory is
limited; if it dies, the mutant that killed it is a crash too, and another process goes on.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.fuzz_corpus import Format, formats
from benchmarks.pages import replace_section, stamp
from fieldfit.errors import InvalidInputError

__all__ = ["Report", "fuzz", "main"]

#: Processor seconds and bytes that one mutant may take.
SECONDS, BYTES = 10.0, 1e9


@dataclass
class Report:
    """How many mutants were read and refused, by format, and the crashes."""

    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    crashes: dict[int, str] = field(default_factory=dict)

    @property
    def n_mutants(self) -> int:
        return self.read.total() + self.refused.total() + len(self.crashes)


def fuzz(n_mutants: int, seed: int = 0, only: str = "") -> Report:
    """Try mutants ``0 .. n_mutants - 1`` of a seed; formats take turns."""
    report, first = Report(), 0
    context = multiprocessing.get_context("spawn")
    while first < n_mutants:
        answers, sender = context.Pipe(duplex=False)
        # the folder is removed here, because the process may die
        with tempfile.TemporaryDirectory() as folder:
            arguments = (sender, Path(folder), first, n_mutants, seed, only)
            child = context.Process(target=_work, args=arguments)
            child.start()
            sender.close()
            first = _collect(answers, report, first)
            child.join()
    return report


def _collect(answers: Any, report: Report, first: int) -> int:
    """Take the answers of a process until it ends; the number of the next mutant."""
    number = first
    while True:
        try:
            number, name, verdict = answers.recv()
        except EOFError:  # it died without a word, in the mutant after its last answer
            report.crashes[number] = "the process died"
            return number + 1
        if verdict == "end":
            return number
        if verdict == "read":
            report.read[name] += 1
        elif verdict == "refused":
            report.refused[name] += 1
        else:
            report.crashes[number] = f"{name}: {verdict}"
        number += 1


def _work(sender: Any, folder: Path, first: int, last: int, seed: int, only: str) -> None:
    chosen = [one for one in formats(folder) if only in one.name]
    _limit_memory()
    for number in range(first, last):
        one = chosen[number % len(chosen)]
        sender.send((number, one.name, tried(one, mutant(one, seed, number))))
    sender.send((last, "", "end"))


def mutant(one: Format, seed: int, number: int) -> bytes:
    """The mutant of a number."""
    rng = np.random.default_rng([seed, number])
    example, other = (one.examples[int(rng.integers(len(one.examples)))] for _ in range(2))
    return one.mutate(example, rng, other)


def tried(one: Format, data: bytes) -> str:
    """``"read"``, ``"refused"``, or what went wrong."""
    try:
        with _time_limit():
            one.read(data)
    except InvalidInputError as error:
        message = str(error)
        is_sentence = bool(message) and "\n" not in message and len(message) < 2000
        return "refused" if is_sentence else f"no sentence: {message[:200]!r}"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {last.filename}:{last.lineno}: {str(error)[:200]}"
    return "read"


class _TooSlow(BaseException):
    """No reader may catch it."""


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooSlow(f"more than {SECONDS:g} seconds")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _limit_memory() -> None:
    """Let the process take so many bytes more than it has now."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = int(pages * resource.getpagesize() + BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def table(report: Report) -> list[str]:
    """Lines of a page."""
    crashes = Counter(what.split(":")[0] for what in report.crashes.values())
    names = sorted({*report.read, *report.refused, *crashes})
    rows = [
        f"| {name} | {report.read[name]} | {report.refused[name]} | {crashes[name]} |"
        for name in names
    ]
    total = f"{report.n_mutants} mutants, {len(report.crashes)} crashes."
    return ["| format | read | refused | crashes |", "|---|---|---|---|", *rows, "", total]


def main() -> int:
    """Run and print; the exit status says whether there was a crash."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="formats whose name has these words")
    parser.add_argument("--write", type=Path, help="page with a section 'fuzz'")
    parser.add_argument("--case", type=int, help="one mutant, in this process, with its traceback")
    args = parser.parse_args()
    if args.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            chosen = [one for one in formats(Path(folder)) if args.only in one.name]
            one = chosen[args.case % len(chosen)]
            data = mutant(one, args.seed, args.case)
            print(f"{one.name}, {len(data)} bytes: {data[:2000]!r}")
            one.read(data)
        return 0
    report = fuzz(args.mutants, args.seed, args.only)
    if args.write:
        command = f"python -m benchmarks.fuzz --mutants {args.mutants} --seed {args.seed}"
        replace_section(args.write, "fuzz", [stamp(command), "", *table(report)])
    for name in sorted({*report.read, *report.refused}):
        print(f"{name:<45} {report.read[name]:>6} read {report.refused[name]:>6} refused")
    for number, what in report.crashes.items():
        print(f"CRASH --seed {args.seed} --case {number}: {what}")
    print(f"{report.n_mutants} mutants, {len(report.crashes)} crashes")
    return 1 if report.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
