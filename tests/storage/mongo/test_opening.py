"""Starting on a deployment: what is made, once; and what is said where it cannot be used, without its password."""

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from app.errors import StoreUnavailable
from app.settings import Settings
from app.storage.factory import open_store, where_of
from app.storage.mongo import schema
from app.storage.mongo.connection import META, explained, greet, without_password
from app.storage.mongo.store import MongoOptions, MongoStore
from tests.storage.mongo.conftest import COLLECTIONS, Open
from tests.support.declared import DIM, ENTRIES, T, entry, thing, unit
from tests.support.mongodb import Deployment

# the driver leaves the socket open of an attempt to connect that it is closed in
left_open = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.anyio, left_open]

SECRET = "s3cret"


async def refusal(uri: str, deadline: float = 1) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        await MongoStore.open(uri, COLLECTIONS, MongoOptions(deadline_seconds=deadline), dim=DIM)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)
    return caught.value.detail


async def test_an_address_where_nobody_listens_is_named_without_its_password() -> None:
    said = await refusal(f"mongodb://ada:{SECRET}@127.0.0.1:9/")
    assert "mongodb://***@127.0.0.1:9/ cannot be reached within 1 s" in said
    await asyncio.sleep(0.1)
    gc.collect()


@pytest.mark.parametrize("uri", ["mongodb://", f"mongodb://ada:{SECRET}@", f"mongodb://u:{SECRET}@h/?w=nonsense&x"])
async def test_a_uri_that_is_none_is_refused(uri: str) -> None:
    assert "cannot be used" in await refusal(uri)


async def test_another_scheme_is_refused_without_showing_it(tmp_path: Path) -> None:
    where = where_of(Settings(data_dir=tmp_path, _env_file=None), f"postgres://u:{SECRET}@h")
    with pytest.raises(StoreUnavailable, match="must be `embedded` or a URI") as caught:
        await open_store(where, COLLECTIONS, dim=DIM)
    assert SECRET not in str(caught.value) + repr(where)


def test_passwords_are_taken_out_of_uris() -> None:
    assert without_password(f"mongodb://u:{SECRET}@h:1,i:2/d?x=y") == "mongodb://***@h:1,i:2/d?x=y"
    assert without_password("mongodb://h/d") == "mongodb://h/d"


def test_wrong_credentials_are_a_sentence() -> None:
    said = explained(OperationFailure("Authentication failed.", 18))
    assert "credentials" in said.detail
    assert said.retry_after == 30


async def test_a_standalone_server_is_refused_and_told_how_to_become_a_replica_set() -> None:
    with pytest.raises(StoreUnavailable, match=r"no transactions.*rs\.initiate") as caught:
        await greet(_saying({"isWritablePrimary": True, "ok": 1.0}), f"mongodb://u:{SECRET}@h/", 1)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("said", [{"setName": "rs0"}, {"msg": "isdbgrid"}])
async def test_replica_sets_and_sharded_clusters_are_accepted(said: dict[str, Any]) -> None:
    assert await greet(_saying(said), "mongodb://h/", 1) == said


def _saying(said: dict[str, Any]) -> Any:
    """A client whose server says this to `hello`."""
    return _Saying(said)


class _Saying:
    def __init__(self, said: dict[str, Any]) -> None:
        self._said = said

    @property
    def admin(self) -> "_Saying":
        return self

    async def command(self, _: str, **__: Any) -> dict[str, Any]:
        return self._said


# --- Indexes ----------------------------------------------------------------------------------------------------------


async def test_indexes_are_made_by_whoever_comes_first_and_by_nobody_later(
    mongodb: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    with mongodb.database() as name, caplog.at_level(logging.INFO, "app.storage.mongo.schema"):
        options = MongoOptions(database=name, deadline_seconds=20)
        stores = await asyncio.gather(*(MongoStore.open(mongodb.uri, COLLECTIONS, options, dim=DIM) for _ in range(4)))
        made = [line for line in caplog.records if line.message == "indexes made"]
        assert {line.__dict__["collection"] for line in made} >= {"things", "entries", "recalld_partitions"}
        caplog.clear()
        stores.append(await MongoStore.open(mongodb.uri, COLLECTIONS, options, dim=DIM))
        assert not {"indexes made", "indexes are complete"} & {line.message for line in caplog.records}
        with mongodb.client() as client:
            there = set(client[name]["entries"].index_information())
        assert there >= {"by_created_at", "by_agent_id_user_id_created_at", "row", "rev"}
        for store in stores:
            await store.close()


async def test_an_index_that_is_newly_declared_is_made(mongodb: Deployment) -> None:
    with mongodb.database() as name:
        options = MongoOptions(database=name, deadline_seconds=20)
        first = await MongoStore.open(mongodb.uri, COLLECTIONS[:1], options, dim=DIM)
        await first.close()
        second = await MongoStore.open(mongodb.uri, COLLECTIONS, options, dim=DIM)
        assert all(finding.ok for finding in await second.check(deep=True))
        await second.close()


async def test_a_database_of_a_newer_version_is_refused(open_store: Open, mongodb: Deployment, database: str) -> None:
    await open_store()
    with mongodb.client() as client:
        layout = client[database][META]
        layout.update_one({"_id": "layout"}, {"$set": {"version": schema.LAYOUT + 1}})
        try:
            with pytest.raises(StoreUnavailable, match="newer version"):
                await open_store()
        finally:
            layout.update_one({"_id": "layout"}, {"$set": {"version": schema.LAYOUT}})


async def test_without_search_indexes_the_check_says_so(store: MongoStore) -> None:
    said = {finding.name: finding.detail for finding in await store.check()}
    assert said == {"store": "readable", "search": "exact: this deployment has no search indexes"}


# --- The deep check ---------------------------------------------------------------------------------------------------

DAMAGES: dict[str, dict[str, Any]] = {
    "has other unique keys": {"$set": {"_r.u.slot": "[]"}},
    "has no search row": {"$unset": {"_r.row": ""}},
    "search row of a wrong size": {"$set": {"_r.head": b"short"}},
    "a vector that does not fit": {"$unset": {"_r.vector": ""}},
    "has a vector that does not fit": {"$set": {"_r.further": b"1"}},
    "lies under another id or tenant": {"$set": {"tenant_id": "somebody"}},
    "holds a row of 99": {"$set": {"_r.rev": 99}},
}


@pytest.mark.parametrize("fault", DAMAGES)
async def test_damage_is_found(store: MongoStore, mongodb: Deployment, database: str, fault: str) -> None:
    await store.commit([thing(slot=1), entry("tea", "one", vector=unit(1)), entry("tea", "two")])
    assert all(finding.ok for finding in await store.check(deep=True))
    with mongodb.client() as client:
        client[database]["entries"].update_one({"entry_id": "one"}, DAMAGES[fault])
    found = " ".join(finding.detail for finding in await store.check(deep=True) if not finding.ok)
    assert fault in found
    assert await store.count(ENTRIES, T) >= 1


async def test_a_partition_that_says_another_model_is_found(
    store: MongoStore, mongodb: Deployment, database: str
) -> None:
    await store.commit([entry("tea", "one", vector=unit(1))])
    with mongodb.client() as client:
        client[database]["recalld_partitions"].update_one({}, {"$set": {"model": 7}})
    (fault,) = [finding.detail for finding in await store.check(deep=True) if not finding.ok]
    assert "another embedding model" in fault
