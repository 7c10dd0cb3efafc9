"""The clock, times as RFC 3339 text, and ids that sort by time, as `mem_` with the 32 hex digits of a UUIDv7."""

import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

TOLERANCE_SECONDS = 5.0
BELIEVED_AFTER_SECONDS = 300.0

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Clock(Protocol):
    """The source of the current time. Tests replace it."""

    def now(self) -> datetime:
        """Returns the current time, aware and in UTC."""
        ...


class SteadyTime:
    """Seconds since 1970 by the system's clock, without the jumps that do not last.

    People and other machines set a system's clock. What is due by it would then be parked, or done twice. Here time
    passes as it does for the machine (`elapsed`, which only rises). If the system's clock differs by more than
    `TOLERANCE_SECONDS`, it is believed once it has differed by the same amount for `BELIEVED_AFTER_SECONDS`. The time
    falls only when a clock that was set back is believed.
    """

    def __init__(self, system: Callable[[], float], elapsed: Callable[[], float]) -> None:
        self._system, self._elapsed = system, elapsed
        self._offset = system() - elapsed()
        self._jumped: tuple[float, float] | None = None
        """The offset that a jump led to, and when it was first seen."""
        self._last = 0.0

    @property
    def is_held(self) -> bool:
        """Whether the system's clock is not believed at present."""
        return self._jumped is not None

    def now(self) -> float:
        """Returns the time."""
        elapsed = self._elapsed()
        offset = self._system() - elapsed
        if abs(offset - self._offset) <= TOLERANCE_SECONDS:
            self._offset, self._jumped = offset, None
        elif self._jumped is None or abs(offset - self._jumped[0]) > TOLERANCE_SECONDS:
            self._jumped = offset, elapsed
            log.warning("the system's clock jumped", extra={"seconds": round(offset - self._offset, 3)})
        elif elapsed - self._jumped[1] >= BELIEVED_AFTER_SECONDS:
            log.warning("the system's clock is believed", extra={"seconds": round(offset - self._offset, 3)})
            self._offset, self._jumped, self._last = offset, None, 0.0
        self._last = max(self._last, elapsed + self._offset)
        return self._last


def _elapsed() -> float:
    """Returns seconds since the machine was started, those in sleep included where the system counts them."""
    return time.clock_gettime(_MACHINE)


_MACHINE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_steady = SteadyTime(time.time, _elapsed)


class SystemClock:
    """The clock of the operating system, without jumps that do not last."""

    def now(self) -> datetime:
        """Returns the time in UTC."""
        return datetime.fromtimestamp(_steady.now(), UTC)


def rfc3339(moment: datetime) -> str:
    """Formats a time as `2026-11-21T08:30:00.123Z`: always 24 characters, so that strings sort as times do."""
    at = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return at.isoformat(timespec="milliseconds")[:-6] + "Z"


def parse_rfc3339(text: str) -> datetime:
    """Parses an RFC 3339 time. Raises ValueError."""
    return datetime.fromisoformat(text)


def to_ms(moment: datetime | str) -> int:
    """Returns milliseconds since 1970, rounded down."""
    at = parse_rfc3339(moment) if isinstance(moment, str) else moment
    return (at - _EPOCH) // _MILLISECOND


def from_ms(milliseconds: int) -> str:
    """Formats milliseconds since 1970 like `rfc3339`."""
    return rfc3339(_EPOCH + milliseconds * _MILLISECOND)


def day_of(at: str, zone: tzinfo) -> str:
    """Returns the day of an RFC 3339 time in a zone: `2026-11-21` in Shanghai for `2026-11-20T20:00:00Z`, "" for ""."""
    if zone is UTC or not at:
        return at[:10]
    try:
        return parse_rfc3339(at).astimezone(zone).date().isoformat()
    except OverflowError:  # before the year 1, or after 9999
        return at[:10]


def zone_named(name: str) -> ZoneInfo:
    """Returns the time zone. Raises ValueError if the name is not an IANA time zone."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be a time zone's name, such as Europe/Berlin") from None


def new_id(prefix: str) -> str:
    """Returns a new id: the prefix, `_` and a UUIDv7 (RFC 9562), of the milliseconds since 1970 and 72 random bits.

    Ids of one process sort in the order in which they were made. Within a millisecond the random bits are those of the
    last id, counted on by a random step (method 2 of section 6.2); there is room for more than a million of them.
    """
    milliseconds, random = int(_steady.now() * 1e3), int.from_bytes(os.urandom(9))
    if milliseconds == _newest[0]:
        random = _newest[1] + 1 + (random >> _STEP_SHIFT)
    _newest[:] = milliseconds, random
    high, low = divmod(random, 1 << 62)
    return f"{prefix}_{milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low:032x}"


_STEP_SHIFT = 21
_newest = [0, 0]
"""Milliseconds and random bits of the last id."""
