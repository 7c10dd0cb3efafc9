"""Search indexes are asked for once, again when their definition changes, and used when they can be queried.

What a deployment with search would answer is canned; what is sent is read at the driver, by its own listener.
"""

import asyncio
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent
from pymongo.operations import SearchIndexModel

from app.storage.mongo.search_indexes import SearchIndexes, models
from app.storage.mongo.store import MongoStore
from app.storage.schema import Collection
from tests.storage.mongo.conftest import COLLECTIONS
from tests.support.declared import DIM, ENTRIES
from tests.support.mongodb import Deployment

pytestmark = pytest.mark.anyio

NAMES = {"entries_vector", "entries_text"}


class Canned(SearchIndexes):
    """A deployment that builds for `looks` looks, then can be queried."""

    def __init__(self, store: MongoStore, looks: int = 1, dim: int = DIM) -> None:
        super().__init__(store._database, COLLECTIONS, dim, look_seconds=0.01)
        self.there: dict[str, dict[str, Any]] = {}
        self.created: list[str] = []
        self.updated: list[str] = []
        self._looks = looks

    async def _listed(self, collection: Collection) -> dict[str, dict[str, Any]]:
        assert collection is ENTRIES
        ready = self._looks <= 0
        self._looks -= 1 if self.there else 0
        return {n: i | {"queryable": ready, "status": "READY" if ready else "BUILDING"} for n, i in self.there.items()}

    async def _create(self, collection: Collection, model: SearchIndexModel) -> None:
        self.created.append(model.document["name"])
        self.there[model.document["name"]] = {"name": model.document["name"]}

    async def _update(self, collection: Collection, name: str, definition: dict[str, Any]) -> None:
        self.updated.append(name)


@pytest.fixture(autouse=True)
async def _clean(store: MongoStore) -> None:
    await store._database["recalld_meta"].delete_many({"_id": {"$regex": "^search index"}})


async def until_ready(indexes: SearchIndexes) -> None:
    await indexes.find_out()
    assert indexes._watching is not None
    await asyncio.wait_for(indexes._watching, 60)
    assert indexes.ready(ENTRIES)
    await indexes.close()


async def test_they_are_asked_for_once_and_used_when_ready(store: MongoStore) -> None:
    first = Canned(store, looks=5)
    await first.find_out()
    assert not first.ready(ENTRIES)
    assert "0/1 ready" in first.described
    await until_ready(first)
    assert set(first.created) == NAMES
    assert first.described == "vector and text search indexes"
    assert "session" in await store._database["entries"].index_information()
    second = Canned(store, looks=0)
    second.there = first.there
    await until_ready(second)
    assert (second.created, second.updated) == ([], [])


async def test_a_changed_definition_is_sent_again(store: MongoStore) -> None:
    first = Canned(store)
    await until_ready(first)
    other = Canned(store, looks=1, dim=2 * DIM)
    other.there = first.there
    await until_ready(other)
    assert (other.created, other.updated) == ([], ["entries_vector"])


async def test_a_changed_index_is_not_used_in_its_old_definition(store: MongoStore) -> None:
    first = Canned(store)
    await until_ready(first)
    other = Canned(store, looks=0, dim=2 * DIM)
    other.there = first.there
    assert not await other._look_at(ENTRIES), "it can be queried, but as it was"
    assert await other._look_at(ENTRIES)


async def test_a_deployment_without_search_is_found_out(store: MongoStore) -> None:
    class Without(Canned):
        async def _listed(self, collection: Collection) -> dict[str, dict[str, Any]]:
            raise OperationFailure("no search here", 31082, {"codeName": "SearchNotEnabled"})

    indexes = Without(store)
    await indexes.find_out()
    assert not indexes.ready(ENTRIES)
    assert "no search indexes" in indexes.described
    await indexes.close()


class Heard(CommandListener):
    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.commands.append(dict(event.command))

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


async def test_the_commands_are_the_documented_ones(store: MongoStore, mongodb: Deployment, database: str) -> None:
    heard = Heard()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongodb.uri, event_listeners=[heard])
    indexes = SearchIndexes(client[database], COLLECTIONS, DIM)
    vector, text = models(ENTRIES, DIM)
    for sent in (indexes._listed(ENTRIES), indexes._create(ENTRIES, vector), indexes._update(ENTRIES, "i", {"a": 1})):
        with pytest.raises(OperationFailure):
            await sent
    listing, creating, updating = heard.commands[-3:]
    assert listing["pipeline"] == [{"$listSearchIndexes": {}}]
    assert (creating["createSearchIndexes"], creating["indexes"]) == ("entries", [vector.document])
    assert vector.document.keys() == text.document.keys() == {"name", "type", "definition"}
    assert (updating["updateSearchIndex"], updating["name"], updating["definition"]) == ("entries", "i", {"a": 1})
    await client.close()
