"""Builds the OpenAPI document: stable operation ids, the problem schema for every error, headers and examples."""

from pathlib import Path

import orjson
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from app.api.errors import MEDIA_TYPE
from app.core.schemas import Json, Problem, without_null

DESCRIPTION = """Memory as a service for AI agents: store what an agent lives through, get back what matters now.

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
    {"name": "tasks", "description": "Working memory: a task's plan, context, notes, evidence and checkpoints."},
    {"name": "actions", "description": "Episodic memory: what agents did, and what came of it."},
    {"name": "facts", "description": "Semantic memory: what is true, since when, and what was known of it when."},
    {"name": "graph", "description": "The same facts as a graph: entities, and what they are linked with."},
    {"name": "procedures", "description": "Procedural memory: how things are done, and how often that worked."},
    {"name": "users", "description": "People: profiles, interactions, issues and solutions."},
    {"name": "agents", "description": "Agents: settings and experience."},
    {"name": "jobs", "description": "Background work, and operations that were asked for."},
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


def document(app: FastAPI) -> Json:
    """Returns the OpenAPI document of the app, built once."""
    if app.openapi_schema is None:
        for route in app.routes:
            if isinstance(route, APIRoute):
                route.operation_id = route.name
        result = get_openapi(
            title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes, tags=TAGS
        )
        components = result["components"]
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = {**components["schemas"], **problem.pop("$defs", {}), "Problem": problem}
        unused = ("HTTPValidationError", "ValidationError")
        components["schemas"] = {name: schemas[name] for name in sorted(schemas) if name not in unused}
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
