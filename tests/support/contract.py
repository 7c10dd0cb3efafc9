"""What openapi.json promises, and whether an answer keeps it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpx
from fastapi import FastAPI
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from starlette.routing import BaseRoute

Json = dict[str, Any]
PROBLEM = "application/problem+json"
ANY_ROUTE = {404, 405}
"""Statuses that no operation declares: there is none to declare them."""


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    spec: Json

    @property
    def name(self) -> str:
        return str(self.spec["operationId"])

    @property
    def body(self) -> Json | None:
        """The schema of the request body."""
        content = self.spec.get("requestBody", {}).get("content", {})
        return content["application/json"]["schema"] if "application/json" in content else None

    @property
    def takes_file(self) -> bool:
        return "requestBody" in self.spec and self.body is None

    def parameters(self, where: str) -> list[Json]:
        return [p for p in self.spec.get("parameters", []) if p["in"] == where]


_documents: dict[tuple[int, ...], tuple[list[BaseRoute], Json]] = {}


def _document(app: FastAPI) -> Json:
    """Apps of the same routes have one document; making it takes longer than most tests."""
    routes = [route for route in app.routes if getattr(route, "include_in_schema", True)]
    key = tuple(id(route) for route in routes)
    if key not in _documents:
        _documents[key] = (routes, json.loads(json.dumps(app.openapi())))  # holds them, so that no id is used again
    return _documents[key][1]


class Contract:
    """The document of an app. Schemas in it are looked up by JSON pointer."""

    def __init__(self, app: FastAPI) -> None:
        self.document = _document(app)
        resource = Resource.from_contents(self.document, default_specification=DRAFT202012)
        self._registry = Registry().with_resource("urn:api", resource)
        self._validator = lru_cache(self._new_validator)
        self._fault = lru_cache(self._look_for_fault)

    def operations(self) -> Iterator[Operation]:
        for path, item in self.document["paths"].items():
            for method, spec in item.items():
                yield Operation(method.upper(), path, spec)

    def resolve(self, node: Json) -> Json:
        while "$ref" in node:
            target: Any = self.document
            for step in node["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            node = {**target, **{word: value for word, value in node.items() if word != "$ref"}}
        return node

    def fits(self, schema: Json, value: Any) -> str | None:
        """What is wrong with the value, or None."""
        return self._fault(json.dumps(schema), json.dumps(value))  # one answer is looked at more than once

    def _look_for_fault(self, schema: str, value: str) -> str | None:
        fault = next(iter(self._validator(schema).iter_errors(json.loads(value))), None)
        return None if fault is None else f"{fault.json_path}: {fault.message[:200]}"

    def _new_validator(self, schema: str) -> Draft202012Validator:
        return Draft202012Validator(json.loads(schema.replace('"#/', '"urn:api#/')), registry=self._registry)

    def check(self, operation: Operation, response: httpx.Response) -> str | None:
        """Whether the answer is one that the operation declares: status, media type, headers and body."""
        declared = operation.spec["responses"].get(str(response.status_code))
        if declared is None:
            return f"{response.status_code} is not declared"
        declared = self.resolve(declared)
        if "x-request-id" not in response.headers:
            return "no X-Request-ID"
        content = declared.get("content", {})
        if not content:
            return f"a body where none is declared: {response.text[:80]}" if response.content else None
        media = response.headers.get("content-type", "").partition(";")[0]
        if media not in content:
            return f"{media} is not declared for {response.status_code}"
        value: Any = response.json() if media in ("application/json", PROBLEM) else response.text
        if "ETag" in declared["headers"] and response.headers.get("etag") != f'"{value["version"]}"':
            return "the ETag is not the version"
        return self.fits(content[media]["schema"], value)

    def problem(self, response: httpx.Response) -> str | None:
        """Whether the answer is a whole problem of SPEC §1 that gives nothing away."""
        if response.headers.get("content-type") != PROBLEM:
            return f"{response.headers.get('content-type')} instead of a problem"
        body = response.json()
        wanted = {"type", "title", "status", "detail", "code", "request_id", "errors"}
        if set(body) != wanted:
            return f"members {sorted(set(body) ^ wanted)}"
        if body["status"] != response.status_code or body["request_id"] != response.headers.get("x-request-id"):
            return "status or request_id differ from the head"
        if not body["detail"] or body["code"] != body["code"].lower() or " " in body["code"]:
            return f"code {body['code']!r}, detail {body['detail']!r}"
        return self.fits({"$ref": "#/components/schemas/Problem"}, body)
