"""Nobody sees, changes or even finds out what is others'; and the check sees a service in which one would."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.settings import JobSettings, LimitSettings, Settings
from app.storage.repository import Repository
from app.storage.schema import Eq
from tests.conftest import Service, Starter
from tests.support.contract import Contract
from tests.support.tenancy import OPEN, Strangers

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    chosen = {"jobs": JobSettings(enabled=False), "limits": LimitSettings(requests_per_second=0)}
    async with start(settings.model_copy(update=chosen)) as made:
        yield made


async def test_strangers_learn_and_change_nothing(service: Service) -> None:
    strangers = await Strangers.among(service, 2, seed=1)
    before = await strangers.held()
    found = await strangers.run(150)
    assert found.leaks == []
    assert set(found.statuses) == {op.name for op in Contract(service.app).operations()} - OPEN
    assert found.five_hundreds == 0
    assert await strangers.held() == before


@pytest.mark.parametrize("engine", ["embedded"])
async def test_a_leak_would_be_seen(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository that forgets whose records it reads."""

    async def find_one(self: Repository, doc_id: str) -> Any:
        docs = await self.store.find(self.collection, None, Eq(self.collection.id_field, doc_id), limit=1)
        return docs[0] if docs else None

    strangers = await Strangers.among(service, 1, seed=1)
    monkeypatch.setattr(Repository, "find_one", find_one)
    assert len((await strangers.run(120)).leaks) > 3
