"""Near records are paired by the store's vectors, the nearest first, and bounded."""

import numpy as np
import pytest

from app.learning.dependencies import Tools
from app.reflection.finders import NEIGHBOURS, CandidatePair, candidates, look_at, near_pairs
from app.storage.scope import PartitionOwner, Scope
from tests.conftest import Service
from tests.support.findings import memory


async def pairs_of(service: Service, user: str = "u") -> list[CandidatePair]:
    look = await look_at(_tools(service), Scope("default"), PartitionOwner("default", "a", user))
    return await near_pairs(look, [])


def _tools(service: Service) -> Tools:
    held = service.resources
    return Tools(held.store, held.embedder, held.clock, held.settings)


@pytest.mark.anyio
async def test_near_memories_and_facts_of_one_user_are_paired_and_of_no_other(service: Service) -> None:
    mine = {await memory(service, "I play chess on Mondays."), await memory(service, "I gave up chess for go.")}
    other = await memory(service, "I play chess on Mondays as well.", user_id="v")
    fact = {"agent_id": "a", "user_id": "u", "subject": "user", "predicate": "plays", "object": "chess"}
    made = (await service.client.post("/v1/facts", json=fact)).json()["fact_id"]
    found = {one for pair in await pairs_of(service) for one in (pair.earlier.id, pair.later.id)}
    assert found == mine | {made}
    assert other not in found


@pytest.mark.anyio
async def test_each_record_is_paired_with_its_nearest_ones(service: Service) -> None:
    for at in range(NEIGHBOURS + 6):
        await memory(service, f"I planted {at + 2} apple trees in the garden near the house.")
    found = await pairs_of(service)
    assert len(found) <= (NEIGHBOURS + 6) * NEIGHBOURS
    assert all(pair.earlier.said_at <= pair.later.said_at for pair in found)
    assert sorted((pair.cosine for pair in found), reverse=True) == [pair.cosine for pair in found]


@pytest.mark.anyio
async def test_the_vectors_of_the_store_are_those_of_the_texts(service: Service) -> None:
    texts = ["I play chess on Mondays.", "I gave up chess for go.", "My aunt sells umbrellas."]
    for text in texts:
        await memory(service, text)
    vectors = np.array(await service.resources.embedder.embed_texts(texts))
    wanted = {frozenset((texts[i], texts[j])): float(vectors[i] @ vectors[j]) for i in range(3) for j in range(i)}
    look = await look_at(_tools(service), Scope("default"), PartitionOwner("default", "a", "u"))
    held = service.resources
    found = await candidates(held.store, "default", look.owner.partitions, held.embedder.name, look.records)
    assert found
    for pair in found:
        assert pair.cosine == pytest.approx(wanted[frozenset((pair.earlier.text, pair.later.text))], abs=0.02)
