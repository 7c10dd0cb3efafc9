"""Hooks of schemathesis: what JSON Schema cannot say of a request.

Schemathesis wants every request that fits the document accepted (`positive_data_acceptance`). Rules between fields, and
what only the service's state decides, stand in no schema: a request that fits it is made to keep these few as well.
What is refused then is a fault, of the document or of the service. Requests that are wrong on purpose stay as they
are, but for those that are wrong for want of a body that is optional."""

from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import schemathesis
from schemathesis import Case, HookContext
from schemathesis.core import NotSet

Json = dict[str, Any]

ENTITY = "/v1/graph/entities/{name}"
OWNED_BY_QUERY = (
    "DELETE /v1/memories",
    "GET /v1/graph/entities",
    *(f"GET {ENTITY}{part}" for part in ("", "/neighbors", "/aliases")),
    f"DELETE {ENTITY}/aliases",
)
RUN = "POST /v1/jobs/{name}/run"
COPY = "POST /v1/agents/{agent_id}/experience/copy"
EDIT = "PATCH /v1/sessions/{session_id}/messages/{seq}"
SAID = ("content", "tool_calls", "result", "refusal", "audio", "function_call")


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: Json) -> None:
    if case.meta is None:
        return
    operation = case.operation.label
    optional = "requestBody" in (raw := case.operation.definition.raw) and not raw["requestBody"].get("required")
    positive = case.meta.generation.mode.is_positive
    if optional and (isinstance(case.body, NotSet) or not case.media_type):
        # without its body it is not wrong; of one that is right, schemathesis thinks so after the changes below
        case.body, case.media_type = ({} if positive else []), "application/json"
    if not positive:
        return
    case.body = _fitting(case, operation, _kept(case.body))
    _state(case)
    _query(operation, case.query)
    case.query.update({name: as_id(value) for name, value in case.query.items() if name in IDS or name.endswith("_id")})
    for name, value in case.path_parameters.items():  # they are quoted already
        if isinstance(value, str) and (name.endswith("_id") or operation == RUN):
            case.path_parameters[name] = quote(as_id(unquote(value)), safe="")


def _fitting(case: Case[Any], operation: str, body: Any) -> Any:
    """The body as the rules between its fields want it."""
    if operation == "POST /v1/documents":
        case.query["name"] += ".txt"  # what it is says its name
        return body or b"Hello"  # and it has something in it
    _own(case, body)
    for part in (body, *_items(body)):
        if isinstance(part, dict):  # which rules there are no schema says, and each needs a time beside it
            part.pop("rrule", None)
            part.pop("event_at_precision", None)
    if operation == "POST /v1/memories/extract":
        body["messages"][0] = {"role": "user", "content": "I moved to Boston."}  # somebody has to say something
    if operation == "POST /v1/memories/feedback":
        body["items"] = list({item["memory_id"]: item for item in body["items"]}.values())  # each memory once
    if operation == "POST /v1/sessions/{session_id}/messages":
        body = {"agent_id": "support", "user_id": "ada"} | {name: one for name, one in body.items() if one is not None}
    if operation == EDIT:  # the message in hand says which roles may call tools, and something has to be left of it
        body = {name: one for name, one in body.items() if name not in ("role", "tool_calls")}
        body["content"] = body.get("content") or "Hello"
    if operation == "PATCH /v1/memories/{memory_id}" and isinstance(text := body.get("content"), str):
        body["content"] = text[:32_000] if text.strip() else "Hello"  # the memory in hand says whether it is a file
    if operation == COPY and body["from_agent_id"] == unquote(case.path_parameters["agent_id"]):
        body["from_agent_id"] += "x"  # it has to be another agent
    if operation == "POST /v1/facts/batch":  # only a single fact is merged
        body["items"] = [
            one | {"on_conflict": "temporal"} if one.get("on_conflict") == "merge" else one for one in body["items"]
        ]
    if operation == f"POST {ENTITY}/aliases":  # an alias is another name
        body["aliases"] = [f"{unquote(case.path_parameters['name'])} {at}" for at, _ in enumerate(body["aliases"])]
    of_all = operation == RUN and case.path_parameters["name"] != "consolidation"
    if of_all and isinstance(body, dict):  # it may be left out
        body = {name: value for name, value in body.items() if name == "dry_run"}
    return body


IDS = frozenset({"agents", "users", "keep", "memory_ids", "action", "action_ids"})
"""Fields with ids, beside those whose names end so."""


def as_id(value: Any) -> Any:
    """What is printable of an id. No pattern can say which characters are."""
    if isinstance(value, list):
        return [as_id(one) for one in value]
    if not isinstance(value, str):
        return value
    kept = "".join(char for char in value if char.isprintable()).strip()
    return "x" if kept in ("", ".", "..") else kept


def _own(case: Case[Any], body: Any) -> None:
    """Names an owner where one of two is asked for (`x-requires-one-of`), of items of a batch as well."""
    schemas = case.operation.schema.raw_schema["components"]["schemas"]
    content = case.operation.definition.raw.get("requestBody", {}).get("content", {}).get("application/json", {})
    shape = schemas.get(content.get("schema", {}).get("$ref", "").rpartition("/")[2], {})
    items = shape.get("properties", {}).get("items", {}).get("items", {}).get("$ref", "").rpartition("/")[2]
    for part, of_part in [(body, shape), *((one, schemas.get(items, {})) for one in _items(body))]:
        names = of_part.get("x-requires-one-of", ())
        if isinstance(part, dict) and names and all(part.get(name) is None for name in names):
            part["user_id"] = "ada"


def _items(body: Any) -> list[Any]:
    found = body.get("items") if isinstance(body, dict) else None
    return found if isinstance(found, list) else []


def _state(case: Case[Any]) -> None:
    """A cursor is the service's own, a version is the record's, and a key is for one request."""
    case.query.pop("cursor", None)
    case.query.pop("after", None)
    for name in [name for name in case.headers if name.lower() in ("if-match", "last-event-id")]:
        case.headers.pop(name)
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = uuid4().hex


def _query(operation: str, query: Json) -> None:
    if operation in OWNED_BY_QUERY and not {"agent_id", "user_id"} & query.keys():
        query["user_id"] = "ada"
    if query.get("timeline") in (True, "true"):
        query.pop("as_of", None)
    if {"after_seq", "before_seq"} & query.keys() and operation.endswith(("/v1/memories", "/v1/facts")):
        query.setdefault("session_id", "s")
    for name, value in query.items():
        if isinstance(value, str):
            query[name] = value.replace("\0", "")
    for name in {"metadata", "filters"} & query.keys():
        query[name] = '{"topic": "billing"}'
    for name in {"tags", "exclude_tags"} & query.keys():
        query[name] = '["billing"]'
    for name in {"tz", "timezone"} & query.keys():
        query[name] = "Europe/Berlin"


def _kept(value: Any) -> Any:
    """The same within the rules for all JSON (no NUL, integers of 64 bits) and those of its fields."""
    if isinstance(value, str):
        return value.replace("\0", "0")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return 0
    if isinstance(value, list):
        return [_kept(one) for one in value]
    if isinstance(value, dict):
        return _fields({_kept(name): _kept(one) for name, one in value.items()})
    return value


def _fields(part: Json) -> Json:
    if part.get("valid_from") and part.get("valid_until"):
        del part["valid_until"]
    if part.get("share") is not None and part.get("tokens") is not None:
        del part["tokens"]
    if part.get("type") == "text" and part.get("text") is None:
        part["text"] = "Hello"
    if part.get("min_score") is not None and "mode" in part:
        part["mode"] = "hybrid"
    if part.get("tool_calls"):
        part["role"] = "assistant"
    content = part.get("content")
    if "role" in part and isinstance(content, str) and not content.strip():
        part["content"] = None  # a blank text says nothing
    if "role" in part and all(part.get(name) in (None, []) for name in SAID):
        part["content"] = "Hello"
    if "verbs" in part and isinstance(part.get("name"), str):  # of a key; "\u001c" is white space to Python alone
        part["name"] = as_id(part["name"])
    if part.get("timezone") is not None:
        part["timezone"] = "Europe/Berlin"
    part.update({name: as_id(value) for name, value in part.items() if name in IDS or name.endswith("_id")})
    part.pop("supersedes", None)  # names memories that there are
    return part
