"""openapi.json is what the service is, and whole."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import validate

from app.main import create_app
from app.settings import Settings
from scripts.export_openapi import TARGET, rendered
from tests.support.contract import Contract, Operation


@pytest.fixture(scope="module")
def contract() -> Contract:
    return Contract(create_app(Settings(_env_file=None)))


@pytest.fixture(scope="module")
def operations(contract: Contract) -> list[Operation]:
    return list(contract.operations())


def test_the_committed_document_is_the_service() -> None:
    assert TARGET.read_text(encoding="utf-8") == rendered(), "run scripts/export_openapi.py"


def test_the_document_is_valid(contract: Contract) -> None:
    validate(contract.document)


def test_operation_ids_are_unique_words(operations: list[Operation]) -> None:
    names = [op.name for op in operations]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)


def test_every_operation_is_described(contract: Contract, operations: list[Operation]) -> None:
    tags = {tag["name"] for tag in contract.document["tags"]}
    for op in operations:
        assert op.spec["summary"], op.name
        assert op.spec["description"].endswith("."), op.name
        assert set(op.spec["tags"]) <= tags, op.name
        for parameter in op.parameters("query") + op.parameters("path"):
            assert parameter["schema"], op.name
            assert "null" not in json.dumps(parameter["schema"]), (op.name, parameter["name"])


def test_every_operation_declares_its_errors(contract: Contract, operations: list[Operation]) -> None:
    for op in operations:
        statuses = set(op.spec["responses"])
        if op.spec.get("security") == []:
            assert op.spec["tags"] == ["operating"], op.name
            continue
        assert {"400", "401", "403", "413", "422", "429", "503"} <= statuses, op.name
        assert ("404" in statuses) or op.body is not None or not op.parameters("path"), op.name
        assert ("415" in statuses) == (op.body is not None), op.name
        reads = op.method == "GET" or op.spec.get("x-verb") == "read"
        assert ("412" in statuses) == (not reads), op.name
        for status in statuses:
            declared = contract.resolve(op.spec["responses"][status])
            assert "X-Request-ID" in declared["headers"]
            if status >= "400":
                problem = declared["content"]["application/problem+json"]
                assert problem["schema"] == {"$ref": "#/components/schemas/Problem"}
                assert contract.fits(problem["schema"], problem["example"]) is None


def test_posts_that_write_take_an_idempotency_key(operations: list[Operation]) -> None:
    for op in operations:
        named = "Idempotency-Key" in {p["name"] for p in op.parameters("header")}
        assert named == (op.method == "POST" and op.spec.get("x-verb") != "read"), op.name


def examples(contract: Contract, operations: list[Operation]) -> Iterator[tuple[str, Any, Any]]:
    """(what, schema, example or None)."""
    for op in operations:
        if op.body is not None:
            for example in contract.resolve(op.body).get("examples", [None]):
                yield f"{op.name}: body", op.body, example
        for status, response in op.spec["responses"].items():
            content = response.get("content", {}).get("application/json")
            if content and "operating" not in op.spec["tags"]:
                yield f"{op.name}: {status}", content["schema"], content.get("example")


def test_bodies_and_answers_have_examples_that_are_true(contract: Contract, operations: list[Operation]) -> None:
    for what, schema, example in examples(contract, operations):
        assert example is not None, f"{what} has no example"
        assert contract.fits(schema, example) is None, f"{what}: {contract.fits(schema, example)}"
