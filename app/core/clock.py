"""The clock, times as RFC 3339 text, and ids that sort by time, as `mem_` with the 32 hex digits of a UUIDv7."""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.rrule import rrulestr

TOLERANCE_SECONDS = 5.0
BELIEVED_AFTER_SECONDS = 300.0

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Clock(Protocol):
    """The source of the current time. Tests replace it."""

    def now(self) -> datetime:
        """Returns the current time, aware and in UTC."""


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


_WEEKDAY = "(?:MO|TU|WE|TH|FR|SA|SU)"
_PARTS: Mapping[str, str] = {
    "FREQ": "DAILY|WEEKLY|MONTHLY|YEARLY",
    "INTERVAL": r"[1-9]\d{0,2}",
    "UNTIL": r"\d{8}T\d{6}Z",
    "WKST": _WEEKDAY,
    "BYDAY": rf"(?:[+-]?[1-5])?{_WEEKDAY}(?:,(?:[+-]?[1-5])?{_WEEKDAY})*",
    "BYMONTHDAY": r"-?(?:[12]\d|3[01]|[1-9])(?:,-?(?:[12]\d|3[01]|[1-9]))*",
    "BYMONTH": r"(?:1[0-2]|[1-9])(?:,(?:1[0-2]|[1-9]))*",
}
"""The parts of a recurrence, and what they may be. An INTERVAL of 0 would never end."""
_PARTS_OF: Mapping[str, frozenset[str]] = {
    "DAILY": frozenset(),
    "WEEKLY": frozenset({"BYDAY", "WKST"}),
    "MONTHLY": frozenset({"BYDAY", "BYMONTHDAY"}),
    "YEARLY": frozenset({"BYDAY", "BYMONTHDAY", "BYMONTH"}),
}
"""With other parts the library may look at each day of eight thousand years: 31 February."""


def recurrence(rule: str) -> dict[str, str]:
    """Returns the parts of a recurrence (RFC 5545): `FREQ=WEEKLY;BYDAY=MO,TH`. Raises ValueError."""
    parts = dict[str, str]()
    for part in rule.split(";"):
        name, _, value = part.partition("=")
        if name not in _PARTS or name in parts:
            raise ValueError(f"takes each of {', '.join(_PARTS)} once, as FREQ=WEEKLY;BYDAY=MO: not {part[:40]!r}")
        if re.fullmatch(_PARTS[name], value) is None:
            raise ValueError(f"{name} cannot be {value[:40]!r}")
        parts[name] = value
    if "FREQ" not in parts:
        raise ValueError("needs FREQ: DAILY, WEEKLY, MONTHLY or YEARLY")
    if other := parts.keys() - {"FREQ", "INTERVAL", "UNTIL"} - _PARTS_OF[parts["FREQ"]]:
        raise ValueError(f"{parts['FREQ']} does not take {', '.join(sorted(other))}")
    if "UNTIL" in parts:
        try:
            datetime.strptime(parts["UNTIL"], "%Y%m%dT%H%M%S%z")
        except ValueError:
            raise ValueError(f"UNTIL cannot be {parts['UNTIL']!r}") from None
    return parts


def next_occurrence(rule: str, start: str, after: str) -> str | None:
    """Returns the first time of a recurrence that began at `start` which lies after `after` (RFC 3339), in UTC:
    `next_occurrence("FREQ=WEEKLY", "2026-12-01T08:00:00Z", "2026-12-09T10:00:00Z")` is 15 December. None: there is
    none."""
    parts = recurrence(rule)
    begun, passed = parse_rfc3339(start), parse_rfc3339(after)
    # the library walks from the first time on: it is moved to the last period that has begun
    freq, interval = parts["FREQ"], int(parts.get("INTERVAL", 1))
    if (days := {"DAILY": 1, "WEEKLY": 7}.get(freq)) is not None:
        step = days * interval * timedelta(days=1)
        begun += max((passed - begun) // step, 0) * step
    else:
        if not parts.keys() & {"BYDAY", "BYMONTHDAY"}:  # then it recurs on its own day
            of_year = {"BYMONTH": str(begun.month)} if freq == "YEARLY" else {}
            parts = {**of_year, **parts, "BYMONTHDAY": str(begun.day)}
        months = interval * (12 if freq == "YEARLY" else 1)
        first = begun if freq == "MONTHLY" else begun.replace(month=1)
        between = (passed.year - first.year) * 12 + passed.month - first.month
        if between >= months:
            year, month = divmod(first.year * 12 + first.month - 1 + between // months * months, 12)
            begun = begun.replace(year=year, month=month + 1, day=1)
    # the calendar repeats after 400 years, and the library ends its search in the year 9999: so many years are left
    shift = max(9599 - max(begun, passed).year, 0) // 400 * 400
    parts_but_the_end = ";".join(f"{name}={value}" for name, value in parts.items() if name != "UNTIL")
    series = rrulestr(parts_but_the_end, dtstart=begun.replace(year=begun.year + shift))
    found: datetime | None = series.after(passed.replace(year=passed.year + shift))
    if found is None:
        return None
    found = found.replace(year=found.year - shift)
    end = parts.get("UNTIL")
    return None if end is not None and f"{found:%Y%m%dT%H%M%SZ}" > end else rfc3339(found)


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
