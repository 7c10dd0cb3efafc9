"""An error says what to do: which name was meant, every fault at once, where the routes are, what an id may be."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import nearest
from tests.conftest import Service
from tests.support.contract import Contract
from tests.support.memories import OWNER, problem
from tests.support.server import ROOT

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


async def refused(api: httpx.AsyncClient, path: str, body: Json, method: str = "POST") -> dict[str, str]:
    """The faults by pointer, after a check that `detail` names each of them."""
    answer = problem(await api.request(method, path, json=body), 422, "invalid")
    faults = {error["pointer"]: error["detail"] for error in answer["errors"]}
    for pointer, detail in faults.items():
        assert f"{pointer or 'The body'}: {detail}" in answer["detail"]
    return faults


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.before_store
@pytest.mark.parametrize(
    ("path", "body", "pointer", "meant"),
    [
        ("/v1/memories", {"content": "x", "userid": "u"}, "/userid", "user_id"),
        ("/v1/memories", {"content": "x", "userId": "u"}, "/userId", "user_id"),
        ("/v1/memories", {"contents": "x", "user_id": "u"}, "/contents", "content"),
        ("/v1/memories/batch", {"items": [{"content": "x", "user_id": "u", "tag": []}]}, "/items/0/tag", "tags"),
        ("/v1/memories/search", {"query": "x", "user_id": "u", "topk": 3}, "/topk", "top_k"),
        (
            "/v1/sessions/s/messages",
            {"messages": [{"role": "user", "content": "x"}], "agentid": "a"},
            "/agentid",
            "agent_id",
        ),
        ("/v1/context", {"query": "x", "agent_id": "a", "token_buget": 9}, "/token_buget", "token_budget"),
        (
            "/v1/context",
            {"query": "x", "agent_id": "a", "sections": {"memories": {"limits": 3}}},
            "/sections/memories/limits",
            "limit",
        ),
        ("/v1/agents", {"agent_id": "a", "settings": {"decay": {"flor": 0.1}}}, "/settings/decay/flor", "floor"),
    ],
)
async def test_an_unknown_field_names_the_one_that_was_meant(
    api: httpx.AsyncClient, path: str, body: Json, pointer: str, meant: str
) -> None:
    faults = await refused(api, path, body)
    assert faults[pointer] == f"this field is not known: did you mean `{meant}`?"


@pytest.mark.before_store
async def test_a_field_like_no_other_is_just_not_known(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "content": "x", "zzzzzz": 1, "~/": 2}
    faults = await refused(api, "/v1/memories", body)
    assert faults == {"/zzzzzz": "this field is not known", "/~0~1": "this field is not known"}


@pytest.mark.before_store
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("userid=u", "/query/userid: this parameter is not known: did you mean `user_id`?"),
        ("memoryType=fact", "/query/memoryType: this parameter is not known: did you mean `memory_type`?"),
        ("zzzzzz=1", "/query/zzzzzz: this parameter is not known"),
    ],
)
async def test_an_unknown_parameter_names_the_one_that_was_meant(api: httpx.AsyncClient, query: str, said: str) -> None:
    answer = problem(await api.get(f"/v1/memories?{query}"), 422, "invalid")
    assert answer["detail"] == said


@pytest.mark.before_store
async def test_a_word_that_is_nearly_one_of_the_known_ones_is_told(api: httpx.AsyncClient) -> None:
    faults = await refused(api, "/v1/memories", {**OWNER, "content": "x", "memory_type": "preferences"})
    assert faults["/memory_type"].endswith(": did you mean 'preference'?")


# --- Every fault ------------------------------------------------------------------------------------------------------


@pytest.mark.before_store
async def test_the_detail_names_every_fault(api: httpx.AsyncClient) -> None:
    faults = await refused(api, "/v1/memories", {"user_id": 7, "importance": 3, "contnt": "x", "pinned": "yes"})
    assert set(faults) == {"/user_id", "/importance", "/contnt", "/pinned", "/content"}
    answer = problem(await api.get("/v1/memories?limit=0&cursr=x&order=up"), 422, "invalid")
    assert "did you mean `cursor`?" in answer["detail"]
    answer = problem(await api.get("/v1/memories?limit=0&order=up"), 422, "invalid")
    assert {"/query/limit", "/query/order"} == {error["pointer"] for error in answer["errors"]}
    assert all(f"{error['pointer']}: {error['detail']}" in answer["detail"] for error in answer["errors"])


@pytest.mark.before_store
async def test_the_detail_names_every_value_that_is_no_json_of_ours(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "content": "a\0b", "metadata": {"n": 2**70}}
    assert set(await refused(api, "/v1/memories", body)) == {"/content", "/metadata/n"}


@pytest.mark.before_store
async def test_of_very_many_faults_the_first_twenty_are_named_and_the_rest_is_said(api: httpx.AsyncClient) -> None:
    for items in ([{"content": "x", "user_id": 1}] * 40, [{"content": "\0", "user_id": "u"}] * 40):
        answer = problem(await api.post("/v1/memories/batch", json={"items": items}), 422, "invalid")
        assert len(answer["errors"]) == 20
        assert answer["detail"].endswith("; and more")


# --- Routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.before_store
@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/memory", "/v1/memories"),
        ("/v1/memories/", "/v1/memories"),
        ("/memories/search", "/v1/memories/search"),
        ("/v1/contexts", "/v1/context"),
        ("/v1/memories/mem_1/histroy", "/v1/memories/{memory_id}/history"),
        ("/v1/user/ada/profile", "/v1/users/{user_id}/profile"),
    ],
)
async def test_an_unknown_route_says_so_and_names_the_nearest(api: httpx.AsyncClient, path: str, meant: str) -> None:
    answer = problem(await api.get(path), 404, "not_found")
    assert answer["detail"].startswith(f"There is no route {path}")
    assert f"did you mean {meant}?" in answer["detail"]
    assert answer["detail"].endswith("/docs lists all routes.")


@pytest.mark.before_store
@pytest.mark.parametrize(
    ("path", "product"),
    [
        ("/v2/memories/search", "mem0"),
        ("/v1/entities", "mem0"),
        ("/search", "mem0"),
        ("/api/v2/threads/t/messages", "Zep"),
        ("/v1/agents/a/archival-memory", "Letta"),
        ("/v1/long-term-memory/search", "Redis Agent Memory Server"),
    ],
)
async def test_a_path_of_another_product_names_the_page_on_importing(
    api: httpx.AsyncClient, path: str, product: str
) -> None:
    answer = problem(await api.get(path), 404, "not_found")
    assert f" Of {product}? docs/guides/importing.md says how its records come here." in answer["detail"]
    assert (ROOT / "docs/guides/importing.md").exists()
    assert "importing" not in problem(await api.get("/v1/memorys"), 404)["detail"]


@pytest.mark.before_store
async def test_an_unknown_route_like_no_other_points_to_the_documentation(api: httpx.AsyncClient) -> None:
    for path in ("/wp-admin", "/wp-login.php", "/" + "x" * 5_000):
        answer = problem(await api.get(path), 404, "not_found")
        assert answer["detail"].endswith("/docs lists all routes.")
        assert "did you mean" not in answer["detail"]
        assert len(answer["detail"]) < 300
    assert (await api.get("/docs")).status_code == 200


async def test_a_record_that_is_not_there_is_no_unknown_route(api: httpx.AsyncClient) -> None:
    answer = problem(await api.get("/v1/memories/mem_nothere"), 404, "not_found")
    assert "/docs" not in answer["detail"]


@pytest.mark.before_store
async def test_a_wrong_method_names_the_right_ones(api: httpx.AsyncClient) -> None:
    answer = problem(await api.get("/v1/memories/search"), 405, "method_not_allowed")
    assert answer["detail"] == "/v1/memories/search does not take GET. It takes POST."


# --- Ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.before_store
@pytest.mark.parametrize("wrong", ["a/b", "a\nb", ""])
async def test_the_rule_of_an_id_is_told_in_words(api: httpx.AsyncClient, wrong: str) -> None:
    for path, body in (
        ("/v1/memories", {"user_id": wrong, "content": "x"}),
        ("/v1/memories/search", {"user_id": wrong, "query": "x"}),
    ):
        detail = (await refused(api, path, body))["/user_id"]
        assert "pattern" not in detail
        assert "^" not in detail
        assert "characters" in detail
    answer = problem(await api.get("/v1/memories", params={"user_id": "a/b"}), 422, "invalid")
    assert "pattern" not in answer["detail"]


@pytest.mark.before_store
async def test_no_rule_is_told_as_a_pattern(service: Service) -> None:
    """Whatever field has a rule that is written as a regular expression."""
    contract = Contract(service.app)
    tried = 0
    for op in contract.operations():
        if op.body is None or op.path.count("{"):
            continue
        schema = contract.resolve(op.body)
        example = schema["examples"][0]
        for name in schema.get("properties", {}):
            response = await service.client.request(op.method, op.path, json={**example, name: "  "})
            if response.status_code == 422:
                assert "pattern" not in response.text, (op.name, name)
                tried += 1
    assert tried > 50


# --- The rule itself --------------------------------------------------------------------------------------------------

KNOWN = ("user_id", "agent_id", "content", "memory_type")


@given(st.text(max_size=30))
def test_nearest_answers_one_of_the_known_names_or_none(name: str) -> None:
    assert nearest(name, KNOWN) in (*KNOWN, None)


@given(st.sampled_from(KNOWN), st.booleans())
def test_case_and_separators_make_no_difference(name: str, camel: bool) -> None:
    head, *rest = name.split("_")
    other = head + "".join(part.title() for part in rest) if camel else name.upper().replace("_", "-")
    assert nearest(other, KNOWN) == name
