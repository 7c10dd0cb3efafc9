"""Requests and answers of the API. `StrictRoute` authenticates a request and checks path and query before its body is
read; the body is parsed strictly: duplicate keys, bad numbers, and what is too deep or holds too many values are
refused. What lists take of the query is declared here, too, and `Answer`, which endpoints return.
"""

import asyncio
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from math import isfinite
from types import UnionType
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, Union, get_args, get_origin
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson
from fastapi import Query, Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.types import Receive, Scope, Send

from app.auth.dependencies import authenticate, header, state_of
from app.core import schemas as core
from app.core.metadata_filter import RecordFields, condition_of
from app.core.secret_text import PRIVATE, Secret, redacted, secrets_of
from app.core.work import BODY_BYTES_PER_UNIT, MOST_ENCODED, characters, charge, in_turn, off_loop, turn, work_for
from app.errors import (
    MAX_ERRORS,
    BadRequest,
    FieldError,
    Invalid,
    PreconditionFailed,
    UnsupportedMediaType,
    did_you_mean,
    invalid,
    invalid_fields,
    pointer,
)
from app.metrics import SECRETS
from app.settings import OwnPatterns, SecretPolicy
from app.storage.repository import Listing


def too_deep(limits: core.BodyLimits) -> Invalid:
    """Returns the error of a body that is nested too deep."""
    return Invalid(f"The body is nested deeper than {limits.json_depth} levels.")


INT64 = 1 << 63
Place: TypeAlias = tuple[()] | tuple["Place", int | str]
"""A location in a body: the location of the container and the name or index in it."""


_Container: TypeAlias = tuple[Place, Any, int, core.BodyLimits]
"""A container, where it is, how deep, and the limits of what is in it."""


def parse(body: bytes, limits: core.BodyLimits, lenient: Collection[str] = ()) -> Any:
    """Parses a JSON body within the limits. `lenient`: fields of the body, or of its `items`, whose values may have any
    size, since the endpoint limits or cuts them. Raises BadRequest if it is not JSON in UTF-8 or repeats a key in an
    object, and Invalid if a value breaks a limit."""
    value = decoded(body, limits)
    faults = faults_of(value, limits, lenient)
    first = next(faults, None)
    if first is not None:
        raise invalid_fields(chain((first,), faults))
    return value


def decoded(body: bytes, limits: core.BodyLimits) -> Any:
    """Parses a JSON body, and looks at none of its values. Raises BadRequest if it is not JSON in UTF-8 or repeats a
    key in an object, and Invalid if it holds too many values or is nested too deep for the parser."""
    if len(body) > limits.json_values and _count_values(body) > limits.json_values:
        raise Invalid(f"The body holds more than {limits.json_values} values.")
    try:
        return DECODER.decode(body.decode())
    except UnicodeDecodeError as error:
        raise BadRequest(f"The body is not valid UTF-8 at byte {error.start}.") from error
    except json.JSONDecodeError as error:
        raise BadRequest(f"The body is not valid JSON: {error.msg} at character {error.pos}.") from error
    except RecursionError as error:
        raise too_deep(limits) from error
    except ValueError as error:  # Python refuses to parse integers with thousands of digits
        raise Invalid("The body holds an integer outside int64.") from error


def _count_values(body: bytes) -> int:
    """Counts the values of a JSON body before it is parsed: two million empty lists in 4 MiB would be 100 MB. Each
    value but the first follows a comma or a bracket, of which those in texts do not count. Empty ones count twice."""
    without_escapes = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # an escaped quote ends no text
    outside_texts = b"".join(without_escapes.split(b'"')[::2])
    return 1 + sum(map(outside_texts.count, (b",", b"[", b"{")))


def is_deeper(value: Any, levels: int) -> bool:
    """Returns whether a parsed value is nested deeper than so many levels."""
    level = [value]
    for _ in range(levels + 1):
        containers = [
            part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)
        ]
        level = [inner for container in containers for inner in container]
        if not containers:
            return False
    return True


def _unique(pairs: list[tuple[str, JsonValue]]) -> core.JsonObject:
    """Makes an object. Raises BadRequest if a key occurs twice: of two parsers, one would take the first value and one
    the last."""
    made = dict(pairs)
    if len(made) != len(pairs):
        times = Counter(name for name, _ in pairs)
        repeated = next(name for name in times if times[name] > 1)
        raise BadRequest(f"The key {json.dumps(repeated[:128])} occurs twice in one object.")
    return made


DECODER = json.JSONDecoder(object_pairs_hook=_unique)
"""Parses JSON. Raises BadRequest if a key occurs twice in an object."""


_ITEMS = ((), "items")
"""The place of the items of a batch."""


def faults_of(value: Any, limits: core.BodyLimits, lenient: Collection[str] = ()) -> Iterator[FieldError]:
    """Yields the errors of a body, level by level. Pointers are built only for values with an error, since a body may
    contain a quarter of a million values (`BodyLimits.json_values`)."""
    if error := _fault(value, limits, 1):
        yield FieldError("", error)
        return
    most, any_size = sys.maxsize, limits  # the body is limited
    if lenient:
        any_size = replace(limits, text_chars=most, json_depth=most, batch_items=most, object_keys=most)
    containers: list[_Container] = [((), value, 1, limits)] if isinstance(value, list | dict) else []
    for place, container, depth, within in containers:  # the list grows during the iteration
        for name, item in container.items() if isinstance(container, dict) else enumerate(container):
            inside = any_size if name in lenient and (not place or place[0] == _ITEMS) else within
            if isinstance(name, str) and (error := _text_fault(name, limits)):
                yield FieldError(_pointer(place), f"has a key that {error}")
            elif item.__class__ is int and -INT64 <= item < INT64:
                continue
            elif error := _fault(item, inside, depth + 1):
                yield FieldError(_pointer((place, name)), error)
            elif item.__class__ is list or item.__class__ is dict:
                containers.append(((place, name), item, depth + 1, inside))


def _fault(value: Any, limits: core.BodyLimits, depth: int) -> str | None:
    match value:
        case bool() | None:
            return None
        case int():
            return None if -INT64 <= value < INT64 else "must fit into 64 bits"
        case str():
            return _text_fault(value, limits)
        case float():
            return None if isfinite(value) else "must be a finite number"
        case _ if depth > limits.json_depth:
            return f"must not be nested deeper than {limits.json_depth} levels"
        case list():
            return None if len(value) <= limits.batch_items else f"must have at most {limits.batch_items} items"
        case _:
            return None if len(value) <= limits.object_keys else f"must have at most {limits.object_keys} keys"


def _pointer(place: Place) -> str:
    steps: list[int | str] = []
    while place:
        place, name = place
        steps.append(name)
    return pointer(reversed(steps))


def _text_fault(text: str, limits: core.BodyLimits) -> str | None:
    if len(text) > limits.text_chars:
        return f"must have at most {limits.text_chars} characters"
    if "\0" in text:
        return "must not contain NUL"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "must be valid Unicode, without lone surrogates"
    return None


_NAME = re.compile(r"(?:^|_)ids?$|^key$")
"""Fields of a body, or of an item of a list in it, by which a record is named: replaced, two could become one."""
_SHORTEST = 8
"""Characters of a text that may hold a secret."""
_SHORTEST_KEY = 14
"""Characters of a name in an object that may be a secret: no key of a vendor is shorter."""
_CARD_NUMBER = 10**13
"""No number below has as many digits as a card."""


def secrets_in(value: Any, own: OwnPatterns, *, replaces: bool, only_read: bool) -> Iterator[tuple[str, Secret]]:
    """Yields the secrets in the texts of a parsed body, each with the pointer to its text. `replaces`: the body has
    `[secret: card]` in their place afterwards, and nothing in that of `<private>…</private>`. `only_read`: a filter may
    name records at any depth, `{"filters": {"AND": [{"user_id": …}]}}`."""
    containers: list[tuple[Place, Any]] = [((), value)] if isinstance(value, list | dict) else []
    for place, container in containers:  # the list grows during the iteration
        # {"items": [{"user_id": …}]}: the body, at (), and an item, at (((), "items"), 0), two steps below it, are
        # records; the metadata of the body, at ((), "metadata"), are none
        is_record = not place or (len(place[0]) == 2 and not place[0][0] and place[1].__class__ is int)
        renamed = dict[str, str]()
        for name, item in container.items() if isinstance(container, dict) else enumerate(container):
            if (is_record or only_read) and name.__class__ is str and _NAME.search(name):
                continue
            shown = name
            if name.__class__ is str and len(name) >= _SHORTEST_KEY and (found := secrets_of(name, own)):
                shown = renamed[name] = redacted(name, found)
                yield from ((_pointer(place), secret) for secret in found)
            kind = item.__class__
            if kind is dict or kind is list:
                containers.append(((place, shown), item))
                continue
            if kind is int and item >= _CARD_NUMBER:
                text = str(item)
            elif kind is str and len(item) >= _SHORTEST:
                text = item
            else:
                continue
            if found := secrets_of(text, own):
                yield from ((_pointer((place, shown)), secret) for secret in found)
                if replaces:
                    container[name] = redacted(text, found)
        if renamed and replaces:
            entries = [(renamed.get(name, name), item) for name, item in container.items()]
            container.clear()
            for name, item in entries:
                container[name if name not in container else f"{name} {len(container)}"] = item


class _NameConvertor(PathConvertor):
    """Takes a name with any characters, slashes and line breaks too, as the last part of a path or before a word."""

    regex = "(?s:.*)"


register_url_convertor("name", _NameConvertor())


def check_path(raw: bytes, template: str) -> None:
    """Raises BadRequest if a path is not percent-encoded UTF-8, and Invalid for an encoded slash in an id. `template`
    is that of the route: one that takes a name has `:name`."""
    if b"%" not in raw:
        return
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise BadRequest("The path is not percent-encoded UTF-8.") from error
    if has_slash(raw) and ":name}" not in template:
        raise slash_in_id()


def has_slash(raw: bytes) -> bool:
    """Returns whether a path has an encoded slash. Once it is decoded, the path is another one."""
    return b"%2f" in raw.lower()


def slash_in_id() -> Invalid:
    """Returns the error for an encoded slash in an id."""
    return Invalid(f"An id in a path {core.RULE}.")


def checked_query(query: bytes, known: frozenset[str]) -> dict[str, str]:
    """Returns the parameters of a query string. Raises BadRequest if it is not UTF-8, and Invalid with a pointer to
    each unknown, repeated or invalid parameter."""
    if not query:
        return {}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequest("The query string is not percent-encoded UTF-8.") from error
    times = Counter(name for name, _ in pairs)
    errors = [
        FieldError(pointer(("query", name[:128])), f"this parameter is not known{did_you_mean(name, known)}")
        for name in islice((name for name in times if name not in known), MAX_ERRORS + 1)
    ]
    errors += [
        FieldError(pointer(("query", name[:128])), "must be given once")
        for name in times
        if name in known and times[name] > 1
    ]
    errors += [
        FieldError(pointer(("query", name[:128])), "must not contain NUL") for name, value in pairs if "\0" in value
    ]
    if errors:
        raise invalid_fields(errors)
    return dict(pairs)


Limit = Annotated[int, Query(ge=1, le=100, description="Most items on a page.")]
AfterSeq = Annotated[
    int | None, Query(ge=0, le=core.MAX_SEQ, description="Made from a message after this one. Needs `session_id`.")
]
BeforeSeq = Annotated[
    int | None, Query(ge=0, le=core.MAX_SEQ, description="Made from a message before this one. Needs `session_id`.")
]
Cursor = Annotated[str | None, Query(max_length=512, description="`next_cursor` of the page before.")]


InListing = Annotated[Listing, Query()]


class RecordQuery(BaseModel):
    """What a list asks of owner, metadata and fields in the query string."""

    agent_id: core.Identifier | None = None
    user_id: core.Identifier | None = None
    metadata: str | None = Field(
        None,
        max_length=8_192,
        description='As `metadata` of a search: a JSON object, as `{"topic": "billing", "n": {"gte": 3}}`.',
    )
    filters: str | None = Field(
        None,
        max_length=8_192,
        description='As `filters` of a search: a JSON object, as `{"user_id": "ada", "topic": "billing"}`.',
    )

    def asked(self, fields: RecordFields) -> Any:
        """Returns the values by name, with the objects that `metadata` and `filters` hold, and the owner that `filters`
        names. Raises Invalid."""
        given = self.model_dump()
        given["metadata"] = _filter("metadata", self.metadata, condition_of)
        given["filters"] = _filter("filters", self.filters, lambda entries: core.owner_of(entries, fields, given))
        return {**given, **core.owner_of(given["filters"] or {}, fields, {})}


def _filter(name: str, given: str | None, check: Callable[[core.JsonObject], object]) -> core.JsonObject | None:
    """Returns a filter in the query string. Raises Invalid if it is none."""
    if given is None:
        return None
    entries = object_in_query(name, given)
    try:
        check(entries)
    except ValueError as error:
        raise invalid(f"/query/{name}", str(error)) from None
    return entries


def object_in_query(name: str, given: str) -> core.JsonObject:
    """Returns the object in a parameter of the query string. Raises Invalid if it is none."""
    entries = _parsed(name, given, "object")
    if not isinstance(entries, dict):
        raise invalid(f"/query/{name}", 'must be a JSON object, as {"topic": "billing"}')
    return entries


def texts_in_query(name: str, given: str | None, valid: TypeAdapter[list[str]]) -> list[str] | None:
    """Returns the list in a parameter of the query string, as `["alpha", "beta"]`. Raises Invalid if it is none."""
    if given is None:
        return None
    try:
        return valid.validate_python(_parsed(name, given, "list"))
    except ValidationError as error:
        raise invalid(f"/query/{name}", 'must be a JSON list of texts, as ["alpha", "beta"]') from error


def _parsed(name: str, given: str, kind: str) -> Any:
    """Returns the JSON value of a parameter."""
    try:
        return parse(given.encode(), core.BODY_LIMITS)
    except (BadRequest, Invalid) as error:
        fault = error.detail.replace("The body", "it")
        raise invalid(f"/query/{name}", f"must be a JSON {kind}: {fault}") from error


A = TypeVar("A")


class Answer(Response, Generic[A]):
    """The answer of an endpoint: `async def get(…) -> Answer[Action]: return answer(action)`. `StrictRoute` takes what
    stands in brackets for the response model. A body is encoded once and not validated again; tests check every answer
    against its schema. A long one is encoded in a thread, when it is sent."""

    def __init__(self, body: A | bytes | None, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """`body`: what is to be encoded, or JSON already; None: there is none."""
        super().__init__(None, status, headers, None if body is None else "application/json")
        self._value = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Encodes the body and sends the answer."""
        if isinstance(self._value, bytes):
            self.body = self._value
        elif self._value is not None:
            is_long = characters(self._value, most=MOST_ENCODED) > MOST_ENCODED
            self.body = await in_turn(orjson.dumps, self._value) if is_long else orjson.dumps(self._value)
        self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def etag(record: Mapping[str, object]) -> str:
    """Returns the ETag of a record of any collection, or of what is shown of one: its version, in quotes."""
    return f'"{record["version"]}"'


def answer(body: A, headers: Mapping[str, str] | None = None) -> Answer[A]:
    """Returns the answer with a rendered body. That of a record with a version has its ETag."""
    if headers is None and isinstance(body, dict) and body.get("version") is not None:
        headers = {"ETag": etag(body)}
    return Answer(body, 200, headers)


# --- The route of a request ------------------------------------------------------------------------------------------

SMALL_BODY = 16 << 10
"""Bytes. What comes beyond them is taken in at `BYTES_PER_SECOND`."""
LARGE_BODY = 64 << 10
"""Bytes. A larger body is parsed and validated in a thread, because that takes 20 ms a megabyte and more: 350 with as
many faults as it can have."""
BYTES_PER_SECOND = 128 << 20
"""How fast large bodies of a tenant are taken in. At full speed one client could keep the event loop at work."""


def require_json(request: Request, *suffixes: str) -> None:
    """Raises UnsupportedMediaType unless the body is declared as JSON, or as `application/…` with one of the suffixes,
    and is not compressed."""
    kind = (header(request, b"content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith(suffixes)):
        raise UnsupportedMediaType(f"Send application/json, not {kind or 'a body without a content type'}.")
    coding = header(request, b"content-encoding") or "identity"
    if coding.lower() != "identity":
        raise UnsupportedMediaType(f"Send the body as it is, without Content-Encoding: {coding[:64]}.")


RouteHandler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRequest(Request):
    """A request whose body is parsed strictly (`app.api.strict`).

    FastAPI calls `body()` and `json()` of the request that it is given. `StrictRoute` gives it this one, so
    these two methods decide how a body is read, and dependencies and models stay FastAPI's.
    """

    field: Any = None
    """FastAPI's `ModelField` of the body, which validates it; None where there is none."""
    query_params: Any = {}
    """What `checked_query` returns. FastAPI would parse the query string once more, and looks each parameter up in
    it."""
    lenient: frozenset[str] = frozenset()
    """Fields of the body with values of any size. A model of a body names them as `LENIENT`."""
    secrets: SecretPolicy = "off"
    """What becomes of secrets in the texts of the body."""
    only_read: bool = False
    """Whether the endpoint only reads, as `POST /v1/memories/search` does. Then nothing is kept and no answer warns,
    but a model may be given the texts."""
    warnings: Sequence[core.TextWarning] = ()
    """What was found, for the answer."""

    async def body(self) -> bytes:
        """Returns the body. The large ones of a tenant share `BYTES_PER_SECOND`."""
        if not hasattr(self, "_body"):
            parts, length = list[bytes](), 0
            try:
                async for part in self.stream():
                    charge(len(part) / BODY_BYTES_PER_UNIT)
                    if length > SMALL_BODY:
                        async with turn("bodies"):
                            await asyncio.sleep(len(part) / BYTES_PER_SECOND)  # the rest waits in the client's system
                    parts.append(part)
                    length += len(part)
                self._body = b"".join(parts)
            finally:
                parts.clear()  # the traceback of a body that breaks off would keep them
        return self._body

    async def json(self) -> Any:
        """Returns the parsed body. A large one is parsed and validated in a thread, so that others are not held up, and
        those of a tenant one after the other. Raises BadRequest, Invalid or RequestValidationError."""
        body = await self.body()
        if len(body) <= LARGE_BODY:
            value = parse(body, core.BODY_LIMITS, self.lenient)
        else:
            value = await in_turn(parse, body, core.BODY_LIMITS, self.lenient)
        if self.secrets != "off" and not (self.only_read and self.secrets == "flag"):
            await off_loop(len(body), self.screen, value)
        return value if len(body) <= LARGE_BODY else await in_turn(self.validated, value)

    def validated(self, value: Any) -> Any:
        """Returns the model of a parsed body, which FastAPI takes as it is. Raises RequestValidationError."""
        model, faults = self.field.validate(value, {}, loc=("body",))
        if faults:
            raise RequestValidationError(faults, body=value)
        return model

    def screen(self, value: Any) -> None:
        """Does with the secrets of the body what the tenant's policy says, before anything else sees it. Raises
        Invalid."""
        policy, own = self.secrets, state_of(self)["resources"].settings.secrets.own
        # under `block`, too, secrets are replaced: private blocks, which refuse nothing, and those of a search
        placed = [*secrets_in(value, own, replaces=policy != "flag", only_read=self.only_read)]
        if placed and policy != "flag":
            self._body = orjson.dumps(value)  # the fingerprint of an idempotency key is made of it
        if self.only_read:
            return
        for _, secret in placed:
            SECRETS.labels(secret.kind, policy).inc()
        if policy == "block" and (refused := [one for one in placed if one[1].kind != PRIVATE]):
            raise invalid_fields(
                FieldError(
                    where, f"holds a secret ({secret.kind}, characters {secret.start} to {secret.end}): it is refused"
                )
                for where, secret in refused
            )
        self.warnings = [_warning(where, secret, policy) for where, secret in placed[:MOST_WARNINGS]]


MOST_WARNINGS = 100
"""Most secrets that one answer names."""


def _warning(where: str, secret: Secret, policy: SecretPolicy) -> core.TextWarning:
    """Returns what an answer says of a secret: what and where (`/items/0/content`), never the value."""
    kind, span = secret.kind, f"characters {secret.start} to {secret.end}"
    if policy == "flag":
        code, detail = "secret_found", f"{kind} at {span}: it is stored as it was sent."
    elif kind == PRIVATE:
        code, detail = "private_left_out", f"{secret.end - secret.start} characters are not stored, {span}."
    else:
        code, detail = "secret_replaced", f"{kind} at {span} is not stored: [secret: {kind}] stands there."
    return {"code": code, "pointer": where, "detail": detail, **secret._asdict()}  # type: ignore[typeddict-item]


class StrictRoute(APIRoute):
    """A route that authenticates and checks the request before its endpoint runs.
    `openapi_extra={"x-verb": …}` sets the verb that a key needs. By default GET needs `read`, and everything else
    `write`. An endpoint that returns `Answer[Action]` declares its response model so; of
    `Answer[Receipt] | Answer[Operation]` the first one counts."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        returned = inspect.signature(endpoint, eval_str=True).return_annotation
        answer, *_ = get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,)
        if get_origin(answer) is Answer:
            (options["response_model"],) = get_args(answer)
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> RouteHandler:
        """Wraps the endpoint with authentication, the check of the verb, and the strict checks of query string and
        body."""
        handle = super().get_route_handler()
        by_method = "read" if self.methods == {"GET"} else "write"
        verb = str((self.openapi_extra or {}).get("x-verb", by_method))
        taken = get_flat_params(self.dependant)
        # a field of a model of the query string is no `Query` itself
        parameters = frozenset(
            field.alias for field in taken if not isinstance(field.field_info, params.Path | params.Header)
        )
        headers = {field.alias for field in taken if isinstance(field.field_info, params.Header)}
        headers |= {str(parameter["name"]) for parameter in (self.openapi_extra or {}).get("parameters", ())}
        refuses_if_match = self.methods != {"GET"} and verb != "read" and "If-Match" not in headers
        body_field = self.body_field  # FastAPI's, None where the endpoint takes no body
        model = body_field and body_field.field_info.annotation
        lenient: frozenset[str] = getattr(model, "LENIENT", frozenset())

        async def respond(request: Request) -> Response:
            principal = await authenticate(request)
            principal.require(verb)
            work_for(principal.scope.tenant)
            state_of(request)["principal"] = principal
            check_path(request.scope.get("raw_path") or b"", self.path)
            query_params = checked_query(request.scope["query_string"], parameters)
            request = StrictRequest(request.scope, request.receive)  # FastAPI reads query and body through it
            request.query_params = query_params
            request.field, request.lenient = body_field, lenient
            if verb != "admin":  # what an operator writes is no text of a conversation
                request.secrets = state_of(request)["resources"].settings.secrets.policy_of(principal.scope.tenant)
                request.only_read = verb == "read"
            if body_field is None and "requestBody" in (self.openapi_extra or {}):
                pass  # the endpoint reads a file as it arrives
            elif body_field is None:
                # some clients send {} with every POST
                if request.method == "POST" and (await request.body()).strip() not in (b"", b"{}", b"null"):
                    raise invalid("", "this request takes no body")
            elif body_field.field_info.is_required() or await request.body():
                require_json(request, "+json")
                # if the client hung up while FastAPI read the body, its error would stay in memory, in a cycle
                await request.body()
            if refuses_if_match and header(request, b"if-match") is not None:
                raise PreconditionFailed("This changes no record that has one version: send it without If-Match.")
            return await handle(request)

        return respond
