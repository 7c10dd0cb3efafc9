"""The second stage as callers see it: order, scores, warnings, and what it never changes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.embedding.embedder import Embedder
from app.embedding.reranking import RerankingFailed
from app.settings import JobSettings, RerankSettings, Settings
from tests.conftest import Service, Starter, TestParts
from tests.support.context import ask
from tests.support.memories import OWNER, Faulty, Json, batch, recall, remember
from tests.support.procedures import learn
from tests.support.rerankers import ScriptedReranker, model_folder

pytestmark = pytest.mark.anyio

QUERY = "Who plays the violin in Boston?"
TEXTS = (
    "Ada plays the violin in Boston every Sunday",
    "Bob owns a violin",
    "Cleo went to Boston by train",
    "Dan",
)


def settings_with(settings: Settings, **given: Any) -> Settings:
    """With a deadline that no test reaches by being slow."""
    return settings.model_copy(
        update={"rerank": RerankSettings(seconds=60), "jobs": JobSettings(enabled=False), **given}
    )


@pytest.fixture
def reranker(parts: TestParts) -> ScriptedReranker:
    parts.own_reranker = ScriptedReranker()
    return parts.own_reranker


@pytest.fixture
async def service(
    start: Starter, settings: Settings, parts: TestParts, reranker: ScriptedReranker
) -> AsyncIterator[Service]:
    parts.wrap = Faulty
    async with start(settings_with(settings)) as made:
        yield made


@pytest.fixture
async def stored(api: httpx.AsyncClient) -> None:
    await batch(api, *({"content": text} for text in TEXTS))


def contents(answer: Json) -> list[str]:
    return [item["memory"]["content"] for item in answer["items"]]


def scores(answer: Json) -> list[float]:
    return [item["score"] for item in answer["items"]]


def fail(query: str, texts: Sequence[str]) -> list[float]:
    raise RerankingFailed("The reranker answered 500.")


def like_first(query: str, texts: Sequence[str]) -> list[float]:
    """All alike, so that the first order stays."""
    return [0.0] * len(texts)


@pytest.mark.usefixtures("stored")
async def test_the_order_is_the_rerankers_and_the_scores_fall_as_before(
    api: httpx.AsyncClient, reranker: ScriptedReranker
) -> None:
    reranker.rule = like_first
    first = await recall(api, QUERY)
    reranker.rule = lambda query, texts: [-float(len(text)) for text in texts]
    answer = await recall(api, QUERY)
    assert contents(first)[0] == TEXTS[0]
    assert contents(answer) == sorted(TEXTS, key=len) != contents(first)
    assert scores(answer) == scores(first) == sorted(scores(first), reverse=True)
    assert answer["warnings"] == []
    assert answer["took_ms"]["rerank"] > 0
    assert set(reranker.calls[-1][1]) == set(TEXTS)
    assert reranker.calls[-1][0] == QUERY, "names of speakers stay in it"


@pytest.mark.usefixtures("stored")
async def test_explain_shows_the_rerankers_own_score(api: httpx.AsyncClient) -> None:
    answer = await recall(api, QUERY, explain=True)
    assert [item["scores"]["rerank"] for item in answer["items"]] == [-float(len(text)) for text in contents(answer)]


@pytest.mark.usefixtures("stored")
async def test_what_the_first_stage_puts_below_the_cut_can_come_first(api: httpx.AsyncClient) -> None:
    assert contents(await recall(api, QUERY, top_k=1)) == ["Dan"]


@pytest.mark.usefixtures("stored")
async def test_a_least_score_keeps_as_many_as_before_the_rerankers_best(api: httpx.AsyncClient) -> None:
    whole = await recall(api, QUERY)
    least = scores(whole)[1]
    answer = await recall(api, QUERY, min_score=least)
    assert contents(answer) == contents(whole)[:2]
    assert scores(answer) == scores(whole)[:2]


async def test_only_the_first_hits_are_read_and_the_rest_follow_in_their_order(
    start: Starter, settings: Settings, reranker: ScriptedReranker, parts: TestParts
) -> None:
    parts.tuning = replace(parts.tuning, rerank_hits=2)
    async with start(settings_with(settings)) as service:
        await batch(service.client, *({"content": text} for text in TEXTS))
        reranker.rule = like_first
        first = contents(await recall(service.client, QUERY, top_k=1))
        one, two = reranker.calls[-1][1]
        assert first == [one]
        reranker.rule = lambda query, texts: [float(text == two) for text in texts]
        assert contents(await recall(service.client, QUERY, top_k=1)) == [two]
        reranker.calls.clear()
        assert len(contents(await recall(service.client, QUERY, top_k=3))) == 3
        assert len(reranker.calls[0][1]) == 3, "at least as many as were asked for"


async def test_equal_contents_are_read_and_shown_once(api: httpx.AsyncClient, reranker: ScriptedReranker) -> None:
    for agent in ("a", "b"):
        await remember(api, TEXTS[0], agent_id=agent)
    await remember(api, TEXTS[1])
    answer = await api.post("/v1/memories/search", json={"user_id": "u", "query": QUERY})
    assert sorted(contents(answer.json())) == sorted(TEXTS[:2])
    assert sorted(reranker.calls[-1][1]) == sorted(TEXTS[:2])


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("mode", ["vector", "text"])
async def test_other_modes_keep_their_own_order(api: httpx.AsyncClient, reranker: ScriptedReranker, mode: str) -> None:
    answer = await recall(api, QUERY, mode=mode)
    assert contents(answer)[0] == TEXTS[0]
    assert reranker.calls == []
    assert "rerank" not in answer["took_ms"]


@pytest.mark.usefixtures("stored")
async def test_a_search_by_words_alone_is_not_reranked(service: Service, reranker: ScriptedReranker) -> None:
    embedder: Embedder = service.resources.embedder
    assert isinstance(embedder, Faulty)
    embedder.failing = True
    answer = await recall(service.client, QUERY)
    assert [warning["code"] for warning in answer["warnings"]] == ["embedding_unavailable"]
    assert reranker.calls == []


async def test_fewer_than_two_hits_are_not_reranked(api: httpx.AsyncClient, reranker: ScriptedReranker) -> None:
    assert contents(await recall(api, QUERY)) == []
    await remember(api, TEXTS[0])
    answer = await recall(api, QUERY)
    assert contents(answer) == [TEXTS[0]]
    assert reranker.calls == []
    assert "rerank" not in answer["took_ms"]


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    "rule",
    [fail, lambda query, texts: [1.0], lambda query, texts: [float("nan")] * len(texts)],
    ids=["fails", "too few", "nan"],
)
async def test_when_it_fails_the_first_order_stands_and_the_answer_says_so(
    api: httpx.AsyncClient, reranker: ScriptedReranker, rule: Any
) -> None:
    reranker.rule = like_first
    first = await recall(api, QUERY)
    reranker.rule = rule
    answer = await recall(api, QUERY, explain=True)
    assert (contents(answer), scores(answer)) == (contents(first), scores(first))
    (warning,) = answer["warnings"]
    assert warning["code"] == "reranker_unavailable"
    assert warning["detail"].endswith("The hits are in the order of the first stage.")
    assert answer["took_ms"]["rerank"] > 0
    assert "rerank" not in answer["items"][0]["scores"]
    assert answer["mode_used"] == "hybrid"


async def test_after_the_deadline_the_first_order_stands(
    start: Starter, settings: Settings, reranker: ScriptedReranker
) -> None:
    async with start(settings_with(settings, rerank=RerankSettings(seconds=0.01))) as service:
        await batch(service.client, *({"content": text} for text in TEXTS))
        reranker.open.clear()
        answer = await recall(service.client, QUERY)
    assert contents(answer)[0] == TEXTS[0]
    assert [warning["code"] for warning in answer["warnings"]] == ["reranker_unavailable"]
    assert "did not answer within 0.01 s" in answer["warnings"][0]["detail"]
    assert reranker.closed


@pytest.mark.usefixtures("stored")
async def test_a_search_that_finds_the_line_full_is_answered_in_the_first_order(
    api: httpx.AsyncClient, service: Service, reranker: ScriptedReranker
) -> None:
    stage = service.resources.second_stage
    assert stage is not None
    reranker.open.clear()
    waiting = [asyncio.create_task(stage.scores("q", ["text"])) for _ in range(33)]
    await asyncio.sleep(0)
    answer = await recall(api, QUERY)
    assert contents(answer)[0] == TEXTS[0]
    assert "Too many searches wait" in answer["warnings"][0]["detail"]
    reranker.open.set()
    await asyncio.gather(*waiting)


async def test_the_reranker_gets_no_text_that_the_caller_may_not_read(
    service: Service, api: httpx.AsyncClient, reranker: ScriptedReranker
) -> None:
    for user in ("u", "v"):
        await batch(api, *({"content": f"{text}, says {user}", "user_id": user} for text in TEXTS))
    other = await service.key("other")
    await api.post("/v1/memories", json={**OWNER, "content": "of another tenant: violin in Boston"}, headers=other)
    bound = await service.key(users=["u"])
    answer = await api.post("/v1/memories/search", json={**OWNER, "query": QUERY}, headers=bound)
    assert len(contents(answer.json())) == len(TEXTS)
    ((_, texts),) = reranker.calls
    assert sorted(texts) == sorted(f"{text}, says u" for text in TEXTS)


async def test_facts_actions_and_procedures_are_read_by_the_text_that_they_are_found_by(
    api: httpx.AsyncClient, reranker: ScriptedReranker
) -> None:
    for subject, predicate in (("Ada Lovelace", "plays_violin_in"), ("Bob", "lives_in")):
        fact = {**OWNER, "subject": subject, "predicate": predicate, "object": "Boston"}
        assert (await api.post("/v1/facts", json=fact)).status_code == 201
    for content in ("Booked a violin lesson in Boston", "Sold a violin"):
        action = {**OWNER, "action_type": "tool_call", "content": content, "outcome": "success"}
        assert (await api.post("/v1/actions", json=action)).status_code == 201, content
    await learn(api, name="Tune", trigger="The violin is out of tune", preconditions=["in Boston"])
    await learn(api, name="Rest", trigger="Nothing to do")
    kinds = {
        "facts": ("query", ["Bob lives in Boston", "Ada Lovelace plays violin in Boston"]),
        "actions": ("query", ["Sold a violin", "Booked a violin lesson in Boston"]),
    }
    for kind, (field, texts) in kinds.items():
        answer = (await api.post(f"/v1/{kind}/search", json={**OWNER, field: QUERY})).json()
        shown = [item["fact" if kind == "facts" else "action"] for item in answer["items"]]
        words = [one.get("content") or f"{one['subject']} {one['predicate'].replace('_', ' ')} Boston" for one in shown]
        assert words == texts
        assert sorted(reranker.calls[-1][1]) == sorted(texts)
        assert answer["took_ms"]["rerank"] > 0
    situation = {**OWNER, "situation": QUERY, "explain": True}
    answer = (await api.post("/v1/procedures/search", json=situation)).json()
    assert sorted(reranker.calls[-1][1]) == ["Rest\nNothing to do", "Tune\nThe violin is out of tune\nin Boston"]
    assert all("rerank" in item["scores"] for item in answer["items"])
    assert answer["took_ms"]["rerank"] > 0


@pytest.mark.usefixtures("stored")
async def test_a_context_is_packed_by_the_reranked_scores(api: httpx.AsyncClient, reranker: ScriptedReranker) -> None:
    reranker.rule = lambda query, texts: [float(text == "Dan") for text in texts]
    body = await ask(api, query=QUERY, sections={"memories": {"limit": 1}})
    assert "Dan" in body["text"]
    assert TEXTS[0] not in body["text"]
    assert body["warnings"] == []


async def test_a_context_waits_for_the_reranker_no_longer_than_its_sources_can(
    start: Starter, settings: Settings, reranker: ScriptedReranker, parts: TestParts
) -> None:
    parts.tuning = replace(parts.tuning, section_seconds=8)
    async with start(settings_with(settings)) as service:
        await batch(service.client, *({"content": text} for text in TEXTS))
        reranker.open.clear()
        body = await ask(service.client, query=QUERY)
    assert body["errors"] == []
    assert [warning["code"] for warning in body["warnings"]] == ["reranker_unavailable"]
    assert "within 2 s" in body["warnings"][0]["detail"]
    assert TEXTS[0] in body["text"]


async def test_without_one_nothing_of_it_is_seen(start: Starter, settings: Settings) -> None:
    async with start(settings) as service:
        assert service.resources.second_stage is None
        await batch(service.client, *({"content": text} for text in TEXTS))
        answer = await recall(service.client, QUERY, explain=True)
        assert set(answer["took_ms"]) == {"embed", "search", "total"}
        assert "rerank" not in answer["items"][0]["scores"]
        assert "reranker" not in (await service.client.get("/readyz")).json()["checks"]


@pytest.mark.usefixtures("stored")
async def test_readiness_names_it_and_does_not_depend_on_it(api: httpx.AsyncClient, reranker: ScriptedReranker) -> None:
    assert (await api.get("/readyz")).json()["checks"]["reranker"] == "scripted"
    reranker.rule = fail
    for _ in range(3):
        await recall(api, QUERY)
    ready = await api.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["checks"]["reranker"] == "scripted (paused after 3 failures)"


@pytest.mark.usefixtures("stored")
async def test_metrics_count_it_by_outcome(api: httpx.AsyncClient, reranker: ScriptedReranker) -> None:
    async def counted(outcome: str) -> float:
        name = f'recalld_rerank_seconds_count{{outcome="{outcome}"}} '
        lines = (await api.get("/metrics")).text.splitlines()
        return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    before = [await counted("reranked"), await counted("failed")]
    await recall(api, QUERY)
    reranker.rule = fail
    await recall(api, QUERY)
    assert [await counted("reranked"), await counted("failed")] == [before[0] + 1, before[1] + 1]


async def test_a_cross_encoder_in_a_folder_reranks(start: Starter, settings: Settings, tmp_path: Any) -> None:
    folder = model_folder(tmp_path / "overlap", "overlap")
    chosen = settings_with(settings, reranker=str(folder))
    async with start(chosen) as service:
        repeated = "the the the in in in who who"  # stop words: nothing for the first stage
        await batch(service.client, *({"content": text} for text in (*TEXTS, repeated)))
        answer = await recall(service.client, QUERY, explain=True)
        assert contents(answer)[:2] == [repeated, TEXTS[0]]
        assert [item["scores"]["rerank"] for item in answer["items"]][:2] == [8.0, 5.0]
        checks = (await service.client.get("/readyz")).json()["checks"]
        assert checks["reranker"].startswith("overlap:onnx-")
