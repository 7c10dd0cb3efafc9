"""Builds the OpenAPI document: stable operation ids, the problem schema for every error, headers, examples, and shapes
that generators of clients can read."""

import asyncio
import re
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.routing import Route

from app.api.errors import MEDIA_TYPE, only
from app.core.schemas import Json, Problem, without_null
from app.core.work import in_turn

DESCRIPTION = """Memory as a service for AI agents: store what an agent lives through, get back what matters now.

**Start with these five:**

1. `POST /v1/sessions/{session_id}/messages` stores what was said. The session begins with its first message.
2. `POST /v1/memories` remembers one thing.
3. `POST /v1/memories/search` finds what matters for a query, across sessions.
4. `POST /v1/context` gives the prompt text for the next model call, within a token budget.
5. `DELETE /v1/users/{user_id}` erases a user, with all that was derived from them.

```sh
curl -s http://127.0.0.1:8000/v1/memories -H 'content-type: application/json' \\
  -d '{"agent_id": "support", "user_id": "ada", "content": "Ada prefers tea"}'
```

Authentication: `Authorization: Bearer rk_…` or `X-API-Key`; or a bearer token of the OpenID Connect issuer in the
settings. While no key was ever made, and without an issuer, the service answers its own machine
without one. Errors are `application/problem+json` (RFC 9457). POSTs that write take an `Idempotency-Key`."""

TAGS = [
    {"name": "sessions", "description": "Short-term memory: conversations and their messages."},
    {"name": "memories", "description": "Long-term memory: what is remembered across sessions, and search."},
    {
        "name": "context",
        "description": "The one call before each model call: the right few things, inside a token budget.",
    },
    {
        "name": "documents",
        "description": "Files: their passages are memories that are found and cited with their place.",
    },
    {"name": "tasks", "description": "Working memory: a task's plan, context, notes, evidence and checkpoints."},
    {"name": "actions", "description": "Episodic memory: what agents did, and what came of it."},
    {"name": "facts", "description": "Semantic memory: what is true, since when, and what was known of it when."},
    {"name": "graph", "description": "The same facts as a graph: entities, and what they are linked with."},
    {"name": "procedures", "description": "Procedural memory: how things are done, and how often that worked."},
    {"name": "changes", "description": "What was created, updated and deleted, in order: pages, or a stream."},
    {"name": "findings", "description": "What reflection found and asks somebody to settle, with its evidence."},
    {"name": "users", "description": "People: profiles, interactions, issues and solutions."},
    {"name": "agents", "description": "Agents: settings and experience."},
    {"name": "jobs", "description": "Background work, operations that were asked for, and figures of the service."},
    {"name": "keys", "description": "For admin keys: the keys of a tenant, and who did what."},
    {"name": "operating", "description": "Health and metrics; they need no key, unless a setting says so."},
]
HEADERS = {
    "X-Request-ID": "The id of the request in logs and problems: yours, where you sent one.",
    "ETag": "The record's version, for If-Match.",
    "Idempotency-Replayed": "`true` where the answer is the one stored under the Idempotency-Key.",
    "Retry-After": "Seconds after which to try again.",
}
EXAMPLES = Path(__file__).parent / "data" / "openapi_examples.json"
"""One example answer for each main schema, by the schema's name."""


def route(app: FastAPI) -> Route:
    """Returns `GET /openapi.json`. The first request builds the document, which takes half a second, in a thread; the
    others are sent the same bytes."""
    building = asyncio.Lock()
    content = b""

    async def answer(_: Request) -> Response:
        nonlocal content
        async with building:
            content = content or await in_turn(lambda: orjson.dumps(app.openapi()))
        return Response(content, media_type="application/json")

    return Route("/openapi.json", answer, methods=["GET"], include_in_schema=False)


def document(app: FastAPI) -> Json:
    """Returns the OpenAPI document of the app, built once."""
    if app.openapi_schema is None:
        for route in app.routes:
            if isinstance(route, APIRoute):
                route.operation_id = route.name
                first_sentence, *_ = re.split(r"(?<=\.) ", " ".join(route.description.split()), maxsplit=1)
                route.summary = route.summary or first_sentence
        result = get_openapi(
            title=app.title,
            version=app.version,
            description=DESCRIPTION,
            routes=app.routes,
            tags=TAGS,
            servers=[{"url": "/", "description": "The service that this document comes from."}],
            contact={"name": "Recalld"},
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        )
        components = result["components"]
        problem = TypeAdapter(Problem).json_schema(ref_template="#/components/schemas/{model}")
        schemas = {**components["schemas"], **problem.pop("$defs", {}), "Problem": problem}
        unused = ("HTTPValidationError", "ValidationError", "JsonValue")
        used = {_schema_name(name): schemas[name] for name in schemas if name not in unused}
        components["schemas"] = {name: _component(name, used[name]) for name in sorted(used)}
        result["paths"] = _readable(result["paths"], names=True)
        components["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in HEADERS.items()
        }
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "rk_<id>_<secret>"},
            "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        result["security"] = [{"bearer": []}, {"apiKey": []}, {}]
        components["responses"] = {}
        for item in result["paths"].values():
            for method, operation in item.items():
                _parameters(operation, method)
                quota = [507] if method != "delete" and "412" in operation["responses"] else []  # it writes
                if "requestBody" in operation and operation.get("x-verb", "write") == "write":
                    _warns(operation, components["schemas"])
                operation["responses"] |= {str(status): said for status, said in only(431, *quota).items()}
                _responses(operation, components, orjson.loads(EXAMPLES.read_bytes()))
        app.openapi_schema = result
    return app.openapi_schema


def _parameters(operation: Json, method: str) -> None:
    if "operating" in operation["tags"]:
        operation["security"] = []
    parameters = [p for p in operation.pop("parameters", []) if method == "post" or p["name"] != "Idempotency-Key"]
    if parameters:
        operation["parameters"] = [{**p, "schema": without_null(p["schema"])} for p in parameters]


def _responses(operation: Json, components: Json, examples: Json) -> None:
    """Moves each error response into the components, named by its status, and adds headers and examples."""
    replays = any(p["name"] == "Idempotency-Key" for p in operation.get("parameters", []))
    for status, response in operation["responses"].items():
        body = response.get("content", {}).get("application/json", {})
        name = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
        if name in examples:
            body["example"] = examples[name]
        headers = ["X-Request-ID"]
        if "version" in components["schemas"].get(name, {}).get("properties", {}):
            headers.append("ETag")
        if replays and status.startswith("2"):
            headers.append("Idempotency-Replayed")
        if status in ("409", "429", "503"):
            headers.append("Retry-After")
        response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
        if MEDIA_TYPE in response.get("content", {}):
            components["responses"][f"Problem{status}"] = response
            operation["responses"][status] = {"$ref": f"#/components/responses/Problem{status}"}


def _warns(operation: Json, schemas: Json) -> None:
    """Adds to what a write answers the warnings of the texts that it was sent (`RequestWriter`)."""
    for status, response in operation["responses"].items():
        schema = response.get("content", {}).get("application/json", {}).get("schema", {})
        if status.startswith("2") and "$ref" in schema:
            schemas[schema["$ref"].rpartition("/")[2]]["properties"].setdefault("warnings", _WARNINGS)


_WARNINGS: Json = {
    "type": "array",
    "items": {"$ref": "#/components/schemas/TextWarning"},
    "description": "Of the texts that were sent: secrets and personal data. Absent where there are none.",
}
_ANY_JSON = "#/components/schemas/JsonValue"
_NAMES_INSIDE = frozenset({"properties", "patternProperties", "schemas", "responses", "content"})


def _component(name: str, schema: Json) -> Json:
    """Returns the schema as the document has it. The constants of enums have names that no other enum has: in some
    languages all enums share one namespace."""
    shown: Json = _readable(schema)
    if "const" in shown:
        shown["enum"] = [shown.pop("const")]
    if "enum" in shown:
        prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
        shown["x-enum-varnames"] = [re.sub(r"\W", "_", f"{prefix}_{value}").upper() for value in shown["enum"]]
    # The description of a field says its default, and nothing else does: by `default`, some generators require the
    # field, some cannot write it as code, and clients would go on sending the default of the day they were made.
    for field in shown.get("properties", {}).values():
        default, text = field.pop("default", None), field.get("description", "")
        if default is None or isinstance(default, list | dict) or "efault" in text:
            continue
        word = str(default).lower() if isinstance(default, bool) else str(default)
        field["description"] = f"{text.rstrip('.')}. Default: {word}." if text else f"Default: {word}."
    return shown


def _readable(node: Any, names: bool = False) -> Any:
    """Returns a part of the document without what generators of clients stumble over. `names`: the keys of this object
    are names of ours and not words of the specification."""
    if isinstance(node, list):
        return [_readable(part) for part in node]
    if not isinstance(node, dict):
        return node
    if node.get("$ref") == _ANY_JSON:
        return {name: value for name, value in node.items() if name != "$ref"}
    if names:
        return {name: _readable(value) for name, value in node.items()}
    shown = {
        word: value if word in ("example", "examples") else _readable(value, word in _NAMES_INSIDE)
        for word, value in node.items()
        if word != "title"  # generators name classes by titles, which repeat the names of fields
    }
    if "$ref" in shown:
        shown["$ref"] = _schema_name(shown["$ref"])
    if shown.get("additionalProperties") == {}:
        shown["additionalProperties"] = True
    if shown.get("type") == "number":
        shown.setdefault("format", "double")  # without it, Go and others take 32 bits
    if not isinstance(shown.get("const", ""), str):
        del shown["const"]
    return shown


def _schema_name(name: str) -> str:
    """Returns the name of a schema without underscores: `Page_Memory_` is `MemoryPage`."""
    return re.sub(r"Page_(\w+)_", r"\1Page", name)
