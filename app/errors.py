"""Every error that the service can answer with, pure: a status, a stable code, a sentence.

RecalldError
├── BadRequest 400 malformed_request
│   └── InvalidCursor 400 invalid_cursor
├── Unauthorized 401 unauthorized
│   └── TokenExpired 401 unauthorized
├── Forbidden 403 forbidden
├── NotFound 404 not_found
│   └── NoRoute 404 not_found
├── MethodNotAllowed 405 method_not_allowed
├── Conflict 409 conflict                      also raised by `commit`, naming the expectation that failed
│   ├── AlreadyExists 409 already_exists
│   ├── SessionEnded 409 session_ended
│   ├── IllegalTransition 409 illegal_transition
│   ├── LimitReached 409 limit_reached
│   ├── LLMNotConfigured 409 llm_not_configured
│   ├── ChangesOff 409 changes_off
│   ├── LastAdminKey 409 last_admin_key
│   └── IdempotencyInProgress 409 idempotency_in_progress
├── ChangesLost 410 changes_lost
├── PreconditionFailed 412 precondition_failed
├── RequestTimeout 408 request_timeout
├── TooLarge 413 too_large
├── UnsupportedMediaType 415 unsupported_media_type
├── Invalid 422 invalid
│   └── IdempotencyMismatch 422 idempotency_mismatch
├── RateLimited 429 rate_limited
├── HeadTooLarge 431 head_too_large
├── VersionNotSupported 505 version_not_supported
├── QuotaExceeded 507 quota_exceeded
└── Unavailable 503 unavailable
    ├── StoreUnavailable 503 store_unavailable
    │   ├── StoreDamaged 503 store_damaged
    │   ├── SearchIndexUnavailable 503 search_index_unavailable
    │   └── StorageFull 503 storage_full
    ├── RecordDamaged 503 record_damaged
    ├── ErasureKeyUnavailable 503 erasure_key_unavailable
    ├── IssuerUnavailable 503 issuer_unavailable
    ├── EmbeddingUnavailable 503 embedding_unavailable
    ├── LLMUnavailable 503 llm_unavailable
    ├── LLMReplyInvalid 503 llm_reply_invalid
    ├── LLMBudgetSpent 503 llm_budget_spent
    ├── Busy 503 busy
    └── Draining 503 draining
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType
from typing import ClassVar

MAX_ERRORS = 20
"""Most faults that one answer names."""
_SHOWN_CHARACTERS = 128
_SIMILAR = 0.75


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field's fault. `pointer` is a JSON pointer into the body, or `/query/limit`, `/path/…`, `/header/…`."""

    pointer: str
    detail: str


class RecalldError(Exception):
    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Internal error"
    until: datetime | None = None
    """When the work may go on, if that is known. A job that fails so waits until then, and it is no attempt."""

    def __init__(self, detail: str = "", *, errors: Sequence[FieldError] = (), retry_after: int | None = None) -> None:
        self.detail = detail or self.title
        self.errors = tuple(errors)
        self.retry_after = retry_after
        super().__init__(self.detail)


class BadRequest(RecalldError):
    status, code, title = 400, "malformed_request", "The request cannot be parsed"


class InvalidCursor(BadRequest):
    code, title = "invalid_cursor", "The cursor is not one of ours, or belongs to other filters"


class Unauthorized(RecalldError):
    status, code, title = 401, "unauthorized", "A valid API key is required"
    challenge: str = "Bearer"
    """The header WWW-Authenticate of the answer."""


class TokenExpired(Unauthorized):
    """A token that was valid until its time was over. It does not count as a wrong key."""


class Forbidden(RecalldError):
    status, code, title = 403, "forbidden", "This key may not do that"


class NotFound(RecalldError):
    status, code, title = 404, "not_found", "There is no such record"


class NoRoute(NotFound):
    title = "There is no such route"


class MethodNotAllowed(RecalldError):
    status, code, title = 405, "method_not_allowed", "This route does not know that method"


class Conflict(RecalldError):
    status, code, title = 409, "conflict", "The record changed meanwhile"


class AlreadyExists(Conflict):
    code, title = "already_exists", "That id is taken"


class SessionEnded(Conflict):
    code, title = "session_ended", "The session has ended"


class IllegalTransition(Conflict):
    code, title = "illegal_transition", "The status may not change like this"


class LimitReached(Conflict):
    code, title = "limit_reached", "There are as many of these as there may be"


class LLMNotConfigured(Conflict):
    code, title = "llm_not_configured", "No language model is configured"


class ChangesOff(Conflict):
    code, title = "changes_off", "No log of changes is kept"


class LastAdminKey(Conflict):
    code, title = "last_admin_key", "This is the last key that administers the tenant"


class IdempotencyInProgress(Conflict):
    code, title = "idempotency_in_progress", "A request with this idempotency key is still running"


class ChangesLost(RecalldError):
    status, code, title = 410, "changes_lost", "The log no longer goes back to that change"


class PreconditionFailed(RecalldError):
    status, code, title = 412, "precondition_failed", "The record is not at the version that If-Match names"


class RequestTimeout(RecalldError):
    status, code, title = 408, "request_timeout", "The request did not arrive in time"


class TooLarge(RecalldError):
    status, code, title = 413, "too_large", "The request is too large"


class UnsupportedMediaType(RecalldError):
    status, code, title = 415, "unsupported_media_type", "The body has a media type that this request does not take"


class Invalid(RecalldError):
    status, code, title = 422, "invalid", "The request is not valid"


class IdempotencyMismatch(Invalid):
    code, title = "idempotency_mismatch", "This idempotency key was used for another request"


class RateLimited(RecalldError):
    status, code, title = 429, "rate_limited", "Too many requests with this key"


class HeadTooLarge(RecalldError):
    status, code, title = 431, "head_too_large", "The request's line and headers are too large"


class VersionNotSupported(RecalldError):
    status, code, title = 505, "version_not_supported", "The version of HTTP is not served"


class QuotaExceeded(RecalldError):
    status, code, title = 507, "quota_exceeded", "The quota of the tenant is used up"


class Unavailable(RecalldError):
    status, code, title = 503, "unavailable", "The service cannot do that right now"

    def __init__(self, detail: str = "", *, errors: Sequence[FieldError] = (), retry_after: int | None = 1) -> None:
        super().__init__(detail, errors=errors, retry_after=retry_after)


class StoreUnavailable(Unavailable):
    code, title = "store_unavailable", "The store cannot be read or written right now"


class StoreDamaged(StoreUnavailable):
    code, title = "store_damaged", "A file of the store is damaged"


class SearchIndexUnavailable(StoreUnavailable):
    code, title = "search_index_unavailable", "The search index of a large scope cannot be used right now"


class StorageFull(StoreUnavailable):
    code, title = "storage_full", "The disk of the store is full"


class RecordDamaged(Unavailable):
    code, title = "record_damaged", "A stored record cannot be read"
    known: Mapping[str, object] = {}
    """What the store knows of the record beside its text: its id, its owners, when it was created. Who may not see it
    learns nothing of it; who may can delete it."""


class ErasureKeyUnavailable(Unavailable):
    code, title = "erasure_key_unavailable", "The erasure key is missing, or it is not the one of this store"


class IssuerUnavailable(Unavailable):
    code, title = "issuer_unavailable", "The issuer of the token cannot be reached"


class EmbeddingUnavailable(Unavailable):
    code, title = "embedding_unavailable", "The embedding model does not answer"


class LLMUnavailable(Unavailable):
    code, title = "llm_unavailable", "The language model does not answer"


class LLMReplyInvalid(Unavailable):
    code, title = "llm_reply_invalid", "The language model's answer cannot be used"


class LLMBudgetSpent(Unavailable):
    code, title = "llm_budget_spent", "This work has used up its calls or tokens of the language model"


class Busy(Unavailable):
    code, title = "busy", "The service has too much to do right now"


class Draining(Unavailable):
    code, title = "draining", "The service is shutting down"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name that was probably meant, or None: one that differs in case and separators only, else one
    that is spelt much the same, else the only one that has `name` as a word (`type`: `memory_type`)."""
    by_plain = {_plain(name): name for name in known}
    given = _plain(name[:_SHOWN_CHARACTERS])
    if close := get_close_matches(given, by_plain, n=1, cutoff=_SIMILAR):
        return by_plain[close[0]]
    having = [name for name in by_plain.values() if given in name.split("_")]
    return having[0] if given and len(having) == 1 else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_ELSEWHERE = (
    ("text", "content", ""),
    ("text", "query", ""),
    ("memory", "content", ""),
    ("messages", "content", "a conversation goes to POST /v1/sessions/{session_id}/messages, which remembers it"),
    (
        "filter filters",
        "metadata",
        "`metadata` compares with what was stored in it; what else narrows has its own name",
    ),
    ("limit k n_results max_results", "top_k", ""),
    ("max_tokens", "token_budget", ""),
    ("ttl", "expires_at", "did you mean `expires_at`, the moment when it ends?"),
    ("expiration_date", "expires_at", ""),
    ("categories", "tags", ""),
    ("page offset skip", "cursor", ""),
    ("run_id thread_id conversation_id", "session_id", ""),
    ("human", "user", ""),
    ("ai", "assistant", ""),
    ("like ilike regex regexp startswith starts_with endswith ends_with", "icontains", ""),
    ("between", "gte", "a range is `gte` with `lte`"),
    ("= == equals", "eq", ""),
    ("!= <> neq", "ne", ""),
    ("> greater_than", "gt", ""),
    (">= ge", "gte", ""),
    ("< less_than", "lt", ""),
    ("<= le", "lte", ""),
)
"""What other products call it, what it is here, and what to say of it where "did you mean" is not enough."""
PATHS_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        r"/api/v\d/": "Zep",
        r"/v1/(long-term|working)-memory": "Redis Agent Memory Server",
        r"/v1/(blocks|passages|archives)|/v1/agents/[^/]+/(core|archival|recall)-memory": "Letta",
        r"/v[23]/memories|/v1/(entities|memories/add)|/(memories|search)(/|$)": "mem0",
    }
)
"""Paths of other products, as expressions that match their beginnings."""


def called_elsewhere(name: str, known: Collection[str]) -> tuple[str, str] | None:
    """Returns the known name that other products call so, with the words for it: `limit` is `top_k` of a search."""
    rows = ((meant, words) for names, meant, words in _ELSEWHERE if meant in known and name.lower() in names.split())
    return next(rows, None)


def pointer(steps: Iterable[int | str]) -> str:
    """Returns a JSON pointer: `("items", 0, "content")` → `/items/0/content`. What is not in the body begins with its
    place: `/query/limit`."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def did_you_mean(name: str, known: Iterable[str], mark: str = "`") -> str:
    """Returns the end of a sentence about an unknown name: the known one that other products call so, else the nearest
    known one, or nothing where none is near."""
    known = list(known)
    meant, words = called_elsewhere(name, known) or (nearest(name, known), "")
    return f": {words}" if words else "" if meant is None else f": did you mean {mark}{meant}{mark}?"


def shortened(text: str) -> str:
    """Returns a text of a caller as an answer may quote it: not too long, and valid Unicode."""
    short = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    return short.encode("utf-8", "replace").decode()


def no_such(kind: str) -> NotFound:
    """A `NotFound` that names what was looked for: `no_such("memory")`. It holds no id, so that the answer is byte for
    byte that of a record which the caller may not see."""
    return NotFound(f"There is no such {kind}.")


def invalid_fields(field_errors: Iterable[FieldError]) -> Invalid:
    """An `Invalid` whose detail names every fault, at most 20."""
    faults = list(islice(field_errors, MAX_ERRORS + 1))
    named = "; ".join(f"{shortened(fault.pointer) or 'The body'}: {fault.detail}" for fault in faults[:MAX_ERRORS])
    more = "; and more" if len(faults) > MAX_ERRORS else ""
    return Invalid(named + more, errors=faults[:MAX_ERRORS])


def invalid(pointer: str, detail: str) -> Invalid:
    """An `Invalid` about one field."""
    return Invalid(detail, errors=(FieldError(pointer, detail),))
