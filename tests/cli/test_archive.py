"""`recalld export` and `import`: a tenant goes out and comes back the same, under any name, into any engine."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.audit.tombstones import ErasureKey, Tombstones
from app.audit.trail import ERASED
from app.cli import archive
from app.embedding.onnx import OnnxModel
from app.lifespan import open_store
from app.settings import JobSettings, Settings
from app.storage.transfer import MovableStore
from tests.conftest import Service, Starter
from tests.support.lives import Life
from tests.support.memories import found, shared_service

pytestmark = pytest.mark.anyio
EMBEDDED = pytest.mark.parametrize("shared_settings", ["embedded"], indirect=True)


@pytest.fixture(scope="module")
async def shared(shared_settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[Service]:
    """Without background work: what is exported is what was said."""
    async with shared_service(shared_settings.model_copy(update={"jobs": JobSettings(enabled=False)}), model) as made:
        yield made


async def written(service: Service, tenant: str, folder: Path) -> Path:
    store: Any = service.resources.store
    await archive.write(store, folder / "tenant.jsonl", tenant)
    return folder / "tenant.jsonl"


@pytest.fixture(scope="module")
async def exported(shared: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a tenant with two users, beside another tenant's."""
    elsewhere, key = await shared.key("elsewhere"), await shared.key("two")
    await Life(shared.client, "stranger", elsewhere).lived()
    for user in ("ada", "bob"):
        await Life(shared.client, user, key).lived()
    return await written(shared, "two", tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
async def exported_after_erasures(shared: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a tenant that has ada and bob, and has erased eve, and bob once."""
    key = await shared.key("erasing")
    await shared.client.delete("/v1/users/eve", headers=key)
    for user in ("ada", "bob"):
        await Life(shared.client, user, key).lived()
    await shared.client.delete("/v1/users/bob", headers=key)
    await shared.client.post("/v1/memories", json={"user_id": "bob", "content": "back again"}, headers=key)
    return await written(shared, "erasing", tmp_path_factory.mktemp("erasing"))


@pytest.fixture
async def empty(tmp_path: Path, anyio_backend: str) -> Any:
    made = await open_store(Settings(data_dir=tmp_path / "other", _env_file=None), dim=384)
    yield made
    await made.close()


@pytest.fixture
def key(shared_settings: Settings) -> ErasureKey:
    return ErasureKey.of(shared_settings)


def last(file: Path) -> Any:
    return json.loads(file.read_text().splitlines()[-1])


async def test_a_round_trip_is_the_same(key: ErasureKey, exported: Path, empty: MovableStore, tmp_path: Path) -> None:
    text = exported.read_text()  # noqa: ASYNC240
    assert "ada likes water" in text
    assert "stranger" not in text
    assert "secret_sha256" not in text
    for tenant in (None, "renamed"):
        report = await archive.read_tenant(empty, exported, tenant, key)
        assert report.ok, report.bad[:3]
        assert report.found == last(exported)["hash"]
        assert report.new == last(exported)["records"]
        again = await archive.write(empty, tmp_path / f"again-{tenant}.jsonl", report.tenant)
        assert again.hash() == report.found
    assert all(finding.ok for finding in await empty.check(deep=True))


@EMBEDDED
async def test_what_was_imported_is_found_and_goes_on(
    key: ErasureKey, start: Starter, exported: Path, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path / "new", _env_file=None)
    store = await open_store(settings, dim=1)
    assert (await archive.read_tenant(store, exported, "default", key)).ok
    await store.close()
    async with start(settings) as made:
        assert "I am ada, good day" in await found(made.client, "who wished a good day?", user_id="ada", top_k=50)
        said = {"messages": [{"role": "user", "content": "more"}], "agent_id": "a", "user_id": "ada"}
        answer = await made.client.post("/v1/sessions/left-ada/messages", json=said)
        assert [message["seq"] for message in answer.json()["items"]] == [4], "counters came with it"


@EMBEDDED
async def test_an_import_that_was_cut_short_is_run_again(
    key: ErasureKey, exported: Path, empty: MovableStore, tmp_path: Path
) -> None:
    lines = exported.read_bytes().splitlines(keepends=True)  # noqa: ASYNC240
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:150]) + lines[150][:20])
    report = await archive.read_tenant(empty, cut, None, key)
    assert [number for number, _ in report.bad] == [151, 152]
    assert "missing" in report.bad[1][1]
    assert report.new == 149
    report = await archive.read_tenant(empty, exported, None, key)
    assert report.ok
    assert report.new == last(exported)["records"] - 149


@EMBEDDED
async def test_bad_lines_are_told_by_their_numbers_and_the_others_come_in(
    key: ErasureKey, exported: Path, empty: MovableStore, tmp_path: Path
) -> None:
    lines = exported.read_bytes().splitlines(keepends=True)  # noqa: ASYNC240
    named = (at for at, line in enumerate(lines) if json.loads(line).get("doc", {}).get("key") == "drink-ada")
    place = next(named)  # a second one of that name is refused
    whole = json.loads(lines[place])

    def spoiled(**changes: Any) -> bytes:
        return json.dumps(whole | changes).encode() + b"\n"

    faults = {
        5: b"{ not json\n",
        6: b"[1]\n",
        7: b'{"in": "api_keys", "doc": {}}\n',
        8: spoiled(doc=whole["doc"] | {"tenant_id": "elsewhere"}),
        9: spoiled(doc=whole["doc"] | {"memory_id": 3}),
        10: spoiled(doc=whole["doc"] | {"tags": "none", "memory_id": "mem_x"}),
        11: spoiled(row=["AAAA", None, "", ""]),
        12: spoiled(row=["é", None, "", ""]),
        13: spoiled(doc=whole["doc"] | {"memory_id": "mem_y"}),
        14: b'{"counter": "c", "value": -1}\n',
        15: spoiled(doc=None),
        16: b"\xff\xfe\n",
        17: b'{"in": {}, "doc": {}}\n',
    }
    file = tmp_path / "spoiled.jsonl"
    file.write_bytes(b"".join([*lines[: place + 1], *faults.values(), *lines[place + 1 :]]))
    report = await archive.read_tenant(empty, file, None, key)
    numbers = [number for number, _ in report.bad]
    assert numbers == list(range(place + 2, place + 2 + len(faults))), report.bad
    assert report.new == last(exported)["records"]
    assert report.found == last(exported)["hash"]
    assert not report.ok


@EMBEDDED
async def test_a_tenant_may_hold_other_data_and_a_record_that_had_changed_there_is_told(
    key: ErasureKey, exported: Path, shared: Service
) -> None:
    store: Any = shared.resources.store
    third = await shared.key("third")
    await shared.client.post("/v1/memories", json={"user_id": "u", "content": "tea"}, headers=third)
    report = await archive.read_tenant(store, exported, "third", key)
    assert report.ok, report
    listed = await shared.client.get("/v1/memories", headers=third)
    changed = next(one for one in listed.json()["items"] if one["user_id"] != "u")
    path = f"/v1/memories/{changed['memory_id']}"
    assert (await shared.client.patch(path, json={"importance": 0.123}, headers=third)).status_code == 200
    report = await archive.read_tenant(store, exported, "third", key)
    assert not report.ok
    assert report.bad == []
    with pytest.raises(archive.ArchiveRefused, match="some had changed there"):
        archive._explain(report)


@pytest.mark.parametrize("text", ["", "nonsense", "{}", '{"recalld":"tenant","format":1,"tenant":""}', "[]"])
async def test_what_is_no_export_is_refused(key: ErasureKey, empty: MovableStore, tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(archive.ArchiveRefused):
        await archive.read_tenant(empty, file, None, key)
    with pytest.raises(archive.ArchiveRefused, match="there already"):
        await archive.write(empty, file, "default")


async def test_tombstones_move_with_the_tenant_and_are_sealed_for_it(
    exported_after_erasures: Path, empty: MovableStore, key: ErasureKey
) -> None:
    for _ in range(2):
        report = await archive.read_tenant(empty, exported_after_erasures, "renamed", key)
        assert (report.ok, report.erased, report.tombstones_left) == (True, {}, 0), "bob had come back before"
    of_other = Tombstones(empty, "renamed", key)
    for user, known in (("eve", True), ("bob", True), ("ada", False)):
        assert (await of_other.find(user) is not None) == known


async def test_who_was_erased_from_the_target_stays_out(
    shared: Service, key: ErasureKey, exported_after_erasures: Path
) -> None:
    store: Any = shared.resources.store
    assert (await archive.read_tenant(store, exported_after_erasures, "target", key)).ok
    target = await shared.key("target")

    async def of_ada(query: str) -> list[str]:
        body = {"query": query, "user_id": "ada", "top_k": 50}
        answer = await shared.client.post("/v1/memories/search", json=body, headers=target)
        return [item["memory"]["content"] for item in answer.json()["items"]]

    assert "everybody's ada" in await of_ada("everybody")
    assert (await shared.client.delete("/v1/users/ada", headers=target)).status_code == 200
    report = await archive.read_tenant(store, exported_after_erasures, "target", key)
    assert (report.ok, report.bad, list(report.erased)) == (False, [], ["ada"])
    assert report.erased["ada"] > 50
    with pytest.raises(archive.ArchiveRefused, match=r"ada.*--restore-erased"):
        archive._explain(report)
    assert await of_ada("tea") == []
    report = await archive.read_tenant(store, exported_after_erasures, "target", key, restore_erased=True)
    assert report.erased == {}
    assert "everybody's ada" in await of_ada("everybody")


async def test_tombstones_of_another_erasure_key_are_left_out_and_told(
    exported_after_erasures: Path, empty: MovableStore, tmp_path: Path
) -> None:
    elsewhere = ErasureKey("another key of another machine, long enough", tmp_path)
    report = await archive.read_tenant(empty, exported_after_erasures, None, elsewhere)
    assert (report.ok, report.tombstones_left) == (True, 2)
    assert await empty.find(ERASED, None) == []
    assert await Tombstones(empty, "erasing", elsewhere).hashed("eve"), "the tenant may have a key of its own now"
    assert (await archive.read_tenant(empty, exported_after_erasures, None, elsewhere)).tombstones_left == 2
