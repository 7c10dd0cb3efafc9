"""Rules for sets of documents that an engine can express in one statement."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fade:
    """Writes down what `importance` has become at `now` (RFC 3339), from `base_importance` and `anchored_at`.

    The formula is that of `memories/strength.py`; the contract suite holds every engine to it. Pinned ones stay, and so
    does what would move by less than `least`.
    """

    now: str
    factor: float
    grace_days: float
    floor: float
    least: float = 0.0
