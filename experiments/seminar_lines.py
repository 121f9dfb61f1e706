"""Where a token stands in a mail: its line, the header above it, what the header says.

Announcements are laid out for the eye.  A block of headers (``Who:``, ``Time:``, ``Place:``) comes
first and ends with ``Abstract:``; further down names and places have lines of their own, centred or
behind words like ``SPEAKER:``.  All of this is read from the text alone, without the tags of
sentences and paragraphs, so that it works on untagged mails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.seminars_reader import SeminarMail
from fieldfit.features.text import Features

__all__ = ["Line", "add_header_words", "add_lines", "mail_lines"]

#: ``Who:``, and further down `` SPEAKER :``; what is longer is a clause, not a header.
_HEADER = re.compile(r"[ \t>*]*([A-Za-z][A-Za-z /()]{0,24}?)\s*:")
#: The last header of the block at the top.
LAST_HEADER = "abstract"
#: Headers whose words are looked for in the body.
QUOTED_HEADERS = ("who", "topic", "place", "postedby")
#: Longer headers agree in their first letters or are too rare to be learned.
MAX_HEADER = 16
#: From here on numbers are alike: words in a line, place in it, widths of indentation in tabs.
MAX_LENGTH, MAX_COLUMN, MAX_INDENT = 12, 6, 4
#: Kinds of all words of a line are one feature up to this length.
SHORT_LINE = 6
#: Words of a line that are features of its other words.
MAX_LINE_WORDS = 15


@dataclass(frozen=True)
class Line:
    """One line that has tokens.

    Attributes
    ----------
    begin, end
        Its tokens.
    is_head
        Whether it belongs to the block of headers at the top.
    header
        Its own header in lower case, or nothing.
    section
        The last header at or above it, with a mark if an empty line came since.
    indent
        Blanks before its first word, in widths of a tab, and whether they are tabs.
    above
        First and last word of the last line above that is not empty.
    gap_above, gap_below
        Whether the next line above (below) is empty.
    """

    begin: int
    end: int
    is_head: bool
    header: str
    section: str
    indent: str
    above: tuple[str, str]
    gap_above: bool
    gap_below: bool

    @property
    def part(self) -> str:
        return "head" if self.is_head else "body"


def mail_lines(mail: SeminarMail) -> list[Line]:
    """The lines of a mail that have tokens."""
    texts = mail.line_texts
    counts = [0] * len(texts)
    for number in mail.lines.tolist():
        counts[number] += 1
    found: list[Line] = []
    begin, section, above, is_head = 0, "", ("", ""), True
    for number, (text, count) in enumerate(zip(texts, counts, strict=True)):
        if not count:
            # once for several empty lines
            section = section.removesuffix(" ...") + " ..."
            continue
        match = _HEADER.match(text)
        header = match[1].strip().lower()[:MAX_HEADER] if match else ""
        section = header or section
        words = re.findall(r"\w+", text.lower()) or [text.strip()]
        blanks = text[: len(text) - len(text.lstrip())]
        indent = f"{min(len(blanks) // 8, MAX_INDENT)}{' tab' if chr(9) in blanks else ''}"
        found.append(
            Line(
                begin=begin,
                end=begin + count,
                is_head=is_head,
                header=header,
                section=section,
                indent=indent,
                above=above,
                gap_above=number > 0 and not counts[number - 1],
                gap_below=number + 1 < len(texts) and not counts[number + 1],
            )
        )
        is_head = is_head and header != LAST_HEADER
        above = (words[0], words[-1])
        begin += count
    return found


def add_lines(
    features: Sequence[Features],
    lines: Sequence[Line],
    words: Sequence[str],
    kinds: Sequence[str],
) -> None:
    """Add header, place, indentation and company of every token in its line.

    ``words`` are in lower case, ``kinds`` what sort of word each is.
    """
    for line in lines:
        length = line.end - line.begin
        pattern = " ".join(kinds[line.begin : line.end]) if length <= SHORT_LINE else "long"
        company = [
            f"line:{word}"
            for word in words[line.begin : line.begin + min(length, MAX_LINE_WORDS)]
            if word[0].isalpha()
        ]
        where = f"{line.part} {line.section}"
        common: Features = {
            "section": where,
            "part": line.part,
            "indent": line.indent,
            "length": str(min(length, MAX_LENGTH)),
            "line": pattern,
            "above first": line.above[0],
            "above last": line.above[1],
            "gap above": line.gap_above,
            "gap below": line.gap_below,
            **dict.fromkeys(company, True),
        }
        for position in range(line.begin, line.end):
            kind = kinds[position]
            column = min(position - line.begin, MAX_COLUMN)
            token = features[position]
            token.update(common)
            token["section|kind"] = f"{where}|{kind}"
            token["header|column"] = f"{line.header}|{column}"
            token["part|kind"] = f"{line.part}|{kind}"
            token["indent|kind"] = f"{line.indent}|{kind}"
            token["length|kind|column"] = f"{min(length, MAX_LENGTH)}|{kind}|{min(column, 3)}"
            token["line|column"] = f"{pattern}|{column}"
        features[line.begin]["begins line"] = True
        features[line.end - 1]["ends line"] = True


def add_header_words(
    features: Sequence[Features],
    lines: Sequence[Line],
    words: Sequence[str],
    kinds: Sequence[str],
) -> None:
    """Mark words that also stand behind ``Who:``, ``Topic:``, ``Place:`` or ``PostedBy:``."""
    quoted: dict[str, set[str]] = {}
    header = ""
    for line in lines:
        if line.is_head:
            header = line.header or header  # names and places may take several lines
            if header in QUOTED_HEADERS:
                quoted.setdefault(header, set()).update(words[line.begin : line.end])
    for line in lines:
        for position in range(line.begin, line.end):
            if len(words[position]) > 2:
                for header, values in quoted.items():
                    if words[position] in values:
                        token = features[position]
                        token[f"in {header}"] = True
                        token[f"in {header}|kind"] = f"{line.part}|{kinds[position]}"
