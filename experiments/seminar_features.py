"""Features of seminar announcements: those of any text, and what is special about times and names.

`fieldfit.features.text` gives words, shapes, affixes, neighbours and conjunctions.  Added here are
the kind of a word (clock, room, title, ...), its place in the layout (`experiments.seminar_lines`),
times that equal those of the header, and the run of capitalised words that a token is part of: a
name or a building is known by what stands before and behind the whole of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from experiments.seminar_lines import Line, add_header_words, add_lines, mail_lines
from experiments.seminars_reader import SeminarMail
from fieldfit.features.text import Features, TextFeatures, document_features

__all__ = ["clock_minutes", "mail_features", "word_kind"]

#: A mail is one sequence, because fields run over the ends of lines; so nothing that tells
#: sentences apart.
OPTIONS = TextFeatures(
    window=4, nearby=0, place=False, topic=False, spelling=True, context=False, acronyms=False
)

#: Kinds of words, first match wins; words in lower case.
_KINDS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("clock", r"\d{1,2}[:.]\d{2}"),
        ("half-day", r"[ap]\.?m\.?|noon|midnight"),
        ("year", r"19[89]\d"),
        ("room", r"\d{3,4}[a-z]?"),
        ("hour", r"\d|1[0-2]"),
        ("number", r"\d+"),
        ("title", r"(dr|mr|mrs|ms|profs?)\.?|professors?"),
        ("day", r"(mon|tue|wednes|wed|thu|thurs|fri|satur|sat|sun)(day)?|tues(day)?|thur"),
        (
            "month",
            r"jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?"
            r"|oct(ober)?|nov(ember)?|dec(ember)?",
        ),
    )
)
#: Kinds of which names of people and places consist.
CAPITALISED = frozenset(("Capitalised", "CAPITALS", "MiXed", "title", "initial"))
#: Words of which one makes a run of capitalised words a place.
PLACES = frozenset((
    "auditorium", "ballroom", "building", "campus", "center", "centre", "chapel", "conference",
    "floor", "hall", "institute", "library", "lobby", "lounge", "rm", "rm.", "room", "theater",
    "theatre", "wing",
))  # fmt: skip
#: Words between two times.
UNTIL = frozenset(("to", "until", "till", "through"))
#: Words before and behind a run that are marked.
REACH = 6
#: A word that occurs as often as this is frequent.
MAX_OCCURRENCES = 4


def mail_features(mail: SeminarMail) -> list[Features]:
    r"""Feature dictionaries of the tokens of one mail.

    >>> from experiments.seminars_reader import parse_mail
    >>> tokens = mail_features(parse_mail("Time: 4:00 PM\nAbstract:\nDr. Ann Lee speaks at 4 pm"))
    >>> tokens[2]["kind"], tokens[11]["start time"], tokens[7]["run behind"]
    ('clock', 'body', 'speaks')
    """
    words = [word.lower() for word in mail.tokens]
    kinds = [word_kind(word) for word in mail.tokens]
    lines = mail_lines(mail)
    (features,) = document_features([mail.tokens], tags={"kind": [kinds]}, options=OPTIONS)
    add_lines(features, lines, words, kinds)
    add_header_words(features, lines, words, kinds)
    _add_times(features, lines, words, kinds)
    _add_runs(features, lines, words, kinds)
    _add_repeats(features, words, kinds)
    return features


@lru_cache(maxsize=2**16)
def word_kind(word: str) -> str:
    """What sort of word: time, number, title, date, or how it is written.

    >>> [word_kind(word) for word in ("3:30", "p.m.", "5409", "Dr.", "W.", "Wean", "DARPA", "-")]
    ['clock', 'half-day', 'room', 'title', 'initial', 'Capitalised', 'CAPITALS', '-']
    """
    if re.fullmatch(r"[A-Z]\.", word):
        return "initial"
    folded = word.lower()
    for name, pattern in _KINDS:
        if pattern.fullmatch(folded):
            return name
    if not word[0].isalpha():
        return word[0]
    if word[0].islower():
        return "lower"
    if word[1:].islower() or len(word) == 1:
        return "Capitalised"
    return "CAPITALS" if word.isupper() else "MiXed"


def clock_minutes(word: str, kind: str) -> int | None:
    """Minutes after twelve o'clock, noon or midnight; ``None`` if the word is no time.

    >>> clock_minutes("3:30", "clock"), clock_minutes("12", "hour"), clock_minutes("pm", "half-day")
    (210, 0, None)
    """
    if kind == "clock":
        hours, minutes = re.split("[:.]", word)
        return int(hours) % 12 * 60 + int(minutes)
    if kind == "hour":
        return int(word) % 12 * 60
    return 0 if word in ("noon", "midnight") else None


def _add_times(
    features: Sequence[Features], lines: Sequence[Line], words: Sequence[str], kinds: Sequence[str]
) -> None:
    """Compare times with the one or two of the header ``Time:``, and find what is between two."""
    minutes = [clock_minutes(word, kind) for word, kind in zip(words, kinds, strict=True)]
    header = [
        time
        for line in lines
        if line.is_head and line.header == "time"
        for time in minutes[line.begin : line.end]
        if time is not None
    ]
    for line in lines:
        for position in range(line.begin, line.end):
            time, token = minutes[position], features[position]
            if time is None and kinds[position] == "half-day" and position:
                time = minutes[position - 1]  # pm of 3:30 pm
            if time is None:
                continue
            for place, name in enumerate(("start time", "end time")):
                if len(header) > place:
                    same = time == header[place]
                    token[name if same else f"not {name}"] = line.part
            if not header:
                token["no header time"] = True
            for distance in (1, 2, 3):
                for side, step in (("before", -distance), ("behind", distance)):
                    near = position + step
                    if 0 <= near < len(words) and (words[near][0] == "-" or words[near] in UNTIL):
                        token[f"until {side} {distance}"] = True


def _add_runs(
    features: Sequence[Features], lines: Sequence[Line], words: Sequence[str], kinds: Sequence[str]
) -> None:
    """Add what surrounds the run of capitalised words in its line that a token belongs to."""
    for line in lines:
        begin = line.begin
        while begin < line.end:
            if kinds[begin] not in CAPITALISED:
                begin += 1
                continue
            end = begin + 1
            while end < line.end and kinds[end] in CAPITALISED:
                end += 1
            run = _run_features(line, begin, end, words, kinds)
            for position in range(begin, end):
                token = features[position]
                token.update(run)
                token["run place"] = f"{min(position - begin, 4)}/{min(end - begin, 5)}"
            begin = end


def _add_repeats(features: Sequence[Features], words: Sequence[str], kinds: Sequence[str]) -> None:
    """Mark capitalised words that follow a title anywhere in the mail, and count occurrences."""
    titled: set[str] = set()
    for position, kind in enumerate(kinds):
        if kind == "title":
            named = position + 1
            while named < len(words) and kinds[named] == "initial":
                named += 1
            titled.update(words[named : named + 1])
    counts = Counter(words)
    for token, word, kind in zip(features, words, kinds, strict=True):
        if kind in CAPITALISED:
            token["occurrences"] = str(min(counts[word], MAX_OCCURRENCES))
            token["titled"] = word in titled


def _run_features(
    line: Line, begin: int, end: int, words: Sequence[str], kinds: Sequence[str]
) -> Features:
    """Features that all words of a run share."""

    def at(position: int) -> str:
        return words[position] if 0 <= position < len(words) else ""

    before = at(begin - 1) if begin > line.begin else "gap" if line.gap_above else "line"
    behind = at(end) if end < line.end else "gap" if line.gap_below else "line"
    pattern = " ".join(kinds[begin : min(end, begin + 5)])
    run: Features = {
        "run before": before,
        "run behind": behind,
        "run between": f"{before}|{behind}",
        "run pattern": pattern,
        "run before|pattern": f"{before}|{pattern}",
        "run behind|pattern": f"{behind}|{pattern}",
        "run two before": f"{at(begin - 2)}|{at(begin - 1)}",
        "run two behind": f"{at(end)}|{at(end + 1)}",
        "run first": words[begin],
        "run last": words[end - 1],
        "run names place": any(word in PLACES for word in words[begin:end]),
    }
    run.update((f"run:{word}", True) for word in words[begin:end])
    for side, near in (
        ("before", range(begin - REACH, begin)),
        ("behind", range(end, end + REACH)),
    ):
        run.update((f"{side} run:{at(place)}", True) for place in near if at(place).isalpha())
    return run
