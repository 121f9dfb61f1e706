"""The public API: nothing is added, changed or removed unnoticed."""

from __future__ import annotations

import difflib
from pathlib import Path

import public_api

import fieldfit


def test_the_public_api_is_the_committed_list():
    committed = public_api.FILE.read_text().splitlines()
    current = public_api.public_api().splitlines()
    changes = [
        line
        for line in difflib.unified_diff(committed, current, lineterm="", n=0)
        if line[0] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert not changes, (
        "the public API has changed; if that is on purpose, see docs/versions.md, run "
        "`python tests/public_api.py`, and say so in CHANGELOG.md:\n" + "\n".join(changes)
    )


def test_the_list_shows_a_change():
    lines = public_api.public_api().splitlines()
    assert any(line.startswith("fieldfit.GridCRF(objective=") for line in lines)
    assert any(line.startswith("fieldfit.GridCRF.fit(self, X, Y") for line in lines)
    assert len(lines) > 500


def test_types_are_announced():
    assert (Path(fieldfit.__file__).parent / "py.typed").exists()
