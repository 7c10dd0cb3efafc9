"""Memories that are longer than what the model reads at once."""

import httpx
import pytest

from tests.conftest import Service
from tests.support.memories import batch, found, recall, remember

pytestmark = pytest.mark.anyio

BABBLE = "We talked about the weather and the garden at length, and about the roses by the old wall. " * 40
CODE = "The code of the safe is 4711."
SAFE = "what is the code of the safe?"


async def test_a_long_memory_is_found_by_its_end(api: httpx.AsyncClient) -> None:
    """By meaning, and as near as the sentence would be by itself."""
    await batch(
        api, {"content": BABBLE + CODE}, {"content": BABBLE}, *({"content": f"Rain fell, {n}"} for n in range(5))
    )
    for mode in ("vector", "hybrid"):
        assert (await found(api, SAFE, mode=mode))[0] == BABBLE + CODE
    ((first, _), (second, _)) = [
        (one["score"], one["memory"]) for one in (await recall(api, SAFE, mode="vector"))["items"][:2]
    ]
    assert first > second + 0.15


async def test_a_part_of_a_long_memory_is_no_near_duplicate_of_it(api: httpx.AsyncClient) -> None:
    long = await remember(api, BABBLE + CODE)
    tail = (BABBLE + CODE)[-600:]
    made = await remember(api, tail, on_similar="supersede")
    assert made["similar"] == []
    assert (await api.get(f"/v1/memories/{long['memory_id']}")).json()["status"] == "active"


async def test_a_memory_that_becomes_short_is_found_by_its_new_text_alone(service: Service) -> None:
    made = await remember(service.client, BABBLE + CODE)
    path = f"/v1/memories/{made['memory_id']}"
    assert (await recall(service.client, SAFE, mode="vector"))["items"][0]["score"] > 0.4
    assert (await service.client.patch(path, json={"content": "Rain fell"})).status_code == 200
    assert (await recall(service.client, SAFE, mode="vector"))["items"][0]["score"] < 0.3
    assert (await service.client.patch(path, json={"content": BABBLE + CODE})).status_code == 200
    assert (await recall(service.client, SAFE, mode="vector"))["items"][0]["score"] > 0.4
    assert all(finding.ok for finding in await service.resources.store.check(deep=True))


async def test_tags_are_found_by_their_words_and_new_tags_embed_nothing(service: Service) -> None:
    api = service.client
    made = await remember(api, "She plays the cello", tags=["orchestra"])
    await remember(api, "Rain fell")
    assert await found(api, "orchestra", mode="text") == ["She plays the cello"]
    before = (await recall(api, "music", mode="vector"))["items"]
    changed = await api.patch(f"/v1/memories/{made['memory_id']}", json={"tags": ["string quartet"]})
    assert changed.json()["tags"] == ["string quartet"]
    assert await found(api, "orchestra", mode="text") == []
    assert await found(api, "quartets", mode="text") == ["She plays the cello"]
    after = (await recall(api, "music", mode="vector"))["items"]
    assert [one["score"] for one in after] == [one["score"] for one in before]
    await remember(api, "She plays the cello", tags=["hobby"], expect=200)
    assert await found(api, "hobby", mode="text") == ["She plays the cello"]
    assert await found(api, "quartet", mode="text") == ["She plays the cello"]
