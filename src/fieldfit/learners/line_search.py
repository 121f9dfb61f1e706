"""Line searches: strong Wolfe conditions with noisy values, slopes alone, and orthants (OWL-QN).

`wolfe_search` looks for a step ``t`` with enough decrease and a flatter slope,

    f(t) <= f(0) + c1 t f'(0)    and    |f'(t)| <= c2 |f'(0)|,

by cubic interpolation inside a bracket that shrinks, and extrapolation while there is none (More
and Thuente, "Line search algorithms with guaranteed sufficient decrease", ACM Trans. Mathematical
Software 20, 1994).  Values come from iterative inference and agree only to some digits, while
slopes stay good to the end.  Where two values are equal up to that noise, the decrease is
therefore judged by the slope, ``f'(t) <= (2 c1 - 1) f'(0)``, which for a parabola is the same
condition (Hager and Zhang, "A new conjugate gradient method with guaranteed descent", SIAM J.
Optimization 16, 2005).

`slope_search` asks only for the second condition.  It is for vector fields that are nearly, but not
quite, the gradient of a function (contrastive free energies leave a term out): there is nothing to
decrease, but a zero of the field can be looked for in the same way.

`orthant_search` halves or interpolates a step that is projected on an orthant, where there is no
slope to use (Andrew and Gao 2007).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Search", "orthant_search", "slope_search", "wolfe_search"]

#: Least decrease, as a fraction of what the slope predicts.
DECREASE = 1e-4
#: Largest slope at the end, as a share of that at the beginning; 0.9 accepts nearly every full
#: quasi-Newton step, so that an iteration is one evaluation.
SLOPE = 0.9
#: Evaluations in one search; 20 shrink a bracket by at least 1e-6.
MAX_EVALUATIONS = 20
#: Evaluations between two slopes of different signs, before this is taken for a jump.
MAX_INSIDE = 8
#: Extrapolation goes at least and at most so many times the last stride further.
SHORTEST_STRIDE, LONGEST_STRIDE = 1.1, 4.0
#: An interpolated step keeps this share of the bracket from either end.
MARGIN = 0.1
#: A step to a point that is not finite is multiplied by this.
RETREAT = 0.1


@dataclass(frozen=True)
class Search:
    """The last step that was evaluated, and whether it may be taken."""

    step: float
    is_good: bool


@dataclass(frozen=True)
class _End:
    """One end of the bracket; the slope is NaN where the value is not finite."""

    step: float
    value: float
    slope: float


def wolfe_search(
    evaluate: Callable[[float], tuple[float, float]],
    value: float,
    slope: float,
    step: float,
    noise: float,
) -> Search:
    """A step that meets the conditions above.

    ``evaluate`` gives value and slope after a step, ``value`` and ``slope < 0`` are those of step
    0, ``step`` is tried first, and ``noise`` is how far values may be wrong.  If none is found,
    the lowest step with enough decrease is evaluated again and returned.
    """
    low, high = _End(0.0, value, slope), None
    previous_width = math.inf
    for _ in range(MAX_EVALUATIONS):
        new_value, new_slope = evaluate(step)
        if not (math.isfinite(new_value) and math.isfinite(new_slope)):
            high = _End(step, math.inf, math.nan)
            step = low.step + RETREAT * (step - low.step)
            continue
        new = _End(step, new_value, new_slope)
        is_lower = new_value <= value + DECREASE * step * slope or (
            abs(new_value - value) <= noise and new_slope <= (2.0 * DECREASE - 1.0) * slope
        )
        if is_lower and abs(new_slope) <= -SLOPE * slope:
            return Search(step, True)
        # the minimum lies before `new` if it is uphill there, or higher than the low end
        if new_slope >= 0.0 or not is_lower or new_value > low.value + noise:
            high = new
        elif high is None:
            step = _extrapolated(low, new)
            low = new
            continue
        else:
            low = new
        width = abs(high.step - low.step)
        if width <= 1e-15 * max(high.step, low.step):
            break
        step = _interpolated(low, high, noise)
        if width > 0.66 * previous_width:  # interpolation sticks to one end
            step = 0.5 * (low.step + high.step)
        previous_width = width
    if low.value < value:
        evaluate(low.step)
    return Search(low.step, low.value < value)


def slope_search(
    evaluate: Callable[[float], tuple[float, float]], slope: float, step: float
) -> Search:
    """A step after which the slope is flatter, whatever the values are.

    Steps grow while the slope stays as steep, and where it changes sign the secant is followed.  If
    the slope jumps from one sign to the other, the step ends just before the jump.
    """
    low, low_slope = 0.0, slope
    high, high_slope = math.inf, math.nan
    n_inside = 0
    for _ in range(MAX_EVALUATIONS):
        new_value, new_slope = evaluate(step)
        if not (math.isfinite(new_value) and math.isfinite(new_slope)):
            high, high_slope = step, math.nan
        elif abs(new_slope) <= -SLOPE * slope:
            return Search(step, True)
        elif new_slope < 0.0:
            low, low_slope = step, new_slope
        else:
            high, high_slope = step, new_slope
        n_inside += low > 0.0 and high_slope > 0.0
        if n_inside > MAX_INSIDE:
            break
        if math.isinf(high):
            step *= LONGEST_STRIDE
        elif math.isnan(high_slope):
            step = low + RETREAT * (high - low)
        else:
            fraction = low_slope / (low_slope - high_slope)
            step = low + min(max(fraction, MARGIN), 1.0 - MARGIN) * (high - low)
    is_jump = low > 0.0 and not math.isinf(high)
    if is_jump:
        evaluate(low)
    return Search(low, is_jump)


def orthant_search(
    evaluate: Callable[[float], tuple[float, float]], value: float, slope: float, step: float
) -> Search:
    """The first of shorter and shorter steps that decreases the value enough.

    ``evaluate`` gives the value after a projected step and what the (pseudo-)gradient predicts
    for it, a negative number.
    """
    for _ in range(MAX_EVALUATIONS):
        new_value, predicted = evaluate(step)
        if new_value <= value + DECREASE * predicted and predicted < 0.0:
            return Search(step, True)
        if not math.isfinite(new_value):
            step *= RETREAT
            continue
        if abs(predicted) <= 1e-16 * abs(value):
            break
        # minimum of the parabola through both values with the slope at 0
        bend = new_value - value - step * slope
        shorter = -0.5 * slope * step / bend if bend > 0.0 else 0.5
        step *= min(max(shorter, MARGIN), 0.5)
    return Search(step, False)


def _extrapolated(low: _End, new: _End) -> float:
    """A step beyond ``new``, where the slope is still falling steeply."""
    stride = new.step - low.step
    guess = _cubic_minimum(low, new)
    shortest, longest = new.step + SHORTEST_STRIDE * stride, new.step + LONGEST_STRIDE * stride
    if guess is None or guess <= new.step:
        return longest
    return min(max(guess, shortest), longest)


def _interpolated(low: _End, high: _End, noise: float) -> float:
    """A step inside the bracket."""
    begin, width = low.step, high.step - low.step
    guess = None
    if math.isfinite(high.value):
        if abs(high.value - low.value) > noise:
            guess = _cubic_minimum(low, high)
        elif high.slope > low.slope:  # the values are equal: where the slopes meet zero
            guess = begin - low.slope * width / (high.slope - low.slope)
    if guess is None:
        return begin + (0.5 if math.isfinite(high.value) else RETREAT) * width
    return begin + min(max((guess - begin) / width, MARGIN), 1.0 - MARGIN) * width


def _cubic_minimum(first: _End, second: _End) -> float | None:
    """Where the cubic through two values and slopes has its minimum, if it has one."""
    width = second.step - first.step
    mean = first.slope + second.slope - 3.0 * (second.value - first.value) / width
    squared = mean * mean - first.slope * second.slope
    if not squared >= 0.0:
        return None
    root = math.copysign(math.sqrt(squared), width)
    bottom = second.slope - first.slope + 2.0 * root
    if bottom == 0.0:
        return None
    return second.step - width * (second.slope + root - mean) / bottom
