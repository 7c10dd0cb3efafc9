"""Repetitions count once and appear once."""

from typing import Any

import httpx
import pytest

from app.retrieval.ranking import Ranked, by_features
from app.storage.search import Columns
from tests.support.context import ask, dropped, texts
from tests.support.memories import batch, found, recall, remember
from tests.support.sessions import append, said

pytestmark = pytest.mark.anyio

RAN = "Went running by the river"
OTHERS = ("Bought a lamp", "Paid the rent", "Watched a film about bees")
QUERY = "Where do I go running?"


async def runs(api: httpx.AsyncClient, days: int) -> None:
    await batch(
        api,
        *({"content": RAN, "event_at": f"2026-05-{day:02}T07:00:00Z"} for day in range(1, days + 1)),
        *({"content": content} for content in OTHERS),
    )


@pytest.mark.parametrize("days", [4, 28])
async def test_what_happened_on_many_days_is_one_hit_as_sure_as_one(api: httpx.AsyncClient, days: int) -> None:
    await runs(api, days)
    first, *rest = (await recall(api, QUERY, top_k=4))["items"]
    assert first["repeated"] == {"count": days, "since": "2026-05-01T07:00:00.000Z"}
    assert first["memory"]["event_at"] == f"2026-05-{days:02}T07:00:00.000Z", "the newest"
    assert first["score"] > 0.6
    assert {hit["memory"]["content"] for hit in rest} == {*OTHERS}, "as many hits as there are different texts"
    assert not any("repeated" in hit for hit in rest)


async def test_a_query_that_names_a_time_has_each_of_its_days(api: httpx.AsyncClient) -> None:
    await runs(api, 4)
    assert (await found(api, "Where did I run in May 2026?")).count(RAN) == 4


async def test_wordings_of_one_statement_are_one_hit_and_explain_names_the_others(api: httpx.AsyncClient) -> None:
    old = await remember(api, "Likes oat milk in coffee")
    new = await remember(api, "likes oat milk in her coffee.")
    await remember(api, "Does not like oat milk in coffee")
    items = (await recall(api, "What milk does she like in coffee?", explain=True))["items"]
    by_id = {hit["memory"]["memory_id"]: hit for hit in items}
    assert len(items) == 2
    assert old["memory_id"] not in by_id
    again = by_id[new["memory_id"]]["repeated"]
    assert (again["count"], again["ids"]) == (2, [old["memory_id"]])
    assert again["since"] == old["created_at"]


async def test_texts_that_differ_in_a_number_or_a_condition_are_as_many_hits(api: httpx.AsyncClient) -> None:
    await batch(api, *({"content": f"Room {number} has the projector"} for number in (12, 14)))
    await remember(api, "The room has the projector", context="in winter")
    await remember(api, "Room has a projector")
    assert len(await found(api, "Which room has the projector?")) == 4


async def test_words_of_two_speakers_are_two_and_of_one_are_one(api: httpx.AsyncClient) -> None:
    for day, name in enumerate(("Ann", "Ben", "Ben"), 1):
        lives = "I live in Boston." if day < 3 else "I live in the Boston"
        await append(api, said(lives, name=name, timestamp=f"2026-05-{day:02}T08:00:00Z"), f"s{day}")
    items = (await recall(api, "Who lives in Boston?"))["items"]
    assert sorted(hit["memory"]["source"]["speaker"] for hit in items) == ["Ann", "Ben"]
    assert [hit["repeated"]["count"] for hit in items if "repeated" in hit] == [2]


async def test_a_context_has_one_of_them_and_lists_the_others_as_duplicates(api: httpx.AsyncClient) -> None:
    for day, text in ((1, "I like oat milk in coffee"), (2, "I like oat milk in my coffee.")):
        await append(api, said(text, timestamp=f"2026-05-{day:02}T08:00:00Z"), f"s{day}")
    body = await ask(api, "Which milk do I like in coffee?")
    assert texts(body, "memories") == ["user: I like oat milk in my coffee."]
    assert list(dropped(body).values()) == ["duplicate"]


async def test_where_no_hit_is_sure_enough_nothing_is_repeated(api: httpx.AsyncClient) -> None:
    await batch(api, *({"content": "Went running", "event_at": f"2026-05-{day:02}T08:00:00Z"} for day in (1, 2)))
    assert (await recall(api, "the colour of the boat", min_score=1.0))["items"] == []


async def test_a_scope_is_ranked_once_and_once_more_where_texts_say_the_same(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them come to light one after the other, and although the texts of first hits tell their order."""
    rankings = []

    def counted(columns: Columns, *args: Any, **kwargs: Any) -> Ranked:
        rankings.append(len(columns.rows))
        return by_features(columns, *args, **kwargs)

    monkeypatch.setattr("app.retrieval.retriever.by_features", counted)
    await batch(api, {"content": "Olaf manages Pia"}, {"content": "Mira manages Olaf"})
    assert await found(api, "Who manages Olaf?") == ["Mira manages Olaf", "Olaf manages Pia"]
    assert rankings == [2]
    await runs(api, 28)
    await batch(api, *({"content": f"Bought {the} lamp"} for the in ("the", "her", "my")))
    rankings.clear()
    assert len(await found(api, "Where do I go running?", top_k=6)) == 6
    assert rankings == [36, 36]
