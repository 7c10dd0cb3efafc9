"""Bad input for every operation, made from what the document says of it (PITFALLS 42): a new route is covered too."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.contract import Contract, Json, Operation

MEMORY, SESSION = "mem_01a2003d395076f9a13acea58faaf745", "chat-1"
JSON = {"content-type": "application/json"}
_HERE = "\x01here\x01"
LONG = "32,001 characters"
_MiB = 1 << 20

POISON: dict[str, str] = {
    "NaN": "NaN",
    "Infinity": "Infinity",
    "minus infinity": "-Infinity",
    "1e999": "1e999",
    "2^70": str(2**70),
    "-2^70": str(-(2**70)),
    "lone surrogate": '"\\ud800"',
    "NUL": '"a\\u0000b"',
    "a surrogate as key": '{"\\udfff": 1}',
    "NUL as key": '{"a\\u0000": 1}',
    "257 keys": json.dumps({str(i): i for i in range(257)}),
    "501 items": json.dumps(list(range(501))),
    LONG: json.dumps("x" * 32_001),
    "depth 33": "[" * 33 + "]" * 33,
}
"""Raw JSON that no field of any operation takes, and whose place is named."""
SIZES = (LONG, "257 keys", "501 items", "depth 33")
PLACELESS: dict[str, str] = {
    "5,000 digits": "9" * 5_000,
    "depth 10,000": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "depth 100,000": "[" * 100_000 + "]" * 100_000,
}
BODIES: dict[str, tuple[bytes, set[int]]] = {
    "empty": (b"", {422}),
    "an array": (b"[]", {422}),
    "a number": (b"7", {422}),
    "a string": (b'"x"', {422}),
    "null": (b"null", {422}),
    "truncated": (b'{"agent_id": "a", "con', {400}),
    "two values": (b"{}{}", {400}),
    "not JSON": (b"<a/>", {400}),
    "invalid UTF-8": (b'{"agent_id": "\xff\xfe"}', {400}),
    "a byte order mark": (b"\xef\xbb\xbf{}", {400}),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), {400}),
    "an unknown field": (b'{"no_such_field": 1}', {422}),
    "a constructor": (b'{"__proto__": {"x": 1}}', {422}),
    "NUL as key": (b'{"\\u0000": 1}', {422}),
    "a surrogate as key": (b'{"\\ud800": 1}', {422}),
    "257 fields": (POISON["257 keys"].encode(), {422}),
    "10 MB string": (b'{"agent_id": "' + b"x" * 10_000_000 + b'"}', {413}),
}
OTHER_TYPES = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/jsonx",
    "\xff",
]
WRONG: list[Any] = [None, True, 7, -1, 1.5, "", " ", "\u0007 !", [], {}, ["x"], [None], [{}], {"a": 1}, "2026-01-01"]
BAD_IDS = ["%00", "%ff", "%20a", "x" * 256, "..", "%2F", "%E2%80%8B", "a%0Ab", "%ed%a0%80"]
BAD_VALUES = [
    "x%20y",
    "",
    "-1",
    "1.5",
    "NaN",
    "1e999",
    "9" * 40,
    "9" * 5_000,
    "null",
    "x" * 600,
    "2026-01-01",
    "%F0%9F%98%80",
]


@dataclass(frozen=True, slots=True)
class Case:
    operation: Operation
    says: str
    statuses: set[int]
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | list[bytes] | None = None
    pointer: str | None = None
    """Where the fault is; one of `errors` must point there or into it."""

    @property
    def name(self) -> str:
        return f"{self.operation.name}: {self.says}"

    def body(self) -> bytes | AsyncIterator[bytes] | None:
        return _stream(self.content) if isinstance(self.content, list) else self.content


_LIBRARY = re.compile(
    r"Input should|[Ff]ield required|Extra inputs|Value error|Assertion failed|Unable to|should have|should match"
    r"|valid (dictionary|string|integer|number|boolean|list|array)|pydantic"
    r"|\\[sSdDwWx]|\(\?|\[\^|\]\{|\^\["
)
"""What a library says of a fault, and what only a regular expression holds."""


def foreign_words(problem: Json) -> str | None:
    """What a sentence of a problem says in words that are not the service's. Values of the caller are not judged."""
    details = [problem["title"], *(error["detail"] for error in problem["errors"])]
    return next((detail for detail in details if _LIBRARY.search(detail)), None)


async def _stream(chunks: list[bytes]) -> AsyncIterator[bytes]:
    """Has no Content-Length."""
    for chunk in chunks:
        yield chunk


def url(operation: Operation, **named: str) -> str:
    ids = {"memory_id": MEMORY, "session_id": SESSION} | named
    return operation.path.format(**{p["name"]: ids.get(p["name"], "x") for p in operation.parameters("path")})


def body_cases(contract: Contract, op: Operation) -> Iterator[Case]:
    if op.body is None:
        return
    free = "properties" not in contract.resolve(op.body)  # any object will do
    optional = not op.spec["requestBody"].get("required", False)
    for says, (content, statuses) in BODIES.items():
        if optional and says in ("empty", "null"):
            continue
        if free and says in ("an unknown field", "a constructor"):
            continue
        yield Case(op, says, statuses, url(op), JSON, content)
    for kind in OTHER_TYPES:
        yield Case(op, f"content type {kind}", {415}, url(op), {"content-type": kind}, b"{}")
    yield Case(op, "no content type", {415}, url(op), {}, b"{}")
    chunk = b" " * _MiB
    yield Case(op, "5 MiB", {413}, url(op), JSON, chunk * 5)
    yield Case(op, "5 MiB in chunks", {413}, url(op), JSON, [chunk] * 5)
    yield Case(op, "5 MiB after a brace", {413}, url(op), JSON, [b"{", *[chunk] * 5])


def field_cases(contract: Contract, op: Operation) -> Iterator[Case]:
    if op.body is None:
        return
    schema, example = op.body, contract.resolve(op.body)["examples"][0]
    for pointer, of_field in fields(contract, schema, example, ""):
        for says, raw in {**POISON, **PLACELESS}.items():
            if says in SIZES and pointer.startswith("/messages/"):
                continue  # what messages hold is cut or left out
            if says == LONG and op.name == "update_memory":
                continue  # a file may be as long, so the memory is looked for first
            content = json.dumps(put(example, pointer, _HERE)).replace(json.dumps(_HERE), raw).encode()
            where = None if says in PLACELESS else pointer
            yield Case(op, f"{pointer}: {says}", {422}, url(op), JSON, content, where)
        for value in WRONG:
            if contract.fits(of_field, value) is not None:
                content = json.dumps(put(example, pointer, value)).encode()
                yield Case(op, f"{pointer}: {value!r}", {422}, url(op), JSON, content, pointer)
        around, _, name = pointer.rpartition("/")
        if name.isdigit():
            continue
        content = json.dumps(put(example, f"{around}/nobody_knows", 1)).encode()
        if contract.fits(schema, json.loads(content)) is not None:  # parts of messages keep what we do not know
            yield Case(op, f"{around}: unknown field", {422}, url(op), JSON, content, f"{around}/nobody_knows")


def fields(contract: Contract, schema: Json, example: Any, pointer: str) -> Iterator[tuple[str, Json]]:
    """Every field with its schema, of objects and of first items that the example holds."""
    schema = contract.resolve(schema)
    if pointer:
        yield pointer, schema
    if isinstance(example, dict):
        for name, inner in schema.get("properties", {}).items():
            yield from fields(contract, inner, example.get(name), f"{pointer}/{name}")
    elif isinstance(example, list) and example and "items" in schema:
        yield from fields(contract, schema["items"], example[0], f"{pointer}/0")


def put(tree: Any, pointer: str, value: Any) -> Any:
    """A copy of the tree with the value at the pointer."""
    copy = json.loads(json.dumps(tree))
    *way, last = pointer.split("/")[1:]
    at = copy
    for step in way:
        at = at[int(step)] if isinstance(at, list) else at[step]
    at[int(last) if isinstance(at, list) else last] = value
    return copy


def path_cases(contract: Contract, op: Operation) -> Iterator[Case]:
    for parameter in op.parameters("path"):
        number = parameter["schema"].get("type") == "integer"
        for bad in BAD_IDS:
            if bad == ".." and (number or op.path == "/v1/sessions/{session_id}/stats"):
                continue  # clients resolve it before they send it: `/messages/..` is the session itself
            statuses = {400, 404, 405, 415, 422}
            yield Case(op, f"path {bad[:20]}", statuses, url(op, **{parameter["name"]: bad}), JSON, b"{}")


def query_cases(contract: Contract, op: Operation) -> Iterator[Case]:
    content = JSON if op.body is not None else {"content-type": "text/plain"} if op.takes_file else {}
    yield Case(op, "unknown parameter", {422}, f"{url(op)}?nobody_knows=1", content, pointer="/query/nobody_knows")
    yield Case(op, "query of invalid UTF-8", {400}, f"{url(op)}?limit=%ff", content)
    for parameter in op.parameters("query"):
        name, schema = parameter["name"], parameter["schema"]
        for bad in BAD_VALUES:
            if not _takes(contract, schema, bad):
                statuses = {400, 422} if name == "cursor" else {422}
                where = None if name == "cursor" else f"/query/{name}"
                yield Case(op, f"{name}={bad[:20]}", statuses, f"{url(op)}?{name}={bad}", content, pointer=where)
        nul = f"{url(op)}?{name}=a%00b"
        yield Case(op, f"{name} with NUL", {422}, nul, content, pointer=f"/query/{name}")
        twice = f"{url(op)}?{name}=1&{name}=1"
        yield Case(op, f"{name} twice", {422}, twice, content, pointer=f"/query/{name}")


def _takes(contract: Contract, schema: Json, text: str) -> bool:
    """Whether the parameter may be so: as a text, a number or a time, whatever it is declared to be."""
    if schema.get("format") == "date-time":
        return False
    if schema.get("type") in ("integer", "boolean"):
        return len(text) < 20 and text.removeprefix("-").isdigit() and contract.fits(schema, int(text)) is None
    return contract.fits(schema, "\U0001f600" if text.startswith("%") else text.replace("%20", " ")) is None


def header_cases(contract: Contract, op: Operation) -> Iterator[Case]:
    named = {p["name"] for p in op.parameters("header")}
    content = json.dumps({}).encode() if op.body is not None else None
    for says, key in (("empty", ""), ("256 characters", "k" * 256)):
        if "Idempotency-Key" in named:
            headers = {**JSON, "idempotency-key": key}
            yield Case(op, f"idempotency key {says}", {422}, url(op), headers, content)
    for given in ("Bearer rk_x_y", "Basic eDp5", "rk_", "Bearer \xff\xfe", "x" * 9_000):  # an empty one is none
        yield Case(op, f"authorization {given[:20]!r}", {401}, url(op), {**JSON, "authorization": given}, content)
    yield Case(op, "X-API-Key", {401}, url(op), {**JSON, "x-api-key": "\xff"}, content)
    for length in ("9" * 12, "9" * 5_000):
        yield Case(op, f"content length {length[:13]}", {413}, url(op), {**JSON, "content-length": length}, content)
    yield Case(op, "another host", {403}, url(op), {**JSON, "host": "evil.example"}, content)


PARTS = (path_cases, query_cases, header_cases, body_cases, field_cases)
