"""Every error that the service can answer with, pure: a status, a stable code, a sentence.

RecalldError
├── BadRequest 400 malformed_request
│   └── InvalidCursor 400 invalid_cursor
├── Unauthorized 401 unauthorized
├── Forbidden 403 forbidden
├── NotFound 404 not_found
├── MethodNotAllowed 405 method_not_allowed
├── Conflict 409 conflict                      also raised by `commit`, naming the expectation that failed
│   ├── AlreadyExists 409 already_exists
│   ├── SessionEnded 409 session_ended
│   ├── LLMNotConfigured 409 llm_not_configured
│   └── IdempotencyInProgress 409 idempotency_in_progress
├── PreconditionFailed 412 precondition_failed
├── TooLarge 413 too_large
├── UnsupportedMediaType 415 unsupported_media_type
├── Invalid 422 invalid
│   └── IdempotencyMismatch 422 idempotency_mismatch
├── RateLimited 429 rate_limited
└── Unavailable 503 unavailable
    ├── StoreUnavailable 503 store_unavailable
    │   └── StoreDamaged 503 store_damaged
    ├── ErasureKeyUnavailable 503 erasure_key_unavailable
    ├── EmbeddingUnavailable 503 embedding_unavailable
    ├── LLMUnavailable 503 llm_unavailable
    ├── LLMReplyInvalid 503 llm_reply_invalid
    ├── LLMBudgetSpent 503 llm_budget_spent
    └── Draining 503 draining
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field's fault. `pointer` is a JSON pointer into the body, or `/query/limit`, `/path/…`, `/header/…`."""

    pointer: str
    detail: str


class RecalldError(Exception):
    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Internal error"

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


class Forbidden(RecalldError):
    status, code, title = 403, "forbidden", "This key may not do that"


class NotFound(RecalldError):
    status, code, title = 404, "not_found", "There is no such record"


class MethodNotAllowed(RecalldError):
    status, code, title = 405, "method_not_allowed", "This route does not know that method"


class Conflict(RecalldError):
    status, code, title = 409, "conflict", "The record changed meanwhile"


class AlreadyExists(Conflict):
    code, title = "already_exists", "That id is taken"


class SessionEnded(Conflict):
    code, title = "session_ended", "The session has ended"


class LLMNotConfigured(Conflict):
    code, title = "llm_not_configured", "No language model is configured"


class IdempotencyInProgress(Conflict):
    code, title = "idempotency_in_progress", "A request with this idempotency key is still running"


class PreconditionFailed(RecalldError):
    status, code, title = 412, "precondition_failed", "The record is not at the version that If-Match names"


class TooLarge(RecalldError):
    status, code, title = 413, "too_large", "The request is too large"


class UnsupportedMediaType(RecalldError):
    status, code, title = 415, "unsupported_media_type", "Send application/json"


class Invalid(RecalldError):
    status, code, title = 422, "invalid", "The request is not valid"


class IdempotencyMismatch(Invalid):
    code, title = "idempotency_mismatch", "This idempotency key was used for another request"


class RateLimited(RecalldError):
    status, code, title = 429, "rate_limited", "Too many requests with this key"


class Unavailable(RecalldError):
    status, code, title = 503, "unavailable", "The service cannot do that right now"

    def __init__(self, detail: str = "", *, errors: Sequence[FieldError] = (), retry_after: int | None = 1) -> None:
        super().__init__(detail, errors=errors, retry_after=retry_after)


class StoreUnavailable(Unavailable):
    code, title = "store_unavailable", "The store cannot be read or written right now"


class StoreDamaged(StoreUnavailable):
    code, title = "store_damaged", "A file of the store is damaged"


class ErasureKeyUnavailable(Unavailable):
    code, title = "erasure_key_unavailable", "The erasure key is missing, or it is not the one of this store"


class EmbeddingUnavailable(Unavailable):
    code, title = "embedding_unavailable", "The embedding model does not answer"


class LLMUnavailable(Unavailable):
    code, title = "llm_unavailable", "The language model does not answer"


class LLMReplyInvalid(Unavailable):
    code, title = "llm_reply_invalid", "The language model's answer cannot be used"


class LLMBudgetSpent(Unavailable):
    code, title = "llm_budget_spent", "This work has used up its calls or tokens of the language model"


class Draining(Unavailable):
    code, title = "draining", "The service is shutting down"


def invalid(pointer: str, detail: str) -> Invalid:
    """An `Invalid` about one field."""
    return Invalid(detail, errors=(FieldError(pointer, detail),))
