"""What is wrong is said in the service's words, and names the way on."""

from typing import Any, get_args

import httpx
import pytest
from pydantic_core import core_schema

from app.validation_words import in_words
from tests.conftest import Service
from tests.support.bad_input import foreign_words
from tests.support.memories import problem
from tests.support.tasks import begin

CONTEXT: dict[str, Any] = {
    **dict.fromkeys(("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length"), 3),
    "expected": "'a' or 'b'",
    "discriminator": "'type'",
    "expected_tags": "'a', 'b'",
    "pattern": r"^(?:[^\s]*)$",
}


@pytest.mark.parametrize("kind", get_args(core_schema.ErrorType))
def test_every_kind_of_fault_has_words_of_ours(kind: str) -> None:
    words = in_words({"type": kind, "ctx": CONTEXT, "msg": "Value error, must be so", "loc": ("x",), "input": None})
    assert words
    assert foreign_words({"title": "", "errors": [{"detail": words}]}) is None
    assert "{" not in words


@pytest.mark.anyio
@pytest.mark.before_store
async def test_a_field_of_another_service_is_answered_by_what_does_its_work_here(api: httpx.AsyncClient) -> None:
    for path, asked in (
        ("/v1/memories/search", "query"),
        ("/v1/actions/search", "query"),
        ("/v1/facts/search", "query"),
        ("/v1/procedures/search", "situation"),
    ):
        refused = problem(await api.post(path, json={"user_id": "ada", asked: "tea", "limit": 3}), 422)
        assert refused["errors"] == [
            {"pointer": "/limit", "detail": "this field is not known: did you mean `top_k`?"}
        ], path
    talk = {"user_id": "ada", "content": "x", "messages": [{"role": "user", "content": "x"}]}
    refused = problem(await api.post("/v1/memories", json=talk), 422)
    assert "POST /v1/sessions/{session_id}/messages" in refused["detail"]


@pytest.mark.anyio
@pytest.mark.before_store
@pytest.mark.parametrize(
    ("path", "field", "words"),
    [
        ("/v1/memories", "text", "did you mean `content`?"),
        ("/v1/memories", "categories", "did you mean `tags`?"),
        ("/v1/memories", "memory", "did you mean `content`?"),
        ("/v1/memories", "ttl", "did you mean `expires_at`, the moment when it ends?"),
        ("/v1/memories/search", "text", "did you mean `query`?"),
        ("/v1/memories/search", "filter", "`metadata` compares with what was stored in it"),
        ("/v1/context", "max_tokens", "did you mean `token_budget`?"),
        ("/v1/memories/search", "run_id", "did you mean `session_id`?"),
    ],
)
async def test_a_name_of_other_products_is_answered_by_the_one_here(
    api: httpx.AsyncClient, path: str, field: str, words: str
) -> None:
    refused = problem(await api.post(path, json={"agent_id": "a", "user_id": "u", field: 1}), 422)
    (said,) = [error["detail"] for error in refused["errors"] if error["pointer"] == f"/{field}"]
    assert said.startswith(f"this field is not known: {words}")


@pytest.mark.anyio
@pytest.mark.before_store
async def test_a_pointer_names_no_member_of_a_union(api: httpx.AsyncClient) -> None:
    body = {"agent_id": "a", "user_id": "u", "messages": [{"role": "user", "content": {"text": "x"}}]}
    refused = problem(await api.post("/v1/sessions/s/messages", json=body), 422)
    assert {one["pointer"] for one in refused["errors"]} == {"/messages/0/content"}


@pytest.mark.anyio
@pytest.mark.before_store
async def test_pages_and_roles_of_other_products_are_answered_by_ours(api: httpx.AsyncClient) -> None:
    for name in ("page", "offset"):
        refused = problem(await api.get(f"/v1/memories?user_id=u&{name}=2"), 422)
        assert refused["detail"] == f"/query/{name}: this parameter is not known: did you mean `cursor`?"
    for theirs, ours in (("human", "user"), ("ai", "assistant")):
        body = {"agent_id": "a", "user_id": "u", "messages": [{"role": theirs, "content": "x"}]}
        refused = problem(await api.post("/v1/sessions/s/messages", json=body), 422)
        assert refused["detail"].endswith(f": did you mean '{ours}'?")


@pytest.mark.anyio
@pytest.mark.before_store
@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"price": {"$gte": 3}}, "has no operator `$gte`: did you mean `gte`?"),
        ({"price": {"GTE": 3}}, "has no operator `GTE`: did you mean `gte`?"),
        ({"price": {"$near": 3}}, "has no operator `$near`: there are eq, ne, gt, gte, lt"),
        ({"price": {"$regex": "^a"}}, "has no operator `$regex`: did you mean `icontains`? (there are eq, ne, gt, gte"),
        ({"name": {"like": "a%"}}, "has no operator `like`: did you mean `icontains`? (there are eq"),
        ({"name": {"startsWith": "a"}}, "has no operator `startsWith`: did you mean `icontains`?"),
        ({"price": {"between": [1, 2]}}, "has no operator `between`: a range is `gte` with `lte` (there are"),
        ({"NOT": {"price": {">": 3}}}, "has no operator `>`: did you mean `gt`?"),
        ({"price": {"=~": "a"}}, "has no operator `=~`: there are eq"),
        ({"$or": [{"topic": "a"}]}, "has no operator `$or`: did you mean `OR`?"),
        ({"not": {"topic": "a"}}, "has no operator `not`: did you mean `NOT`?"),
        ({"price": {"not": {"gte": 3}}}, "has `not` below `price`: `NOT` goes around filters"),
        ({"in": ["a", "b"]}, "has the operator `in` without a field"),
        ({"size": {"gte": 3, "w": 2}}, "has the operator `gte` of `size` beside other keys"),
        ({"where": {"city": {"$ne": "Bonn"}}}, "did you mean `ne`?"),
        ({"AND": {"topic": "a"}}, "has `AND` with something else than a list of filters"),
        ({"OR": []}, "has `OR` with something else than a list of filters"),
        ({"NOT": [{}]}, "has `NOT` with something else than a filter or a list of filters"),
        ({"topic": {"in": "a"}}, "has `in` of `topic` with something else than a list of values"),
        ({"price": {"gte": True}}, "has `gte` of `price` with something else than a number or a text"),
        ({"seen": {"exists": 1}}, "has `exists` of `seen` with something else than true or false"),
        ({"topic": {"nin": [*range(257)]}}, "has 257 conditions"),
        (
            {"NOT": {"NOT": {"NOT": {"NOT": {"NOT": {"NOT": {"NOT": {"NOT": {"NOT": {"a": 1}}}}}}}}}},
            "nested deeper than 8",
        ),
    ],
)
async def test_a_filter_on_metadata_that_is_none_is_refused_and_named(
    api: httpx.AsyncClient, entries: dict[str, Any], words: str
) -> None:
    searched = await api.post("/v1/memories/search", json={"user_id": "ada", "query": "tea", "metadata": entries})
    listed = await api.get("/v1/memories", params={"metadata": httpx.Response(200, json=entries).text})
    sessions = await api.get("/v1/sessions", params={"metadata": httpx.Response(200, json=entries).text})
    for answer, pointer in (
        (searched, "/metadata"),
        (listed, "/query/metadata"),
        (sessions, "/query/metadata"),
    ):
        (error,) = problem(answer, 422)["errors"]
        assert error["pointer"] == pointer
        assert words in error["detail"]


@pytest.mark.anyio
@pytest.mark.before_store
async def test_a_parameter_that_is_no_json_is_not_called_a_body(api: httpx.AsyncClient) -> None:
    for name, kind, value in (("tags", "list", "abc"), ("metadata", "object", "{"), ("tags", "list", "1" + "0" * 5000)):
        (error,) = problem(await api.get("/v1/memories", params={name: value}), 422)["errors"]
        assert error["pointer"] == f"/query/{name}"
        assert "body" not in error["detail"]
        assert error["detail"].startswith(f"must be a JSON {kind}: it ") or "at most" in error["detail"]


@pytest.mark.anyio
async def test_an_entry_named_like_an_operator_is_an_entry(service: Service) -> None:
    owner = {"user_id": "ada"}
    for metadata in ({"in": 3, "or": "Oregon"}, {"where": {"city": "Bonn"}}, {"size": {"w": 3, "": 1}}, {"like": 3}):
        made = await service.client.post(
            "/v1/memories", json={**owner, "content": "Tea is in stock", "metadata": metadata}
        )
        found = await service.client.post(
            "/v1/memories/search", json={**owner, "query": "tea in stock", "metadata": metadata}
        )
        assert [hit["memory"]["memory_id"] for hit in found.json()["items"]] == [made.json()["memory_id"]]


@pytest.mark.anyio
async def test_a_404_names_what_was_not_found(service: Service) -> None:
    owner = {"agent_id": "a", "user_id": "u"}
    await begin(service.client, "t")
    session = (await service.client.post("/v1/sessions", json={**owner, "session_id": "chat"})).json()
    assert session["session_id"] == "chat"
    for path, says in (
        ("/v1/memories/mem_none", "There is no such memory."),
        ("/v1/sessions/none", "There is no such session."),
        ("/v1/tasks/none", "There is no such task."),
        ("/v1/actions/none", "There is no such action."),
        ("/v1/facts/none", "There is no such fact."),
        ("/v1/procedures/none", "There is no such procedure."),
        ("/v1/operations/none", "There is no such operation."),
        ("/v1/findings/none", "There is no such finding."),
        ("/v1/keys/none", "There is no such key."),
        ("/v1/tasks/t/checkpoints/7", "The task has no checkpoint 7."),
    ):
        refused = problem(await service.client.get(path), 404, "not_found")
        assert refused["detail"] == says
        assert refused["title"] == "There is no such record"
    gone = await service.client.patch("/v1/sessions/chat/messages/9", json={"content": "x"})
    assert problem(gone, 404)["detail"] == "The session has no message 9."


@pytest.mark.anyio
@pytest.mark.before_store
async def test_an_unknown_route_is_no_missing_record(api: httpx.AsyncClient) -> None:
    for method, path in (("GET", "/v1/memorys"), ("POST", "/v2/memories"), ("GET", "/nowhere")):
        refused = problem(await api.request(method, path), 404, "not_found")
        assert refused["title"] == "There is no such route"
        assert f"There is no route {path}" in refused["detail"]
