"""What requests and answers look like, and which are sent again. Pure: nothing is sent here."""

import json
import os
import random
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from recalld_client._errors import Problem, RecalldError, Unreachable

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT = 90.0
"""Seconds: more than the service gives one call of its language model (`RECALLD_LLM_TIMEOUT_SECONDS`, 60)."""
KEY_HEADER = "Idempotency-Key"
REFUSED_UNDONE = frozenset({429})
"""Statuses after which any request may be sent again: it was refused before anything was done."""
AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which a repeatable request is sent again."""


@dataclass(frozen=True)
class Retry:
    """How often and when a request is sent again.

    attempts: repetitions after the first try; 0 for none. first, longest: seconds before the first repetition and at
    most before any. The wait doubles each time, and a random half of it is taken away (jitter). A `Retry-After` of the
    service is kept; where it is over `patience` seconds, the error is raised instead.
    """

    attempts: int = 3
    first: float = 0.5
    longest: float = 8.0
    patience: float = 30.0

    def wait(self, attempt: int, retry_after: float | None = None) -> float | None:
        """Seconds to wait before repetition number `attempt` (from 0); None: raise the error."""
        if attempt >= self.attempts or (retry_after or 0) > self.patience:
            return None
        jitter = random.random()  # noqa: S311 - not a secret
        return float((retry_after or 0) + min(self.longest, self.first * 2**attempt) * (0.5 + jitter / 2))


NO_RETRY = Retry(attempts=0)


@dataclass(frozen=True)
class Request:
    """One request as httpx takes it, and whether it may be sent again when nobody knows what became of it."""

    arguments: dict[str, Any]
    repeatable: bool


def prepare(method: str, where: str, query: Any, body: Any, headers: dict[str, Any] | None) -> Request:
    """A POST that writes gets an idempotency key, unless the caller gave one, so it may be repeated. A PATCH that was
    lost on its way back is not repeated: lists would be added to twice."""
    params = {name: _worded(value) for name, value in (query or {}).items() if value is not None}
    sent = {name: _tagged(value) for name, value in (headers or {}).items() if value is not None}
    if headers and KEY_HEADER in headers:
        sent.setdefault(KEY_HEADER, uuid4().hex)
    sending = "content" if isinstance(body, bytes) else "json"  # a file, or a value
    arguments = {"method": method, "url": where, "params": params, sending: body, "headers": sent}
    return Request(arguments, repeatable=method != "PATCH")


def after_error(request: Request, error: httpx.TransportError, retry: Retry, attempt: int) -> float | None:
    """Seconds to wait before the request is sent again; None: raise."""
    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    hopeless = isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    return None if hopeless or not (unsent or request.repeatable) else retry.wait(attempt)


def after_answer(request: Request, response: httpx.Response, retry: Retry, attempt: int) -> float | None:
    """Seconds to wait before the request is sent again; None: this answer counts."""
    if response.status_code in (AGAIN if request.repeatable else REFUSED_UNDONE):
        return retry.wait(attempt, _seconds(response))
    if response.status_code == 409 and _json(response).get("code") == "idempotency_in_progress":
        return retry.wait(attempt, _seconds(response))
    return None


def read(response: httpx.Response) -> Any:
    """The answer's JSON, its text where it is none, None where it is empty. Raises Problem."""
    kind = response.headers.get("content-type", "").split(";")[0].strip()
    is_json = kind == "application/json" or kind.endswith("+json")
    if response.is_error:
        raise Problem(response.status_code, _json(response), _seconds(response))
    if not response.content:
        return None
    if (not is_json and kind == "text/html") or response.is_redirect:
        raise RecalldError(f"{response.url} answered {response.status_code} with {kind}, which is not Recalld.")
    return response.json() if is_json else response.text


def unreachable(url: httpx.URL, error: httpx.TransportError) -> Unreachable:
    shown = url.copy_with(username="", password="", query=None)  # they may be secrets
    return Unreachable(
        str(shown).rstrip("/"), f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    )


def settings(url: str | None, key: str | None) -> dict[str, Any]:
    """Arguments of an httpx client. Raises ValueError for an address without http:// or https://."""
    key = key or os.environ.get("RECALLD_KEY")
    url = url or os.environ.get("RECALLD_URL") or DEFAULT_URL
    if not url.startswith(("http://", "https://")):
        shown = url.rpartition("@")[2].partition("?")[0]  # before and behind may be secrets
        raise ValueError(f"The address of Recalld must begin with http:// or https://, not {shown!r}.")
    return {"base_url": url, "headers": {"Authorization": f"Bearer {key}"} if key else {}}


def path(template: str, *names: Any) -> str:
    return template.format(*(quote(str(name), safe="") for name in names))


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):  # a proxy's page
        return {}
    return body if isinstance(body, dict) else {}


def _seconds(response: httpx.Response) -> float | None:
    after = response.headers.get("retry-after", "")
    return float(after) if after.isdigit() else None


def _worded(value: Any) -> Any:
    if isinstance(value, dict | list):  # filters, tags
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else value


def _tagged(value: str | int) -> str:
    """A record's `version` as `If-Match` wants it."""
    return f'"{value}"' if isinstance(value, int) else value
