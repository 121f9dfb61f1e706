"""What ``fieldfit demo`` says about its numbers; a comparison is only made if it holds."""

from __future__ import annotations

from collections.abc import Sequence

from fieldfit.demo.demo_methods import Level, Outcome

__all__ = ["findings", "percent"]

#: A mean probability this far above the accuracy is worth a sentence.
OVERCONFIDENT = 0.01
#: Weights that differ by a smaller share are called equal, and so are errors that differ by less
#: than so many standard errors.
CLEARLY, N_STANDARD_ERRORS = 0.05, 2.0


def percent(share: float) -> str:
    """One decimal and a space that does not break: ``6.0 %``."""
    return f"{100.0 * share:.1f}\N{NO-BREAK SPACE}%"


def findings(levels: Sequence[Level], main: Level) -> list[str]:
    """Paragraphs about the run."""
    paragraphs = [
        _ranking(main),
        _pseudo_likelihood(levels, main),
        _confidence(main),
        _unconverged(levels),
    ]
    return [words for words in paragraphs if words]


def _ranking(level: Level) -> str:
    ranked = sorted(level.outcomes, key=level.error)
    places = [f"{_the(o)} ({percent(level.error(o))})" for o in ranked]
    return f"Wrong test pixels, from the fewest to the most: {_listed(places)}."


def _pseudo_likelihood(levels: Sequence[Level], main: Level) -> str:
    """Why it differs from the TRW surrogate, though model and inference are the same."""
    pseudo, trw, alone = (main.find(name) for name in ("pseudolikelihood", "trw", None))
    assert pseudo.couplings is not None
    assert trw.couplings is not None
    words = (
        "Pseudo-likelihood and the TRW surrogate have the same model, and both restore with the "
        "same tree-reweighted message passing: only the learned weights differ. "
        f"Pseudo-likelihood has couplings of {_numbers(pseudo.couplings)} and a pixel weight of "
        f"{pseudo.pixel_weight:.2f}, the TRW surrogate has couplings of {_numbers(trw.couplings)} "
        f"and a pixel weight of {trw.pixel_weight:.2f}. While pseudo-likelihood learns, it is "
        "shown the true labels of a pixel's neighbours, which nobody knows when a picture is "
        "restored"
    )
    trusts_neighbours = sum(pseudo.couplings) > (1.0 + CLEARLY) * sum(trw.couplings)
    trusts_pixel_less = pseudo.pixel_weight < (1.0 - CLEARLY) * trw.pixel_weight
    if trusts_neighbours and trusts_pixel_less:
        words += "; so it comes to trust neighbours more, and what was seen less"
    words += "."
    if _is_clearly_worse(main, pseudo, alone):
        words += (
            f" With {percent(main.error(pseudo))} it is here even worse than ignoring neighbours "
            f"({percent(main.error(alone))})."
        )
    ends = [levels[0], levels[-1]] if len(levels) > 1 else []
    times = [(level.noise, _ratio(level, "pseudolikelihood", "trw")) for level in ends]
    if times and all(ratio is not None for _, ratio in times):
        (low, at_low), (high, at_high) = times
        words += (
            f" At noise {low:g} it makes {at_low:.1f} times as many mistakes as the TRW surrogate, "
            f"and {at_high:.1f} times as many at noise {high:g}."
        )
    return words


def _confidence(level: Level) -> str:
    """Methods whose probabilities promise more than they keep."""
    too_sure = [
        f"{_the(o)} is sure of {percent(level.confidence(o))} and right in "
        f"{percent(1.0 - level.error(o))}"
        for o in level.outcomes
        if level.confidence(o) - (1.0 - level.error(o)) > OVERCONFIDENT
    ]
    if not too_sure:
        return ""
    return (
        "Probabilities should be as high as the share of pixels that turn out right. Too high, on "
        f"average: {'; '.join(too_sure)}."
    )


def _unconverged(levels: Sequence[Level]) -> str:
    """Fits that ended early: their numbers are those of the last iteration."""
    cases = [
        f"{_the(outcome)} at noise {level.noise:g} ({outcome.status.rstrip('.')})"
        for level in levels
        for outcome in level.outcomes
        if not outcome.converged
    ]
    return f"Training did not converge for {_listed(cases)}." if cases else ""


def _is_clearly_worse(level: Level, one: Outcome, other: Outcome) -> bool:
    """Whether mistakes picture by picture differ by more than chance would make them."""
    excess = level.digits.errors(one.ink) - level.digits.errors(other.ink)
    return bool(excess.mean() > N_STANDARD_ERRORS * excess.std(ddof=1) / len(excess) ** 0.5)


def _ratio(level: Level, objective: str, other: str) -> float | None:
    """Mistakes of one method for each of another's; ``None`` if that has none."""
    below = level.error(level.find(other))
    return level.error(level.find(objective)) / below if below > 0.0 else None


def _the(outcome: Outcome) -> str:
    name = outcome.method.name
    return f"the {name}" if name.endswith("surrogate") else name


def _numbers(values: tuple[float, float]) -> str:
    return f"{values[0]:.2f} and {values[1]:.2f}"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
