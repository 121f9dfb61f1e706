"""Alignments as the programs that make them write them: FASTA, A2M and A3M, Stockholm.

* A2M, A3M: FASTA in which lower-case letters and ``.`` are insertions, columns that only some of
  the sequences have.  They are left out, so that sequences have one length.
* Stockholm: ``# STOCKHOLM 1.0``, lines ``name sequence``, in one or several blocks, and ``//``.
  Lines of annotation (``#=GF``, ``#=GC``, ``#=GS``, ``#=GR``) are skipped; insertions, as above,
  are left out.

Letters that the alphabet has are never insertions, and neither are dots that stand for gaps: if
sequences have one length, and would not without them, they are letters outside of the alphabet.
"""

from __future__ import annotations

from dataclasses import replace

from fieldfit._validation import shown
from fieldfit.errors import FileFormatError
from fieldfit.io._text import Source
from fieldfit.io.samples import (
    PROTEIN_ALPHABET,
    Alignment,
    Records,
    decoded_text,
    encoded,
    fasta_records,
    require_alphabet,
)

__all__ = ["is_alignment", "read_alignment"]

_STOCKHOLM = "# STOCKHOLM"


def is_alignment(data: bytes) -> bool:
    """Whether a file begins as alignments do."""
    return data.lstrip().startswith((b">", _STOCKHOLM.encode()))


def read_alignment(
    source: Source, alphabet: str = PROTEIN_ALPHABET, unknown: str | None = None
) -> Alignment:
    r"""Read aligned sequences in FASTA, A2M, A3M or Stockholm form, which the content tells.

    Insertions (lower case, ``.``) are left out.

    Parameters
    ----------
    source
        Path of the file (plain or gzip) or an open binary file.
    alphabet
        Letters, which become their position in it.
    unknown
        The letter that stands in for letters outside of the alphabet (``"-"``, say); ``None``: they
        are refused.

    Returns
    -------
    Alignment
        ``names``, ``labels`` with one row for each sequence, and the alphabet.

    Examples
    --------
    >>> import io
    >>> found = read_alignment(io.BytesIO(b">first\nAC.-\n>second\nCCaA\n"), alphabet="-AC")
    >>> found.names, found.labels.tolist()
    (('first', 'second'), [[1, 2, 0], [2, 2, 1]])
    """
    require_alphabet(alphabet, unknown)
    name, text = decoded_text(source)
    is_stockholm = text.lstrip().startswith(_STOCKHOLM)
    records = _stockholm_records(name, text) if is_stockholm else fasta_records(name, text)
    return encoded(_without_insertions(records, alphabet), alphabet, unknown)


def _without_insertions(records: Records, alphabet: str) -> Records:
    """The sequences without lower-case letters and dots that the alphabet does not have."""
    removed = "".join(set("abcdefghijklmnopqrstuvwxyz.") - set(alphabet))
    table = str.maketrans("", "", removed)
    shorter = [sequence.translate(table) for sequence in records.sequences]
    length = len(shorter[0])
    is_plain = len(set(map(len, records.sequences))) == 1
    if is_plain and (length == 0 or len(set(map(len, shorter))) > 1):
        return records  # no insertions: lower case or dots in columns that all sequences have
    for place, sequence, title in zip(records.places, shorter, records.names, strict=True):
        if len(sequence) != length or length == 0:
            raise FileFormatError(
                f"{records.source}, line {place}: expected sequences of {max(length, 1)} letters "
                f"without insertions (lower case and '.'), found {len(sequence)} in {shown(title)}"
            )
    return replace(records, sequences=shorter)


def _stockholm_records(name: str, text: str) -> Records:
    pieces: dict[str, list[str]] = {}
    places: dict[str, int] = {}
    is_ended = False
    for place, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or line.lstrip().startswith("#"):
            continue
        if is_ended:
            raise FileFormatError(
                f"{name}, line {place}: expected one alignment in a file, found {shown(line)} "
                "after '//'"
            )
        if words == ["//"]:
            is_ended = True
            continue
        if len(words) != 2:
            raise FileFormatError(
                f"{name}, line {place}: expected a name and a sequence, found {shown(line)}"
            )
        pieces.setdefault(words[0], []).append(words[1])
        places.setdefault(words[0], place)
    if not is_ended:
        raise FileFormatError(f"{name}: expected '//' at the end of the alignment, found none")
    if not pieces:
        raise FileFormatError(f"{name}: expected at least one sequence before '//', found none")
    sequences = ["".join(parts) for parts in pieces.values()]
    records = Records(name, list(pieces), sequences, list(places.values()))
    length = len(sequences[0])
    for title, sequence in zip(records.names, sequences, strict=True):
        if len(sequence) != length:
            raise FileFormatError(
                f"{name}, line {places[title]}: expected aligned sequences of {length} letters, "
                f"found {len(sequence)} in {shown(title)}"
            )
    return records
