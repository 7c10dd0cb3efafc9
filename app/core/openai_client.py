"""Functions shared by the clients of OpenAI-compatible servers."""

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from app.core.clock import SystemClock

_PASSES = frozenset({408, 409, 425, 429})
LONGEST_RETRY_AFTER = 300.0
"""In seconds. A server may ask for any wait. Callers get it as `Retry-After` and would stay away for as long."""
_CODE = re.compile(r"[\w.-]{1,64}")


class Fault(Exception):
    """A temporary failure of one attempt. `after`: the number of seconds that the server asked to wait."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


def client_options(base_url: str, key: str) -> dict[str, Any]:
    """Returns what a client of the library is made with: the settings alone, since the library's variables
    (OPENAI_API_KEY, …) may be meant for another server. It does not retry: callers do, within a deadline or a budget.
    `headers` go with each request: only there can the key be omitted."""
    return {"api_key": key or "none", "base_url": base_url, "max_retries": 0}


def headers(key: str) -> dict[str, Any]:
    """Returns the headers of a request.

    They override the library's own variables (OPENAI_ORG_ID, …), which may have been set for another server.
    """
    return {
        "Authorization": f"Bearer {key}" if key else openai.omit,
        "OpenAI-Organization": openai.omit,
        "OpenAI-Project": openai.omit,
    }


def passes(status: int) -> bool:
    """Returns whether the same request may succeed later."""
    return status in _PASSES or status >= 500


def reason(error: openai.APIStatusError, key: str) -> str:
    """Returns the description of an error, without the key or stored text.

    Of the server's answer it contains only the error code, because the message may quote either.
    """
    codes = [str(part) for part in (error.code, error.type) if part]
    code = next((part for part in codes if _CODE.fullmatch(part) and part != key), "")
    return (
        f"answered {error.status_code}"
        + (f" ({code})" if code else "")
        + (", which is not followed" if error.status_code < 400 else "")
    )


def retry_after(header: str | None) -> float | None:
    """Parses a Retry-After header (seconds or a date) into seconds, at most LONGEST_RETRY_AFTER. Returns None if it has
    neither."""
    try:
        seconds = float(header or "")
    except ValueError:
        try:
            date = parsedate_to_datetime(header or "")
        except ValueError:
            return None
        seconds = ((date if date.tzinfo else date.replace(tzinfo=UTC)) - SystemClock().now()).total_seconds()
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER) if math.isfinite(seconds) else None
