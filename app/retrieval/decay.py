"""Decay: the importance that a memory still has after a time without access.

    importance = max(min(base, floor), base * factor ** (max(0, idle_days - grace_days) / 30))

The functions are pure and depend only on stored anchors and the time, so repeated computation gives the same numbers.
The exponential form follows forgetting curves (Ebbinghaus 1885), after a grace time without decay.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from app.storage.search import same_input

DAY_MS = 86_400_000
MINUTE_MS = 60_000
MONTH_MS = 30.0 * DAY_MS
MAX_EXPONENT = 300.0

Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class DecayCurve:
    """The parameters of decay.

    Importance is multiplied by `factor` for each month (30 days) of idleness past `grace_days`. It does not fall below
    `floor`, or below the base if that is lower still. Each parameter is a number, or an array with one value for each
    memory.
    """

    factor: float | Numbers = 0.95
    grace_days: float | Numbers = 30.0
    floor: float | Numbers = 0.1

    def __eq__(self, other: object) -> bool:
        """Compares numbers by value and arrays by identity, because `==` of two arrays returns an array."""
        return isinstance(other, DecayCurve) and all(map(same_input, self._numbers(), other._numbers()))

    def __hash__(self) -> int:
        return hash(tuple(number if isinstance(number, float) else id(number) for number in self._numbers()))

    def _numbers(self) -> tuple[float | Numbers, ...]:
        return self.factor, self.grace_days, self.floor


DEFAULT_DECAY = DecayCurve()


@overload
def importance(
    base: float, anchor_ms: int, now_ms: int, pinned: bool = False, decay: DecayCurve = DEFAULT_DECAY
) -> float: ...
@overload
def importance(
    base: NDArray[Any],
    anchor_ms: NDArray[np.int64],
    now_ms: int,
    pinned: NDArray[np.bool_],
    decay: DecayCurve = DEFAULT_DECAY,
) -> Numbers: ...


def importance(
    base: float | NDArray[Any],
    anchor_ms: int | NDArray[np.int64],
    now_ms: int,
    pinned: bool | NDArray[np.bool_] = False,
    decay: DecayCurve = DEFAULT_DECAY,
) -> float | Numbers:
    """Returns the importance at `now_ms` (milliseconds since 1970) of one memory or of arrays of them.

    `anchor_ms` is the time of the last access, or else of creation. An anchor in the future counts as now. At an access
    the caller stores the value of that moment as the new base, with that moment as its anchor.
    """
    if not isinstance(base, np.ndarray):
        return float(base) if pinned else fading_one_by_one(now_ms, decay)(float(base), int(anchor_ms))
    bases = np.asarray(base, np.float64)
    if bases.size and now_ms - int(np.min(anchor_ms)) <= np.min(decay.grace_days) * DAY_MS:
        return bases  # decay has not begun, as is usual in a scope in use
    fading_ms = now_ms - np.asarray(anchor_ms, np.int64) - decay.grace_days * DAY_MS
    fading_months = np.maximum(0.0, fading_ms / MONTH_MS)
    faded = np.maximum(np.minimum(bases, decay.floor), bases * np.power(decay.factor, fading_months))
    value: Numbers = np.where(pinned, bases, faded)
    return value


def base_of(
    value: float, anchor_ms: int, now_ms: int, pinned: bool = False, decay: DecayCurve = DEFAULT_DECAY
) -> float:
    """Returns the base of one memory whose `importance` at `now_ms` is `value`.

    The result may exceed 1 if the memory cannot have this importance at that time.
    """
    months = (now_ms - float(decay.grace_days) * DAY_MS - anchor_ms) / MONTH_MS
    if pinned or months <= 0 or value <= decay.floor:
        return value
    base: float = value / float(decay.factor) ** months
    return base


def fading_one_by_one(now_ms: int, decay: DecayCurve) -> Callable[[float, int], float]:
    """Returns a function of base and anchor that computes `importance` of one memory that is not pinned.

    For single memories it is about ten times as fast as arrays of one.
    """
    fades_before = now_ms - float(decay.grace_days) * DAY_MS
    factor, floor = float(decay.factor), float(decay.floor)

    def faded(base: float, anchor_ms: int) -> float:
        fading_months = (fades_before - anchor_ms) / MONTH_MS
        if fading_months <= 0:
            return base
        value: float = base * factor**fading_months
        return max(min(base, floor), value)

    return faded


class DecayedImportance:
    """Computes `importance` of many memories at any time; everything that does not depend on the time is computed once.

    factor ** (a + b) = factor ** a * factor ** b: `a` is one number, the time since the latest anchor, and `b` is an
    array, the time from each anchor to the latest one.
    """

    def __init__(
        self, base: NDArray[Any], anchor_ms: NDArray[np.int64], pinned: NDArray[np.bool_], decay: DecayCurve
    ) -> None:
        self._given = base, anchor_ms, pinned, decay
        self._base = np.asarray(base, np.float64)
        self._latest = int(anchor_ms.max(initial=0))
        earlier = (self._latest - anchor_ms) / MONTH_MS
        self._spread = float(earlier.max(initial=0))
        self._parts = False
        """Whether it is computed by the two factors: one curve holds for all, and both factors stay far from the limits
        of float64."""
        if not any(isinstance(number, np.ndarray) for number in (decay.factor, decay.grace_days, decay.floor)):
            factor = float(decay.factor)
            self._parts = factor > 0 and self._spread * -math.log(factor) < MAX_EXPONENT
        if self._parts:
            self._faded = self._base * np.power(float(decay.factor), earlier)
            self._least = np.where(pinned, self._base, np.minimum(self._base, decay.floor))

    def at(self, now_ms: int) -> Numbers:
        """Returns the importance of each memory at `now_ms`, shape (n,)."""
        base, anchor_ms, pinned, decay = self._given
        if not self._parts:
            return importance(base, anchor_ms, now_ms, pinned, decay)
        months = (now_ms - self._latest - float(decay.grace_days) * DAY_MS) / MONTH_MS
        if months + self._spread <= 0:
            return self._base  # decay has not begun, as is usual in a scope in use
        value: Numbers = self._faded * float(decay.factor) ** months
        np.minimum(value, self._base, out=value)
        np.maximum(value, self._least, out=value)
        return value
