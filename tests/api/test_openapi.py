"""openapi.json is what the service is, and whole."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate

from app.main import create_app
from app.settings import Settings
from scripts.export_openapi import TARGET, rendered
from tests.support.contract import Contract, Operation
from tests.support.server import serving


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


def nodes(node: Any, *way: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every object of the document with its place; examples are data and left out."""
    if isinstance(node, list):
        for at, one in enumerate(node):
            yield from nodes(one, *way, str(at))
    elif isinstance(node, dict):
        yield way, node
        for name, one in node.items():
            if name not in ("example", "examples"):
                yield from nodes(one, *way, name)


def plain(name: str) -> str:
    """A name as languages without underscores or case would have it."""
    return name.replace("_", "").lower()


def test_schemas_have_names_that_collide_in_no_language(contract: Contract) -> None:
    names = list(contract.document["components"]["schemas"])
    assert len({plain(name) for name in names}) == len(names)
    assert [name for name in names if not re.fullmatch(r"[A-Z][A-Za-z]*", name)] == []
    variants = {plain(word) for name in names for word in (f"{name}Inner", f"{name}Value")}
    assert variants & {plain(name) for name in names} == set(), "generators call items of lists and maps so"


def test_every_enum_and_every_union_is_a_schema_with_a_name(contract: Contract) -> None:
    """Generators number the others: Status1 … Status29."""
    document = contract.document
    enums = {name: one["enum"] for name, one in document["components"]["schemas"].items() if "enum" in one}
    assert enums["MemoryType"][:3] == ["fact", "preference", "instruction"]
    assert len(enums) > 30
    for way, node in nodes(document):
        named = way[:2] == ("components", "schemas") and len(way) == 3
        if "enum" in node and way[-1:] != ("properties",):
            assert named, way
            assert node["type"] == "string", way
        several = [one for one in node.get("anyOf", []) if one != {"type": "null"}]
        assert len(several) < 2 or named, way
        assert not {"oneOf", "allOf", "not", "if"} & node.keys(), way


def test_the_constants_of_enums_collide_in_no_language(contract: Contract) -> None:
    """Go and C have one namespace for the constants of all enums."""
    schemas = contract.document["components"]["schemas"]
    names = [name for one in schemas.values() if "enum" in one for name in one["x-enum-varnames"]]
    assert len(set(names)) == len(names)
    assert "MEMORY_TYPE_FACT" in names
    assert [len(one["enum"]) == len(one["x-enum-varnames"]) for one in schemas.values() if "enum" in one].count(
        False
    ) == 0


def test_integers_fit_into_32_bits(contract: Contract) -> None:
    """Go and Java take so many where the document does not say otherwise, and write the bounds into their code."""
    for way, node in nodes(contract.document):
        assert isinstance(node.get("maximum", 0), dict) or node.get("maximum", 0) < 2**31, way


def test_no_property_can_be_null_only(contract: Contract) -> None:
    for way, node in nodes(contract.document):
        if node.get("type") == "null":
            assert len(way) > 1, way
            assert way[-2] == "anyOf", way


def test_nothing_has_a_title_that_repeats_its_name(contract: Contract) -> None:
    """Some generators name classes by titles."""
    for way, node in nodes(contract.document):
        if way != ("info",) and way[-1:] != ("properties",):
            assert not isinstance(node.get("title"), str), way


def test_every_example_is_what_its_schema_says(contract: Contract) -> None:
    examples = {
        name: example
        for name, schema in contract.document["components"]["schemas"].items()
        for example in schema.get("examples", [])
    }
    assert len(examples) > 20
    faults = {name: contract.fits({"$ref": f"#/components/schemas/{name}"}, one) for name, one in examples.items()}
    assert {name: fault for name, fault in faults.items() if fault is not None} == {}


def test_the_document_says_where_by_what_licence_and_what_any_request_may_meet(contract: Contract) -> None:
    assert contract.document["servers"][0]["url"] == "/"
    assert contract.document["info"]["license"] == {"name": "Apache-2.0", "identifier": "Apache-2.0"}
    assert contract.document["info"]["contact"]["name"]
    assert all("431" in operation.spec["responses"] for operation in contract.operations())


def test_defaults_of_fields_are_told_in_words(contract: Contract) -> None:
    """By a default, openapi-typescript makes a field required, Go's generator writes `{}` as code, and clients send
    today's default for ever."""
    schemas = contract.document["components"]["schemas"]
    for way, node in nodes(schemas):
        assert way[-1:] == ("properties",) or "default" not in node, way
    told = schemas["MemoryCreate"]["properties"]
    assert told["importance"]["description"].endswith(". Default: 0.5.")
    assert told["memory_type"]["description"].endswith(". Default: fact.")
    assert told["pinned"]["description"].endswith(". Default: false.")
    assert "efault" not in told["tags"].get("description", ""), "an empty list needs no word"
    assert schemas["ContextRequest"]["properties"]["as_of"]["description"] == "What was true then; default: now."


def test_owners_are_optional_and_what_is_asked_of_them_is_said(contract: Contract) -> None:
    schemas = contract.document["components"]["schemas"]
    owned = [name for name, one in schemas.items() if {"agent_id", "user_id"} <= set(one.get("x-requires-one-of", ()))]
    assert {"MemoryCreate", "SearchRequest", "FactCreate", "FactSearch", "ProcedureCreate"} <= set(owned)
    for name in owned:
        assert not {"agent_id", "user_id"} & set(schemas[name].get("required", ())), name
        assert "agent_id, user_id or both are required" in schemas[name]["description"], name


def test_the_first_page_says_with_which_calls_to_start(contract: Contract, operations: list[Operation]) -> None:
    said = contract.document["info"]["description"]
    _, _, rest = said.partition("Start with these five")
    calls = re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/\S+)`", rest)
    assert len(calls) == 5
    known = {(op.method, op.path) for op in operations}
    assert set(calls) <= known
    assert {"/v1/memories", "/v1/memories/search", "/v1/context"} <= {path for _, path in calls}


def test_summaries_are_sentences(operations: list[Operation]) -> None:
    summaries = [op.spec["summary"] for op in operations]
    for op in operations:
        summary = op.spec["summary"]
        assert re.fullmatch(r"[A-Z].*[^.]\.", summary), (op.name, summary)
        assert 2 <= len(summary.split()) <= 20, (op.name, summary)
        assert summary.count(". ") == 0, (op.name, summary)
    assert len(set(summaries)) == len(summaries)


def test_every_tag_says_what_it_is(contract: Contract, operations: list[Operation]) -> None:
    tags = {tag["name"]: tag["description"] for tag in contract.document["tags"]}
    assert {tag for op in operations for tag in op.spec["tags"]} == set(tags)
    assert all(text.endswith(".") and len(text.split()) > 3 for text in tags.values())


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
        assert ("415" in statuses) == ("requestBody" in op.spec), op.name
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


def test_the_document_is_built_off_the_loop_and_once(tmp_path: Path) -> None:
    """While it is built, which takes half a second, others are answered: many times, not once."""
    with serving(tmp_path / "data") as server, ThreadPoolExecutor(4) as clients:
        asked = [clients.submit(httpx.get, f"{server.client.base_url}/openapi.json", timeout=60) for _ in range(3)]
        answered = 0
        while not all(answer.done() for answer in asked):
            assert server.client.get("/livez").status_code == 200
            answered += 1
        contents = {answer.result().content for answer in asked}
        assert answered > 10
        assert len(contents) == 1
        assert json.loads(contents.pop())["openapi"].startswith("3.")
