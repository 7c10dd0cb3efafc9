"""Names that every object of JavaScript has are names like any other: of owners, entities, tags and metadata."""

import httpx
import pytest

pytestmark = pytest.mark.anyio

NAMES = ("__proto__", "constructor", "toString", "hasOwnProperty", "__class__")


@pytest.mark.parametrize("name", NAMES)
async def test_an_odd_name_is_kept_filtered_and_shown(api: httpx.AsyncClient, name: str) -> None:
    owner = {"agent_id": name, "user_id": name}
    metadata = {name: {"polluted": True}, "plain": 1}
    memory = {**owner, "content": "Ada prefers tea", "metadata": metadata, "tags": [name]}
    made = await api.post("/v1/memories", json=memory)
    assert made.status_code == 201, made.text
    path = f"/v1/memories/{made.json()['memory_id']}"
    assert (await api.get(path)).json()["metadata"] == metadata
    assert (await api.patch(path, json={"metadata": {name: "x"}})).json()["metadata"] == {name: "x"}
    query = {**owner, "query": "tea", "metadata": {name: "x"}}
    (hit,) = (await api.post("/v1/memories/search", json=query)).json()["items"]
    assert hit["memory"]["metadata"] == {name: "x"}
    fact = {**owner, "subject": name, "predicate": name, "object": "tea"}
    assert (await api.post("/v1/facts", json=fact)).status_code == 201
    near = await api.get(f"/v1/graph/entities/{name}/neighbors", params=owner)
    assert [edge["subject"] for edge in near.json()["edges"]] == [name]
    changed = await api.patch(f"/v1/users/{name}/profile", json={"custom": {name: 1}})
    assert changed.status_code in (200, 404), changed.text
    exported = await api.get(f"/v1/users/{name}/export")
    assert name in exported.text
