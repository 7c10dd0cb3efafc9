"""Two services on one store, as two processes would be."""

import asyncio

import pytest

from app.settings import Settings
from tests.conftest import Starter
from tests.support.memories import OWNER, found, listed, recall, remember

pytestmark = pytest.mark.anyio


async def test_what_one_writes_the_other_finds_at_once(start: Starter, settings: Settings) -> None:
    async with start(settings) as one, start(settings) as two:
        for number in range(10):
            writer, reader = (one, two) if number % 2 else (two, one)
            made = await remember(writer.client, f"locker {number}")
            assert await found(reader.client, f"locker {number}", mode="text", top_k=1) == [f"locker {number}"]
            path = f"/v1/memories/{made['memory_id']}"
            await reader.client.patch(path, json={"content": f"cupboard {number}", "tags": ["t"]})
            (item,) = (await recall(writer.client, "cupboard", tags=["t"], mode="text"))["items"]
            assert item["memory"]["content"] == f"cupboard {number}"
            await writer.client.delete(path)
            assert await found(reader.client, "cupboard") == []


async def test_a_name_is_one_memory_whoever_posts_it(start: Starter, settings: Settings) -> None:
    async with start(settings) as one, start(settings) as two:
        made = await asyncio.gather(
            *(
                service.client.post("/v1/memories", json={**OWNER, "content": f"n {i}", "key": "k"})
                for i in range(10)
                for service in (one, two)
            )
        )
        assert {response.status_code for response in made} == {200, 201}
        assert len({response.json()["memory_id"] for response in made}) == 1
        assert len(await listed(one.client)) == 1


async def test_what_was_stored_is_there_after_a_restart(start: Starter, settings: Settings) -> None:
    async with start(settings) as service:
        made = await remember(service.client, "plays the violin")
    async with start(settings) as service:
        (item,) = (await recall(service.client, "a string instrument", mode="vector"))["items"]
        assert item["memory"]["memory_id"] == made["memory_id"]
