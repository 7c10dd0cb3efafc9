"""Facts in a context."""

import pytest

from app.core.clock import rfc3339
from tests.conftest import Service
from tests.support.context import ask, items, texts
from tests.support.facts import day, tell
from tests.support.memories import remember

pytestmark = pytest.mark.anyio


async def test_facts_come_with_every_intent_as_they_are_true_and_known(service: Service) -> None:
    api = service.client
    await tell(api, "New York", "2019-01-01")
    then = rfc3339(service.clock.now())
    moved = await tell(api, "Boston", "2026-05-01")
    await tell(api, "Rome", "2026-05-02", trust=0.2)
    await tell(api, "tea", predicate="likes", trust=0.5, valid_from=None)
    for intent in ("general", "recall", "execute"):
        body = await ask(api, intent=intent)
        assert set(texts(body, "facts")) == {"Ada lives in Boston (since 2026-05-01)", "Ada likes tea"}
        assert moved["fact_id"] in {one["id"] for one in items(body, "facts")}
    past = await ask(api, as_of=day("2025-01-01"))
    assert texts(past, "facts")[0] == "Ada lives in New York (2019-01-01 to 2026-05-01)"
    assert texts(await ask(api, known_at=then), "facts") == ["Ada lives in New York (since 2019-01-01)"]
    assert texts(await ask(api, min_trust=0.6), "facts") == ["Ada lives in Boston (since 2026-05-01)"]


async def test_a_fact_without_a_date_is_shown_without_one(service: Service) -> None:
    api = service.client
    await tell(api, "tea", predicate="likes")
    home = await tell(api, "Oslo")
    assert home["valid_from"] is not None
    assert set(texts(await ask(api), "facts")) == {"Ada likes tea", "Ada lives in Oslo"}
    service.clock.move(days=3)
    await tell(api, "Bergen")
    assert set(texts(await ask(api), "facts")) == {"Ada likes tea", "Ada lives in Bergen"}
    past = texts(await ask(api, as_of=day("2026-06-02")), "facts")
    assert set(past) == {"Ada likes tea", "Ada lives in Oslo (until 2026-06-04)"}


async def test_a_fact_that_a_memory_says_too_comes_once(service: Service) -> None:
    await tell(service.client, "Boston", valid_from=None)
    await remember(service.client, "Ada lives in Boston")
    body = await ask(service.client)
    assert texts(body, "facts") + texts(body, "memories") == ["Ada lives in Boston"]
