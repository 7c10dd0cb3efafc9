"""A move to MongoDB in two runs of `recalld migrate`: one while the service writes, one after it stopped."""

import itertools
import json
import threading
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from app.lifespan import COLLECTIONS
from app.settings import MongodbSettings
from app.storage.factory import open_store, where_of
from app.storage.transfer import MovableStore, digest, exported
from tests.cli.conftest import Run
from tests.conftest import settings_of
from tests.support.mongodb import Deployment
from tests.support.server import recalld, serving

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
OWNER = {"agent_id": "a", "user_id": "u"}
BEFORE, FEWEST = 30, 20


class Writer(threading.Thread):
    """Adds, changes and deletes records of several kinds until it is told to stop."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._client = httpx.Client(base_url=address, timeout=60)
        self._ended = threading.Event()
        self.rounds, self.fault = 0, ""

    def run(self) -> None:
        try:
            for number in itertools.count():
                if self._ended.is_set():
                    return
                self._round(number)
                self.rounds += 1
        except (httpx.HTTPError, AssertionError, KeyError) as fault:
            self.fault = repr(fault)

    def stop(self) -> None:
        self._ended.set()
        self.join()
        self._client.close()

    def _call(self, method: str, path: str, body: object = None) -> dict[str, str]:
        answer = self._client.request(method, path, json=body)
        assert answer.status_code < 300, answer.text
        return dict(answer.json()) if answer.content else {}

    def _round(self, number: int) -> None:
        kept = self._call(
            "POST", "/v1/memories", {**OWNER, "content": f"note {number} on ships", "key": f"k{number % 7}"}
        )
        self._call("PATCH", f"/v1/memories/{kept['memory_id']}", {"importance": 0.9})
        gone = self._call("POST", "/v1/memories", {**OWNER, "content": f"passing thought {number}"})
        words = {"messages": [{"role": "user", "content": f"word {number}"}], **OWNER}
        self._call("POST", f"/v1/sessions/s{number % 3}/messages", words)
        if number % 2:
            self._call("DELETE", f"/v1/memories/{gone['memory_id']}")
        if number % 5 == 4:
            self._call("DELETE", f"/v1/sessions/s{number % 3}")
        fact = {**OWNER, "subject": "Ada", "predicate": "likes", "object": f"thing {number % 4}", "cardinality": "many"}
        made = self._call("POST", "/v1/facts", fact)
        if number % 3 == 0:
            self._call("POST", f"/v1/facts/{made['fact_id']}/retract")


async def records(store: MovableStore) -> dict[tuple[str, str, str], bytes]:
    """The digest of every record, by collection, tenant and id."""
    return {
        (collection.name, record.doc["tenant_id"], str(record.doc[collection.id_field])): digest(collection, record)
        for collection in COLLECTIONS
        async for page in exported(store, collection)
        for record in page
    }


@pytest.mark.release
async def test_the_second_run_brings_what_was_added_changed_and_deleted_during_the_first(
    data: Path, mongodb: Deployment
) -> None:
    with mongodb.database() as name, serving(data) as server:
        to_mongodb = {"RECALLD_MONGODB_DATABASE": name, "RECALLD_MONGODB_DEADLINE_SECONDS": "30"}
        writer = Writer(str(server.client.base_url))
        writer.start()
        while writer.rounds < BEFORE and not writer.fault:
            writer.join(0.05)
        begun = writer.rounds
        first = recalld(data, "migrate", "--to", mongodb.uri, "--json", **to_mongodb)
        during = writer.rounds - begun
        assert json.loads(first.stdout)["collections"], first.stderr
        while writer.rounds < begun + during + FEWEST and not writer.fault:
            writer.join(0.05)
        writer.stop()
        assert writer.fault == ""
        assert during > 0, "the service wrote while the first run copied"
        assert server.stop() == 0
        own = MongodbSettings(database=name, deadline_seconds=30)
        place = where_of(settings_of(data.parent, store=SecretStr(mongodb.uri), mongodb=own))
        source = await open_store(where_of(settings_of(data.parent)), COLLECTIONS, dim=1)
        target = await open_store(place, COLLECTIONS, dim=1)
        wanted, copied = await records(source), await records(target)
        assert set(wanted) - set(copied), "some were added since the first run read them"
        assert set(copied) - set(wanted), "some were deleted"
        assert any(wanted[one] != copied[one] for one in set(wanted) & set(copied)), "some were changed"
        second = recalld(data, "migrate", "--to", mongodb.uri, "--json", **to_mongodb)
        assert second.returncode == 0, second.stderr
        assert json.loads(second.stdout)["ok"]
        assert await records(target) == wanted
        assert sorted(await target.counters(), key=repr) == sorted(await source.counters(), key=repr)
        assert [found for found in await target.check(deep=True) if not found.ok] == []
        await source.close()
        await target.close()
        third = recalld(data, "migrate", "--to", mongodb.uri, "--json", **to_mongodb)
        assert third.returncode == 0, third.stderr
        with serving(data, RECALLD_STORE=mongodb.uri, **to_mongodb) as moved:
            found = moved.client.post("/v1/memories/search", json={**OWNER, "query": "ships", "top_k": 3}).json()
            assert all("ships" in item["memory"]["content"] for item in found["items"])
            assert moved.client.post("/v1/memories", json={**OWNER, "content": "new here"}).status_code == 201
            moved.stop()
        late = recalld(data, "migrate", "--to", mongodb.uri, **to_mongodb)
        assert late.returncode == 1
        assert "written to since it was copied" in late.stderr


def test_a_copy_of_another_store_is_refused(run: Run, tmp_path: Path, mongodb: Deployment) -> None:
    with mongodb.database() as name:
        to = ("migrate", "--to", mongodb.uri)
        one, two = (
            {"RECALLD_DATA_DIR": str(tmp_path / place), "RECALLD_MONGODB_DATABASE": name} for place in ("one", "two")
        )
        for given in (one, two):
            assert run("keys", "create", "--no-admin", "--tenant", "acme", "--name", "ci", **given).returncode == 0
        assert run(*to, **one).returncode == 0
        refused = run(*to, **two)
        assert refused.returncode == 1
        assert "a copy of another store" in refused.stderr
