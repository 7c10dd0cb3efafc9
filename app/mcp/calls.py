"""What a tool is, and how it calls the REST API."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from app.core.schemas import Json, Schema
from app.mcp.transport import Api, ApiAnswer, ToolError, checked

Result = Json | str
"""The result of a tool: an object, or text for a prompt."""
A = TypeVar("A", bound=Schema)

IDEMPOTENCY_KEY = "idempotency-key"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The API as a tool calls it. `key` is the idempotency key of the caller, if there is one."""

    api: Api
    key: str | None = None

    async def __call__(self, method: str, path: str, body: Any = None, headers: Json | None = None) -> ApiAnswer:
        """Calls the API. Raises ToolError."""
        return checked(await self.api(method, path, body, headers))

    async def write(self, path: str, body: Json, step: str = "") -> ApiAnswer:
        """Sends a POST with the idempotency key. `step` distinguishes several POSTs of one tool call."""
        return await self("POST", path, body, {} if self.key is None else {IDEMPOTENCY_KEY: self.key + step})


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    """The declaration of a tool. `reads`, `destroys` and `idempotent` are hints for clients."""

    name: str
    title: str
    description: str
    arguments: type[A]
    run: Callable[[ToolRequest, A], Awaitable[Result]]
    reads: bool = False
    destroys: bool = False
    idempotent: bool = False


def given(body: Schema, *left_out: str) -> Json:
    """Returns the arguments that have a value."""
    return body.model_dump(exclude_none=True, exclude=set(left_out))


def changed(body: Schema, *left_out: str) -> Json:
    """Returns the arguments that the caller gave, also null, which clears a field. Raises ToolError if there are
    none."""
    fields = body.model_dump(exclude_unset=True, exclude=set(left_out))
    if not fields:
        raise ToolError("Name at least one field to change.")
    return fields


def query(**parameters: str | int | None) -> str:
    """Returns the query string of the parameters that have a value, with its question mark."""
    return "?" + urlencode({name: value for name, value in parameters.items() if value is not None})


STRONG, POSSIBLE = 0.5, 0.2
"""The lowest scores of a strong and of a possible match. Below `POSSIBLE` a context says that nothing surely
answers."""


def matched(score: float, mode_used: str) -> Json:
    """Returns the score of a hit with the word for it. Only the score of hybrid search is a probability, so a search by
    words alone has neither."""
    if mode_used != "hybrid":
        return {}
    word = "strong" if score >= STRONG else "possible" if score >= POSSIBLE else "weak"
    return {"match": word, "score": round(score, 3)}


def filled(record: Json, *names: str) -> Json:
    """Returns the named fields of a record. Empty fields are omitted to save tokens."""
    return {name: record[name] for name in names if record[name] not in (None, "", [], {}, False)}


def warned(body: Json) -> Json:
    """Returns warnings, such as that only words were searched. Empty fields are omitted to save tokens."""
    warnings = [warning["detail"] for warning in body["warnings"]]
    return {"warnings": warnings} if warnings else {}
