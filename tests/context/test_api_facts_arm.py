"""Facts in a context."""

import pytest

from app.context.sources.searched import names
from app.core.clock import rfc3339
from tests.conftest import Service
from tests.support.context import ask, items, texts
from tests.support.facts import day, tell, tell_all
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


async def test_what_is_linked_with_whom_the_query_names_comes_too(service: Service) -> None:
    api, many = service.client, {"cardinality": "many", "valid_from": None}
    await tell_all(api, *({"subject": "Ada", "predicate": "likes", "object": f"tea {at}", **many} for at in range(30)))
    await tell_all(
        api,
        {"subject": "Ben Ng", "predicate": "reports_to", "object": "Cleo", **many},
        {"subject": "Cleo", "predicate": "sits_in", "object": "Oslo", **many},
    )
    body = await ask(api, "Which kinds of tea does Ada like, and what of Ben Ng's boss?")
    assert {"Ben Ng reports to Cleo", "Cleo sits in Oslo"} <= set(texts(body, "facts"))
    assert len(texts(body, "facts")) == 32


async def test_a_fact_that_a_memory_says_too_comes_once(service: Service) -> None:
    await tell(service.client, "Boston", valid_from=None)
    await remember(service.client, "Ada lives in Boston")
    body = await ask(service.client)
    assert texts(body, "facts") + texts(body, "memories") == ["Ada lives in Boston"]


def test_names_are_runs_of_words_without_what_clings_to_them() -> None:
    assert names("Where's Ben Ng's “boss”?") == [
        "where",
        "ben",
        "ng",
        "boss",
        "where ben",
        "ben ng",
        "ng boss",
        "where ben ng",
        "ben ng boss",
        "where ben ng boss",
    ]
    assert names("?!") == []
    assert len(names("word " * 1000)) <= 4
    assert len(names(" ".join(map(str, range(1000))))) <= 100
