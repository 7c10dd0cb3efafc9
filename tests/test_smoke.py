import httpx
import pytest

pytestmark = pytest.mark.anyio


async def test_remembers_and_recalls(api: httpx.AsyncClient) -> None:
    made = await api.post("/v1/memories", json={"agent_id": "a", "user_id": "u", "content": "Ada prefers tea"})
    assert made.status_code == 201, made.text
    found = await api.post(
        "/v1/memories/search", json={"agent_id": "a", "user_id": "u", "query": "what does Ada drink?"}
    )
    assert [item["memory"]["memory_id"] for item in found.json()["items"]] == [made.json()["memory_id"]]
