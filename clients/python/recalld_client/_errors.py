"""What a call raises.

RecalldError
├── Problem        the service answered, and says by `code` why it did not do it
├── Unreachable    the service did not answer; the message names its URL
└── InvalidUser    the id of a user is empty, so nothing was sent; also a ValueError
"""

from typing import Any


class RecalldError(Exception):
    """Base of all errors of this client."""


class Problem(RecalldError):
    """The service's answer to a request that it did not fulfil (RFC 9457).

    `code` is stable, for example "not_found". `errors` names the fields at fault. `retry_after` is in seconds.
    """

    def __init__(self, status: int, body: dict[str, Any], retry_after: float | None) -> None:
        self.status, self.code = status, str(body.get("code", ""))
        self.detail = str(body.get("detail", f"The service answered {status}."))
        self.errors: list[dict[str, str]] = body.get("errors", [])
        self.request_id: str | None = body.get("request_id")
        self.retry_after = retry_after
        super().__init__(f"{status} {self.code}: {self.detail}")


class InvalidUser(RecalldError, ValueError):
    """The id of a user is empty or no text, as when a variable was not set: `user("")`."""

    def __init__(self, user_id: object) -> None:
        super().__init__(f'A user needs an id, as user("ada"): {user_id!r} is none.')


class Unreachable(RecalldError):
    """The service at `url` did not answer. `__cause__` is the error of httpx."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        super().__init__(
            f"Recalld at {url} did not answer ({reason}). "
            "Is it running? The address is the argument url= or the variable RECALLD_URL."
        )
