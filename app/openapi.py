"""The OpenAPI document: stable operation ids, our problem for every error."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from app.schemas import Problem

DESCRIPTION = """Memory as a service for AI agents: store what an agent lives through, get back what matters now.

Authentication: `Authorization: Bearer rk_…` or `X-API-Key`. While no key was ever made the service answers its own
machine without one. Errors are `application/problem+json` (RFC 9457). POSTs that write take an `Idempotency-Key`."""


def operation_id(route: APIRoute) -> str:
    return route.name


def document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
        schemas = made["components"]["schemas"]
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= problem.pop("$defs", {})
        schemas["Problem"] = problem
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        made["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "rk_<id>_<secret>"},
            "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        made["security"] = [{"bearer": []}, {"apiKey": []}, {}]
        app.openapi_schema = made
    return app.openapi_schema
