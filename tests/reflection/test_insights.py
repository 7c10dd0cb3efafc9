"""Insights: what several memories show together becomes a finding of its own, by a model that quotes its sources."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from app.findings.service import MemoryEvidence, fingerprint_of
from app.learning.prompts import FoundInsight
from app.reflection.insights import Cluster, cited_of, refused
from app.settings import LLMSettings, ReflectionSettings, Settings
from tests.conftest import Service, Starter, TestParts
from tests.support.findings import findings, memory, reflect
from tests.support.learning import undo, work
from tests.support.memories import OWNER, Json
from tests.support.model import Model
from tests.support.operations import rows
from tests.support.scripted import Reply

pytestmark = pytest.mark.anyio

RUNNING = (
    "I bought new running shoes for the marathon.",
    "I signed up for the marathon in Hamburg.",
    "My knee hurt after the long run for the marathon.",
)
OTHER = ("I prefer short answers.", "Our CI pipeline takes forty minutes.")
INSIGHT = "Training for the marathon in Hamburg overloads the user's knee."


def asking(settings: Settings, llm: Model, tokens_per_day: int = 2_000_000, **reflection: Any) -> Settings:
    """Settings with a scripted model, which judges no pairs."""
    asked = LLMSettings(
        base_url=llm.server.url, model="scripted", timeout_seconds=5, context_tokens=8192, tokens_per_day=tokens_per_day
    )
    return settings.model_copy(update={"llm": asked, "reflection": ReflectionSettings(**reflection)})


@pytest.fixture(autouse=True)
def _no_pairs(parts: TestParts) -> None:
    parts.tuning = replace(parts.tuning, pairs_per_run=0)


@pytest.fixture
async def thinking(start: Starter, settings: Settings, llm: Model) -> AsyncIterator[Service]:
    async with start(asking(settings, llm)) as made:
        yield made


def quoting(*texts: str, insight: str | None = INSIGHT) -> Any:
    """An answer that cites these memories, whole."""

    def said(data: Json) -> Json:
        cited = [one for one in data["memories"] if one["text"] in texts]
        return {"sources": [{"number": one["number"], "quote": one["text"]} for one in cited], "insight": insight}

    return said


async def told(service: Service, **more: Any) -> list[str]:
    return [await memory(service, text, **more) for text in (*RUNNING, *OTHER)]


async def learned(service: Service) -> list[Json]:
    page = await service.client.get("/v1/memories", params={**OWNER, "memory_type": "learned"})
    items: list[Json] = page.json()["items"]
    return items


# --- What is found ----------------------------------------------------------------------------------------------------


async def test_several_memories_become_one_finding_with_their_sources(thinking: Service, llm: Model) -> None:
    llm.says["FoundInsight"] = quoting(*RUNNING)
    ids = await told(thinking)
    done = await reflect(thinking)
    assert done["result"]["insights"] | {"llm": None} == {
        "status": "done", "clusters": 1, "asked": 1, "found": 1, "left": 0, "dropped": {}, "llm": None
    }  # fmt: skip
    (shown,) = llm.shown("FoundInsight")
    assert sorted(one["text"] for one in shown["memories"]) == sorted(RUNNING)
    (found,) = await findings(thinking, kind="insight")
    assert (found["status"], found["proposal"]["action"]) == ("open", "store")
    assert found["proposal"]["details"]["content"] == INSIGHT
    assert sorted(one["id"] for one in found["evidence"]) == sorted(ids[:3])
    assert await learned(thinking) == []


async def test_it_waits_to_be_accepted_and_can_be_undone(thinking: Service, llm: Model) -> None:
    llm.says["FoundInsight"] = quoting(*RUNNING)
    ids = [await memory(thinking, text, trust=trust) for text, trust in zip(RUNNING, (1.0, 0.6, 0.9), strict=True)]
    await reflect(thinking)
    (found,) = await findings(thinking, kind="insight")
    accepted = await thinking.client.post(f"/v1/findings/{found['finding_id']}/accept")
    assert accepted.status_code == 200, accepted.text
    (made,) = await learned(thinking)
    assert (made["content"], made["trust"], made["agent_id"], made["user_id"]) == (INSIGHT, 0.6, "a", "u")
    assert (made["source"]["origin"], sorted(made["source"]["memory_ids"])) == ("consolidation", sorted(ids))
    assert RUNNING[1].rstrip(".") in made["source"]["quote"]
    assert made["source"]["model"] == "scripted"
    assert (await undo(thinking, accepted.json()["operation_id"]))["status"] == "succeeded"
    assert await learned(thinking) == []
    assert [one["status"] for one in await findings(thinking, kind="insight")] == ["open"]


async def test_the_same_memories_are_asked_about_once(thinking: Service, llm: Model) -> None:
    llm.says["FoundInsight"] = quoting(*RUNNING)
    await told(thinking)
    await reflect(thinking)
    (found,) = await findings(thinking, kind="insight")
    assert (await thinking.client.post(f"/v1/findings/{found['finding_id']}/dismiss")).status_code == 200
    before = await rows(thinking)
    assert (await reflect(thinking))["result"]["insights"]["clusters"] == 0
    assert (len(llm.shown("FoundInsight")), await rows(thinking)) == (1, before)
    await memory(thinking, "I ran twenty kilometres for the marathon today.")  # one memory more is no new insight
    assert (await reflect(thinking))["result"]["insights"]["clusters"] == 0
    assert await findings(thinking, kind="insight") == []


async def test_what_showed_nothing_is_not_asked_about_again_until_something_is_added(
    thinking: Service, llm: Model
) -> None:
    await told(thinking)
    first = await reflect(thinking)
    assert first["result"]["insights"]["dropped"] == {"nothing_found": 1}
    await reflect(thinking)
    assert len(llm.shown("FoundInsight")) == 1
    llm.says["FoundInsight"] = quoting(*RUNNING)
    await memory(thinking, "I ran twenty kilometres for the marathon today.")
    assert (await reflect(thinking))["result"]["insights"]["found"] == 1


async def test_with_auto_it_is_stored_at_once_until_it_is_undone(
    start: Starter, settings: Settings, llm: Model
) -> None:
    llm.says["FoundInsight"] = quoting(*RUNNING)
    async with start(asking(settings, llm, policy="auto")) as service:
        await told(service)
        done = await reflect(service)
        assert (done["result"]["found"], done["result"]["applied"]) == (1, 1)
        assert [one["content"] for one in await learned(service)] == [INSIGHT]
        (found,) = await findings(service, kind="insight", status="accepted")
        assert found["settled_by"] == "policy"
        assert (await undo(service, done["operation_id"]))["status"] == "succeeded"
        assert await learned(service) == []
        assert (await reflect(service))["result"]["applied"] == 0


async def test_a_source_that_goes_takes_the_insight_along(thinking: Service, llm: Model) -> None:
    llm.says["FoundInsight"] = quoting(*RUNNING)
    ids = await told(thinking)
    await reflect(thinking)
    (found,) = await findings(thinking, kind="insight")
    await thinking.client.delete(f"/v1/memories/{ids[0]}")
    path = f"/v1/findings/{found['finding_id']}"
    assert (await thinking.client.post(f"{path}/accept")).status_code == 409
    await reflect(thinking)
    gone = (await thinking.client.get(path)).json()
    assert (gone["status"], gone["proposal"]["details"]) == ("settled", {})
    stored = [row for row in await rows(thinking) if INSIGHT in str(row)]
    assert stored == []


async def test_insights_belong_to_the_export_and_the_erasure_of_their_user(thinking: Service, llm: Model) -> None:
    llm.says["FoundInsight"] = quoting(*RUNNING)
    for user in ("u", "v"):
        for text in (*RUNNING, *OTHER):
            await memory(thinking, text, user_id=user)
        await reflect(thinking, user_id=user)
    (found,) = await findings(thinking, kind="insight")
    (kept,) = await findings(thinking, kind="insight", user_id="v")
    await thinking.client.post(f"/v1/findings/{found['finding_id']}/accept")
    exported = (await thinking.client.get("/v1/users/u/export")).text
    assert found["finding_id"] in exported
    assert exported.count(INSIGHT) >= 2  # the finding, and the memory that it became
    assert kept["finding_id"] not in exported
    receipt = await thinking.client.delete("/v1/users/u")
    assert receipt.is_success, receipt.text
    await work(thinking)
    assert {row["user_id"] for row in await rows(thinking) if INSIGHT in str(row)} == {"v"}
    assert [row for row in await rows(thinking) if row.get("user_id") == "u"] == []
    assert (await thinking.client.get(f"/v1/findings/{found['finding_id']}")).status_code == 404
    assert [one["finding_id"] for one in await findings(thinking, kind="insight", user_id="v")] == [kept["finding_id"]]


async def test_users_are_never_mixed(thinking: Service, llm: Model) -> None:
    await memory(thinking, RUNNING[0])
    await memory(thinking, RUNNING[1], user_id="v")
    await memory(thinking, RUNNING[2], agent_id="b")
    await reflect(thinking, agent_id=None, user_id=None)
    assert llm.calls == 0


# --- Bounds -----------------------------------------------------------------------------------------------------------


async def test_without_a_model_the_run_says_so(service: Service) -> None:
    await told(service)
    done = await reflect(service)
    assert done["status"] == "succeeded"
    assert done["result"]["insights"] == {
        "status": "skipped", "reason": "no language model is configured", "clusters": 0
    }  # fmt: skip


async def test_a_dry_run_counts_the_groups_and_asks_nothing(thinking: Service, llm: Model) -> None:
    await told(thinking)
    before = await rows(thinking)
    done = await reflect(thinking, dry_run=True)
    assert done["result"]["insights"] | {"reason": ""} == {"status": "skipped", "reason": "", "clusters": 1}
    assert (llm.calls, await rows(thinking)) == (0, before)


async def test_a_run_asks_about_so_many_groups(
    start: Starter, settings: Settings, llm: Model, parts: TestParts
) -> None:
    parts.tuning = replace(parts.tuning, insight_calls=1)
    async with start(asking(settings, llm)) as service:
        for user in ("u", "v"):
            for text in RUNNING:
                await memory(service, text, user_id=user)
        done = await reflect(service, agent_id="a", user_id=None)
        counts = {name: done["result"]["insights"][name] for name in ("clusters", "asked", "left")}
        assert (counts, llm.calls) == ({"clusters": 2, "asked": 1, "left": 1}, 1)
        assert (await reflect(service, agent_id="a", user_id=None))["result"]["insights"]["left"] == 0


async def test_the_tokens_of_a_day_hold(start: Starter, settings: Settings, llm: Model) -> None:
    async with start(asking(settings, llm, tokens_per_day=1)) as service:
        for owner, home in ((OWNER, "Rome"), ({"user_id": "u"}, "Oslo")):
            fact = {**owner, "subject": "u", "predicate": "lives_in", "object": home, "cardinality": "one"}
            await service.client.post("/v1/facts", json=fact)
        await told(service)
        waiting = await reflect(service)
        assert (waiting["status"], llm.calls) == ("queued", 0)
        assert len(await findings(service)) == 1, "what needs no model is stored before"


async def test_a_model_that_fails_is_asked_again_and_the_rest_stays(thinking: Service, llm: Model) -> None:
    llm.says["FoundInsight"] = quoting(*RUNNING)
    await told(thinking)
    llm.server.then(*[Reply(500)] * 3)
    assert (await reflect(thinking))["status"] == "queued"
    await work(thinking, minutes=60)
    assert len(await findings(thinking, kind="insight")) == 1


async def test_the_daily_job_finds_them_and_says_nothing_when_there_is_nothing_new(
    thinking: Service, llm: Model
) -> None:
    llm.says["FoundInsight"] = quoting(*RUNNING)
    await told(thinking)
    for found in (1, 1):
        answer = await thinking.client.post("/v1/jobs/reflection/run", json={})
        assert answer.status_code == 202, answer.text
        await work(thinking)
        assert len(await findings(thinking, kind="insight")) == found
    assert len(llm.shown("FoundInsight")) == 1


# --- The rules --------------------------------------------------------------------------------------------------------


def cluster(*texts: str) -> Cluster:
    at = "2026-03-01T00:00:00.000Z"
    return Cluster(
        tuple(
            MemoryEvidence("memory", f"mem_{n}", text, at, 1.0, "a", "u", fingerprint_of(text), {"content": text})
            for n, text in enumerate(texts)
        )
    )


def verdict(insight: str | None, *sources: tuple[int, str], of: Cluster) -> str | None:
    cited = [{"number": number, "quote": quote} for number, quote in sources]
    found = cited_of(of, FoundInsight.model_validate({"sources": cited, "insight": insight}))
    return refused(insight or "", found)


ALL = tuple((number, text) for number, text in enumerate(RUNNING, start=1))


@pytest.mark.parametrize(
    ("insight", "sources", "reason"),
    [
        (INSIGHT, ALL, None),
        (INSIGHT, ALL[1:], None),
        (None, ALL, "nothing_found"),
        (INSIGHT, ALL[:1], "too_few_sources"),
        (INSIGHT, (ALL[1], ALL[1]), "too_few_sources"),
        (INSIGHT, (ALL[1], (7, RUNNING[2])), "too_few_sources"),
        (INSIGHT, (ALL[1], (3, "My knee is fine.")), "too_few_sources"),
        ("The user will run the marathon in Hamburg in 4 hours.", ALL, "not_said"),
        ("I signed up for the marathon.", ALL, "said_already"),
        ("The user bought running shoes and signed up for the marathon in Hamburg.", ALL, "only_lists"),
        ("The user is running a marathon in Hamburg with a knee that hurt.", ALL, "only_lists"),
    ],
)
def test_an_insight_says_what_its_sources_say_together(insight: str | None, sources: Any, reason: str | None) -> None:
    assert verdict(insight, *sources, of=cluster(*RUNNING)) == reason


def test_the_id_of_a_cluster_is_that_of_its_texts() -> None:
    assert cluster(*RUNNING).derivation_id == cluster(*RUNNING).derivation_id
    assert cluster(*RUNNING).derivation_id != cluster(*RUNNING[:2], RUNNING[2].upper()).derivation_id
