"""No job holds a whole collection: it goes through it by pages."""

from collections.abc import AsyncIterator

import pytest

from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter
from tests.support.learning import consolidate
from tests.support.memories import OWNER, remember
from tests.support.operations import forget, run, undo
from tests.support.sessions import append, said
from tests.support.stores import Watched

pytestmark = pytest.mark.anyio

MOST = 1_000
"""Documents that a job may ask for at once."""


@pytest.fixture
async def service(watched: list[Watched], start: Starter, settings: Settings) -> AsyncIterator[Service]:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


async def test_no_job_asks_for_more_than_a_page(service: Service, watched: list[Watched]) -> None:
    api, store = service.client, watched[0]
    for text in ("Likes tea", "likes tea."):
        await remember(api, text)
    await remember(api, "Likes rum", expires_at="2026-06-02T00:00:00Z")
    await append(api, said("hello"))
    assert (await api.post("/v1/actions", json={**OWNER, "action_type": "work", "content": "x"})).status_code == 201
    service.clock.move(days=20)
    store.watch()
    merged = await consolidate(service)
    assert merged["result"]["memories"]["retired"] == 1
    await undo(service, merged["operation_id"])
    service.clock.move(days=380)
    await undo(service, (await forget(service))["operation_id"])
    for kind in ("decay", "expiry", "retention", "embed_pending"):
        await run(service, kind)
    asked = [(one.named.get("limit", 100), one.collection.name) for one in store.asked if one.method == "find"]
    assert len({name for _, name in asked}) > 8
    assert max(asked)[0] <= MOST, max(asked)
