"""Decay: the importance that a memory still has after a time without access.

    importance = max(min(base, floor), base * factor ** (max(0, idle_days - grace_days) / 30))

The functions are pure and depend only on stored anchors and the time, so repeated computation gives the same numbers.
The exponential form follows forgetting curves (Ebbinghaus 1885), after a grace time without decay.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.storage.search import same_input

DAY_MS = 86_400_000
MINUTE_MS = 60_000
MONTH_MS = 30.0 * DAY_MS

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


def importance(
    base: float, anchor_ms: int, now_ms: int, pinned: bool = False, decay: DecayCurve = DEFAULT_DECAY
) -> float:
    """Returns the importance of one memory at `now_ms` (milliseconds since 1970).

    `anchor_ms` is the time of the last access, or else of creation. An anchor in the future counts as now. At an access
    the caller stores the value of that moment as the new base, with that moment as its anchor.
    """
    return float(base) if pinned else fading_one_by_one(now_ms, decay)(float(base), int(anchor_ms))


def importances(
    base: NDArray[Any], anchor_ms: NDArray[np.int64], now_ms: int, pinned: NDArray[np.bool_], decay: DecayCurve
) -> Numbers:
    """Returns what `importance` returns, for arrays of memories."""
    bases = np.asarray(base, np.float64)
    fading_ms = now_ms - np.asarray(anchor_ms, np.int64) - decay.grace_days * DAY_MS
    if not bases.size or np.max(fading_ms) <= 0:
        return bases  # decay has not begun, as is usual in a scope in use
    faded = np.maximum(
        np.minimum(bases, decay.floor), bases * np.power(decay.factor, np.maximum(0.0, fading_ms / MONTH_MS))
    )
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
