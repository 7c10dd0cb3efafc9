"""What a judge finds to be replaced ranks behind what replaced it, at once, and is marked; undone, it is as before."""

from typing import Any

import pytest

from tests.conftest import Service, Starter
from tests.support.findings import findings, judging, knows, memory, reflect
from tests.support.learning import undo
from tests.support.memories import OWNER, Json
from tests.support.model import Model

pytestmark = pytest.mark.anyio

OLD, NEW = "I play the violin in the town orchestra.", "Sold my fiddle, it is the cello that the orchestra gave me."
LAST = "No strings for me any more: the orchestra has put me behind the drums."
THEN, LATER, LATEST = "2026-01-05T00:00:00Z", "2026-03-05T00:00:00Z", "2026-04-05T00:00:00Z"
QUERY = "Do I play the violin in the town orchestra?"


@pytest.fixture(autouse=True)
def judge(llm: Model) -> None:
    llm.says["JudgedPairs"] = knows(OLD, NEW, said="replaces")


async def told(service: Service, **of_new: Any) -> tuple[str, str]:
    old = await memory(service, OLD, THEN)
    await memory(service, "My sister paints boats in the harbour.", THEN)
    return old, await memory(service, NEW, LATER, **of_new)


async def asked(service: Service, query: str = QUERY, headers: Json | None = None, **more: Any) -> list[Json]:
    body = {**OWNER, "query": query, **more}
    answer = await service.client.post("/v1/memories/search", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    items: list[Json] = answer.json()["items"]
    scores = [item["score"] for item in items]
    assert scores == sorted(scores, reverse=True)
    return items


def texts(items: list[Json]) -> list[str]:
    return [item["memory"]["content"] for item in items if item["memory"]["content"] in (OLD, NEW, LAST)]


def marks(items: list[Json]) -> list[str]:
    return [item["memory"]["content"] for item in items if "replaced_by" in item]


async def prompt(service: Service, **more: Any) -> str:
    answer = await service.client.post("/v1/context", json={**OWNER, "query": QUERY, "min_score": 0, **more})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


async def test_the_later_statement_comes_first_at_once_and_an_undo_restores(judged: Service) -> None:
    old, new = await told(judged)
    before = await asked(judged)
    assert texts(before) == [OLD, NEW]
    assert not marks(before)
    done = await reflect(judged)
    after = await asked(judged)
    assert texts(after) == [NEW, OLD]
    (replaced,) = [item["replaced_by"] for item in after if "replaced_by" in item]
    shown = {"kind": "memory", "id": new, "quote": NEW, "replaced": OLD, "said_at": "2026-03-05T00:00:00.000Z"}
    assert replaced == [shown]
    kept = (await judged.client.get(f"/v1/memories/{old}")).json()
    assert (kept["status"], kept["superseded_by"]) == ("active", None)
    assert "replaced_by" not in kept
    text = await prompt(judged)
    assert f"{OLD} (until 2026-03-05: {NEW})" in text
    assert "uncertain" not in text
    (finding,) = await findings(judged)
    assert finding["status"] == "open"
    await undo(judged, done["operation_id"])
    assert texts(await asked(judged)) == [OLD, NEW]
    assert not marks(await asked(judged))
    assert "(until" not in await prompt(judged)
    assert await findings(judged) == []


async def test_a_dismissed_finding_links_nothing(judged: Service) -> None:
    await told(judged)
    await reflect(judged)
    (finding,) = await findings(judged)
    answer = await judged.client.post(f"/v1/findings/{finding['finding_id']}/dismiss")
    assert answer.status_code == 200, answer.text
    found = await asked(judged)
    assert (texts(found), marks(found)) == ([OLD, NEW], [])


async def test_of_less_trust_it_waits(judged: Service) -> None:
    await told(judged, trust=0.5)
    await reflect(judged)
    found = await asked(judged)
    assert (texts(found), marks(found)) == ([OLD, NEW], [])
    assert "uncertain" in await prompt(judged)


async def test_a_contradiction_waits(judged: Service, llm: Model) -> None:
    llm.says["JudgedPairs"] = knows(OLD, NEW)
    await told(judged)
    await reflect(judged)
    found = await asked(judged)
    assert (texts(found), marks(found)) == ([OLD, NEW], [])


async def test_a_link_without_both_quotes_is_dropped(judged: Service, llm: Model) -> None:
    llm.says["JudgedPairs"] = knows(OLD, NEW, said="replaces", later="said by nobody")
    await told(judged)
    await reflect(judged)
    assert not marks(await asked(judged))


@pytest.mark.parametrize("change", ["delete", "archive", "rewrite", "end"])
async def test_a_later_statement_that_no_longer_stands_counts_for_nothing(judged: Service, change: str) -> None:
    _, new = await told(judged)
    await reflect(judged)
    path = f"/v1/memories/{new}"
    changes = {
        "archive": {"status": "archived"},
        "rewrite": {"content": "The conductor is called Mia."},
        "end": {"valid_until": "2026-03-10T00:00:00Z"},
    }
    if change == "delete":
        answer = await judged.client.delete(path)
    else:
        answer = await judged.client.patch(path, json=changes[change])
    assert answer.status_code < 300, answer.text
    found = await asked(judged)
    assert texts(found)[0] == OLD
    assert not marks(found)
    assert "(until" not in await prompt(judged)


async def test_what_replaced_it_in_turn_comes_first(judged: Service, llm: Model) -> None:
    llm.says["JudgedPairs"] = knows(OLD, NEW, LAST, said="replaces")
    await told(judged)
    await memory(judged, LAST, LATEST)
    await reflect(judged)
    assert texts(await asked(judged)) == [LAST, NEW, OLD]


async def test_at_a_time_before_the_later_statement_nothing_moves(judged: Service) -> None:
    await told(judged)
    await reflect(judged)
    then = await asked(judged, as_of="2026-02-01T00:00:00Z")
    assert texts(then)[0] == OLD
    assert not marks(then)
    assert "(until" not in await prompt(judged, as_of="2026-02-01T00:00:00Z")
    assert "(until" in await prompt(judged)


async def test_a_link_counts_for_what_was_known_once_it_was_made(judged: Service) -> None:
    await told(judged)
    before = judged.clock.now().isoformat()
    judged.clock.move(days=1)
    await reflect(judged)
    judged.clock.move(days=1)
    assert "(until" not in await prompt(judged, known_at=before)
    assert "(until" in await prompt(judged, known_at=judged.clock.now().isoformat())


async def test_a_query_that_names_a_time_keeps_its_order(judged: Service) -> None:
    await told(judged)
    query = "Did I play the violin in the town orchestra in January 2026?"
    before = await asked(judged, query)
    await reflect(judged)
    after = await asked(judged, query)
    assert (texts(after), marks(after)) == (texts(before), [])


async def test_a_statement_of_one_agent_is_shown_to_no_other(judged: Service) -> None:
    """An agent's own memory replaces none that all agents of the user share, and a shared one replaces it only where
    shared memories are asked for."""
    await memory(judged, OLD, THEN)
    await memory(judged, NEW, LATER, agent_id=None)
    await reflect(judged)
    assert marks(await asked(judged)) == [OLD]
    assert not marks(await asked(judged, include_shared=False))


async def test_what_all_agents_share_is_not_replaced_by_one_agents_own(judged: Service) -> None:
    await memory(judged, OLD, THEN, agent_id=None)
    await memory(judged, NEW, LATER)
    await reflect(judged)
    assert not marks(await asked(judged))
    assert not marks(await asked(judged, agent_id="b"))


async def test_another_tenant_and_user_see_nothing(judged: Service) -> None:
    await told(judged)
    await reflect(judged)
    assert await asked(judged, user_id="v") == []
    assert await asked(judged, headers=await judged.key("other")) == []


async def test_a_link_is_stored(start: Starter, settings: Any, llm: Model) -> None:
    async with start(judging(settings, llm)) as first:
        await told(first)
        await reflect(first)
    async with start(judging(settings, llm)) as second:
        assert texts(await asked(second)) == [NEW, OLD]
