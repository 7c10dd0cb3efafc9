"""The clock, times as RFC 3339 text, and ids that sort by time, as `mem_` with the 32 hex digits of a UUIDv7."""

import re
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import uuid_utils

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Clock(Protocol):
    """The source of the current time. Tests replace it."""

    def now(self) -> datetime:
        """Returns the current time, aware and in UTC."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def now(self) -> datetime:
        """Returns the system's time in UTC."""
        return datetime.now(UTC)


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


def zone_named(name: str) -> ZoneInfo:
    """Returns the time zone. Raises ValueError if the name is not an IANA time zone."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("must be a time zone's name, such as Europe/Berlin") from None


IDENTIFIER = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
"""Matches the ids that callers may give to agents, users, tenants and records."""


def new_id(prefix: str) -> str:
    """Returns a new id: the prefix, `_` and a UUIDv7."""
    return f"{prefix}_{uuid_utils.uuid7().hex}"
