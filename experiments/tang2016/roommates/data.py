"""Speed dating: who of a wave matches whom, from what was known before they met.

In a wave every woman meets every man for some minutes, and both say whether they want to meet
again; a match is two yeses.  One person may have several matches or none, so a wave is a b-matching
of a bipartite graph.

Only what the questionnaire before the event says is used, never ratings or decisions of a meeting:

* of a pair: difference of ages and its square, same race and how important that is to both, the
  correlation of interests, whether the same goal, the likeness of habits, and stated wishes times
  the other's opinion of themselves (five qualities, summed over both sides);
* of the two persons, added up: age, how often they go out and date, how happy they expect to be,
  opinions of themselves.  Given everybody's number of matches, the latter say nothing more.
"""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fieldfit.errors import FileFormatError

FloatArray = NDArray[np.float64]

FILE = Path("speed_dating") / "speed_dating.csv.gz"
QUALITIES = ("attr", "sinc", "intel", "fun", "amb")
PAIR_FEATURES = (
    "age difference", "age difference squared", "woman older", "same race",
    "same race times importance", "interests", "same goal", "going out", "dating",
    *(f"wish for {quality}" for quality in QUALITIES),
)  # fmt: skip
PERSON_COLUMNS = ("age", "go_out", "date", "exphappy", *(f"{name}3_1" for name in QUALITIES))
N_PAIR_FEATURES = len(PAIR_FEATURES)
#: Ages are differences from this, in units of five years, so that weights are of one size.
MEAN_AGE = 26.0
#: Answers are scaled to this standard deviation at least; all the same, they say nothing.
SMALLEST_SPREAD = 1e-3


@dataclass(frozen=True)
class Wave:
    """One evening: features ``(women, men, K)``, NaN where two did not meet, and matches 0 or 1.

    The first `N_PAIR_FEATURES` features are those of the pair, the others sums over both persons.
    """

    number: int
    features: FloatArray
    matches: NDArray[np.int32]

    @property
    def degrees(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of matches of the women and of the men."""
        matches = self.matches.astype(np.int64)
        return matches.sum(axis=1), matches.sum(axis=0)

    @property
    def met(self) -> NDArray[np.bool_]:
        """Which pairs met."""
        return np.logical_not(np.isnan(self.features).any(axis=2))


def read_waves(path: Path) -> list[Wave]:
    """All waves of the table of meetings; missing answers are the mean of all people."""
    text = gzip.decompress(path.read_bytes()).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    if not rows or not {"iid", "pid", "wave", "match"} <= set(rows[0]):
        raise FileFormatError(f"{path}: expected the columns iid, pid, wave and match")
    people = {row["iid"]: row for row in rows}
    answers = _answers(people)
    waves = []
    for number in sorted({int(row["wave"]) for row in rows}):
        # every meeting is told twice, by her and by him
        meetings = [
            row
            for row in rows
            if int(row["wave"]) == number and row["gender"] == "0" and row["pid"] in people
        ]
        waves.append(_wave(number, meetings, answers))
    return waves


def _answers(people: dict[str, dict[str, str]]) -> dict[str, dict[str, float]]:
    """Numbers of everybody; wishes are shares of their sum, because waves had different scales."""
    wishes = [f"{name}1_1" for name in QUALITIES]
    columns = [*PERSON_COLUMNS, *wishes, "imprace", "goal"]
    table = np.array(
        [[_number(person[column]) for column in columns] for person in people.values()]
    )
    chosen = [columns.index(name) for name in wishes]
    table[:, chosen] /= table[:, chosen].sum(axis=1, keepdims=True)
    means = np.nanmean(table, axis=0)
    table = np.where(np.isnan(table), means, table)
    scaled = [columns.index(name) for name in PERSON_COLUMNS if name != "age"]
    spread = np.maximum(table[:, scaled].std(axis=0), SMALLEST_SPREAD)
    table[:, scaled] = (table[:, scaled] - means[scaled]) / spread
    return {
        iid: dict(zip(columns, row.tolist(), strict=True))
        for iid, row in zip(people, table, strict=True)
    }


def _number(text: str) -> float:
    return float(text) if text else np.nan


def _wave(
    number: int, meetings: list[dict[str, str]], answers: dict[str, dict[str, float]]
) -> Wave:
    women = {iid: k for k, iid in enumerate(dict.fromkeys(row["iid"] for row in meetings))}
    men = {pid: k for k, pid in enumerate(dict.fromkeys(row["pid"] for row in meetings))}
    n_features = N_PAIR_FEATURES + len(PERSON_COLUMNS)
    features = np.full((len(women), len(men), n_features), np.nan)
    matches = np.zeros((len(women), len(men)), dtype=np.int32)
    for row in meetings:
        i, j = women[row["iid"]], men[row["pid"]]
        she, he = answers[row["iid"]], answers[row["pid"]]
        sums = [she[column] + he[column] for column in PERSON_COLUMNS]
        sums[0] = (sums[0] - 2.0 * MEAN_AGE) / 5.0
        features[i, j] = [*_pair(row, she, he), *sums]
        matches[i, j] = int(row["match"])
    return Wave(number, features, matches)


def _pair(row: dict[str, str], she: dict[str, float], he: dict[str, float]) -> list[float]:
    """Features of a pair, in the order of `PAIR_FEATURES`."""
    years = abs(she["age"] - he["age"]) / 5.0
    same_race = _number(row["samerace"])
    interests = _number(row["int_corr"])
    wishes = [
        she[f"{name}1_1"] * he[f"{name}3_1"] + he[f"{name}1_1"] * she[f"{name}3_1"]
        for name in QUALITIES
    ]
    return [
        years,
        years**2,
        float(she["age"] > he["age"]),
        same_race,
        same_race * (she["imprace"] + he["imprace"]) / 10.0,
        0.0 if np.isnan(interests) else interests,
        float(she["goal"] == he["goal"]),
        -abs(she["go_out"] - he["go_out"]),
        -abs(she["date"] - he["date"]),
        *wishes,
    ]
