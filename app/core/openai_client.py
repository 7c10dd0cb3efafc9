"""What the clients of OpenAI-compatible servers have in common. Imported where the extra `openai` is there."""

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from app.core.clock import SystemClock

_PASSES = frozenset({408, 409, 425, 429})
_CODE = re.compile(r"[\w.-]{1,64}")


def headers(key: str) -> dict[str, Any]:
    """Ours alone: the library's own variables (OPENAI_ORG_ID, …) were set for another server, perhaps."""
    return {
        "Authorization": f"Bearer {key}" if key else openai.omit,
        "OpenAI-Organization": openai.omit,
        "OpenAI-Project": openai.omit,
    }


def passes(status: int) -> bool:
    """The same request may succeed later."""
    return status in _PASSES or status >= 500


def reason(error: openai.APIStatusError, key: str) -> str:
    """What may be told: of the server's words its code alone, since it may quote the key or somebody's text."""
    report = [str(part) for part in (error.code, error.type) if part]
    said = next((part for part in report if _CODE.fullmatch(part) and part != key), "")
    return (
        f"answered {error.status_code}"
        + (f" ({said})" if said else "")
        + (", which is not followed" if error.status_code < 400 else "")
    )


def retry_after(header: str | None) -> float | None:
    """Seconds, from seconds or a date; None where there is nothing to go by."""
    try:
        seconds = float(header or "")
    except ValueError:
        try:
            date = parsedate_to_datetime(header or "")
        except ValueError:
            return None
        seconds = ((date if date.tzinfo else date.replace(tzinfo=UTC)) - SystemClock().now()).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
