"""What an MCP tool is, and how it calls the REST API: in this process, or of a remote service."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import httpx2
import orjson

from app.auth.dependencies import BY_MODEL
from app.auth.keys import Principal
from app.core.prompt_text import map_strings
from app.core.prompt_text import quote as quote_text
from app.core.schemas import Json, Schema
from app.core.work import characters, off_loop
from app.resources import Resources
from app.settings import without_secrets

OWNERS_META = "recalld/owners"
"""The field of the tool list's `_meta` with the agent and user that the connection fixes."""
INSTRUCTIONS_META = "recalld/instructions"
"""The field of the tool list's `_meta` that says whether a model may store rules."""
BAD = 400
"""The lowest status of an error."""


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """The API's answer."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Api(Protocol):
    """Calls the REST API."""

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> ApiAnswer:
        """Sends a request. `path` is below the root and may have a query; ids in it are quoted (`segment`). Raises
        ToolError."""


class ToolError(Exception):
    """An API call failed. The text is for the caller of the tool."""

    def __init__(self, detail: str, *, code: str = "invalid", errors: tuple[str, ...] = (), retry: str = "") -> None:
        self.code, self.detail = code, detail
        after = f"Try again after {retry} s." if retry else ""
        self.once = " ".join([f"{'; '.join(errors) or detail} ({code})", after]).rstrip()
        """The same for a person, in one line and each fault once: of a problem, `detail` names the fields, too."""
        super().__init__("\n".join([f"{detail} ({code})", *(f"- {error}" for error in errors), after]).rstrip())


def segment(name: str) -> str:
    """Returns an id as one segment of a path."""
    return quote(name, safe="")


def checked(answer: ApiAnswer) -> ApiAnswer:
    """Returns a successful answer. Raises ToolError with the problem's detail for any other."""
    if answer.status < BAD:
        return answer
    problem = answer.body if isinstance(answer.body, dict) else {}
    errors = [f"{error['pointer']}: {error['detail']}" for error in problem.get("errors", [])]
    raise ToolError(
        str(problem.get("detail") or f"The service answered {answer.status}."),
        code=str(problem.get("code", answer.status)),
        errors=tuple(errors),
        retry=answer.headers.get("retry-after", ""),
    )


def encoded(body: Any) -> bytes:
    """Returns the body as JSON; bytes are a file and stay as they are. The standard library also writes what JSON
    cannot contain (NaN, lone surrogates), so that the service refuses it with a clear message."""
    if isinstance(body, bytes):
        return body
    return b"" if body is None else json.dumps(body).encode()


class InProcess:
    """Calls the app in this process as an authenticated principal."""

    def __init__(self, app: Any, resources: Resources, principal: Principal, request_id: str | None = None) -> None:
        async def admitting(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": {"resources": resources, "admitted": principal}}, receive, send)

        self._transport = httpx2.ASGITransport(admitting)
        self._id = {} if request_id is None else {"x-request-id": request_id}

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> ApiAnswer:
        sent = {**self._id, "content-type": "application/json", **(headers or {})}
        content = await off_loop(characters(body), encoded, body)
        try:
            request = httpx2.Request(method, f"http://localhost{path}", headers=sent, content=content)
        except httpx2.InvalidURL as error:
            raise ToolError(f"The request cannot be sent: {error}.") from error
        response = await self._transport.handle_async_request(request)
        content = await response.aread()
        answer = await off_loop(len(content), orjson.loads, content) if content else None
        return ApiAnswer(response.status_code, answer, response.headers)


SECONDS = 60.0
"""The timeout of a request."""


class Remote:
    """Calls a remote service."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client, self._url = client, without_secrets(str(client.base_url))

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> ApiAnswer:
        sent = {"content-type": "application/json", **(headers or {})}
        try:
            response = await self._client.request(method, path, content=encoded(body), headers=sent)
            answer = response.json() if response.content else None
        except httpx2.HTTPError as error:
            raise ToolError(
                f"The Recalld service at {self._url} cannot be reached: {type(error).__name__}.",
                code="unavailable",
            ) from error
        except httpx2.InvalidURL as error:
            raise ToolError(f"The request cannot be sent: {error}.") from error
        except json.JSONDecodeError as error:
            raise ToolError(f"{self._url} does not answer as Recalld does.", code="unavailable") from error
        return ApiAnswer(response.status_code, answer, response.headers)


@asynccontextmanager
async def connect(url: str, key: str | None) -> AsyncIterator[Remote]:
    """Connects to the service whose root is `url`."""
    headers = {BY_MODEL: "mcp"} | ({} if key is None else {"authorization": f"Bearer {key}"})
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=SECONDS) as client:
        yield Remote(client)


Result = Json | str
"""The result of a tool: an object, or text for a prompt."""


class Fenced(str):
    """A text of a result that the service has made for a prompt: nothing in it acts as structure any more."""

    __slots__ = ()


def quoted(result: Json) -> Json:
    """Returns an object as a model may read it. What it writes back of that is stored as it was (`unquote`)."""
    shown: Json = map_strings(result, lambda text: text if isinstance(text, Fenced) else quote_text(text))
    return shown


A = TypeVar("A", bound=Schema)

IDEMPOTENCY_KEY = "idempotency-key"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The API as a tool calls it. `key` is the idempotency key of the caller, if there is one."""

    api: Api
    key: str | None = None
    warnings: list[str] = field(default_factory=list)
    """What was found in the texts that were written: secrets."""

    async def __call__(self, method: str, path: str, body: Any = None, headers: Json | None = None) -> ApiAnswer:
        """Calls the API. Raises ToolError."""
        answer = checked(await self.api(method, path, body, headers))
        told = answer.body.get("warnings", ()) if isinstance(answer.body, dict) else ()
        self.warnings.extend(warning["detail"] for warning in told if warning.get("kind"))
        return answer

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
    reads: bool
    destroys: bool
    idempotent: bool


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
