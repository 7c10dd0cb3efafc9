"""`recalld export` and `import`: a tenant goes out and comes back the same, under any name, into any engine."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.audit.tombstones import ErasureKey, Tombstones
from app.audit.trail import ERASED
from app.cli import archive, archive_import
from app.lifespan import open_store
from app.settings import JobSettings, Settings
from app.storage.transfer import MovableStore, Record, Total
from tests.conftest import Service, Starter
from tests.support.lives import Life
from tests.support.memories import found

pytestmark = pytest.mark.anyio
EMBEDDED = pytest.mark.parametrize("engine", ["embedded"])


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    """Without background work: what is exported is what was said."""
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


@pytest.fixture
async def exported(service: Service, tmp_path: Path) -> Path:
    """Of a tenant with two users, beside another tenant's."""
    elsewhere, key = await service.key("elsewhere"), await service.key()
    await Life(service.client, "stranger", elsewhere).lived()
    for user in ("ada", "bob"):
        await Life(service.client, user, key).lived()
    file = tmp_path / "tenant.jsonl"
    store: Any = service.resources.store
    await archive.write(store, file, "default")
    return file


@pytest.fixture
async def empty(tmp_path: Path, anyio_backend: str) -> Any:
    made = await open_store(Settings(data_dir=tmp_path / "other", _env_file=None), dim=384)
    yield made
    await made.close()


@pytest.fixture
def key(settings: Settings) -> ErasureKey:
    return ErasureKey.of(settings)


def last(file: Path) -> Any:
    return json.loads(file.read_text().splitlines()[-1])


async def test_a_round_trip_is_the_same(key: ErasureKey, exported: Path, empty: MovableStore, tmp_path: Path) -> None:
    text = exported.read_text()  # noqa: ASYNC240
    assert "ada likes water" in text
    assert "stranger" not in text
    assert "secret_sha256" not in text
    for tenant in (None, "renamed"):
        report = await archive_import.read(empty, exported, tenant, key)
        assert report.ok, report.bad[:3]
        assert report.found == last(exported)["hash"]
        assert report.new == last(exported)["records"]
        again = await archive.write(empty, tmp_path / f"again-{tenant}.jsonl", report.tenant)
        assert again.hash() == report.found
    assert all(finding.ok for finding in await empty.check(deep=True))


@EMBEDDED
async def test_what_was_imported_is_found_and_goes_on(
    key: ErasureKey, start: Starter, exported: Path, tmp_path: Path, service: Service
) -> None:
    settings = Settings(data_dir=tmp_path / "new", _env_file=None)
    store = await open_store(settings, dim=1)
    assert (await archive_import.read(store, exported, None, key)).ok
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
    report = await archive_import.read(empty, cut, None, key)
    assert [number for number, _ in report.bad] == [151, 152]
    assert "missing" in report.bad[1][1]
    assert report.new == 149
    report = await archive_import.read(empty, exported, None, key)
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
    }
    file = tmp_path / "spoiled.jsonl"
    file.write_bytes(b"".join([*lines[: place + 1], *faults.values(), *lines[place + 1 :]]))
    report = await archive_import.read(empty, file, None, key)
    numbers = [number for number, _ in report.bad]
    assert numbers == list(range(place + 2, place + 2 + len(faults))), report.bad
    assert report.new == last(exported)["records"]
    assert report.found == last(exported)["hash"]
    assert not report.ok


@EMBEDDED
async def test_a_tenant_that_holds_other_data_is_told(key: ErasureKey, exported: Path, service: Service) -> None:
    store: Any = service.resources.store
    third = await service.key("third")
    await service.client.post("/v1/memories", json={"user_id": "u", "content": "tea"}, headers=third)
    report = await archive_import.read(store, exported, "third", key)
    assert not report.ok
    assert report.bad == []
    with pytest.raises(archive.ArchiveRefused, match="held other data"):
        archive_import._explain(report)


@pytest.mark.parametrize("text", ["", "nonsense", "{}", '{"recalld":"tenant","format":1,"tenant":""}', "[]"])
async def test_what_is_no_export_is_refused(key: ErasureKey, empty: MovableStore, tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(archive.ArchiveRefused):
        await archive_import.read(empty, file, None, key)
    with pytest.raises(archive.ArchiveRefused, match="there already"):
        await archive.write(empty, file, "default")


async def erased_beside(service: Service, file: Path) -> None:
    """An archive of a tenant that has ada and bob, and has erased eve, and bob once."""
    await service.client.delete("/v1/users/eve")
    for user in ("ada", "bob"):
        await Life(service.client, user).lived()
    await service.client.delete("/v1/users/bob")
    await service.client.post("/v1/memories", json={"user_id": "bob", "content": "back again"})
    store: Any = service.resources.store
    await archive.write(store, file, "default")


async def test_tombstones_move_with_the_tenant_and_are_sealed_for_it(
    service: Service, empty: MovableStore, key: ErasureKey, tmp_path: Path
) -> None:
    file = tmp_path / "tenant.jsonl"
    await erased_beside(service, file)
    for _ in range(2):
        report = await archive_import.read(empty, file, "renamed", key)
        assert (report.ok, report.erased, report.tombstones_left) == (True, {}, 0), "bob had come back before"
    of_other = Tombstones(empty, "renamed", key)
    for user, known in (("eve", True), ("bob", True), ("ada", False)):
        assert (await of_other.find(user) is not None) == known


async def test_who_was_erased_from_the_target_stays_out(
    start: Starter, service: Service, key: ErasureKey, tmp_path: Path
) -> None:
    file = tmp_path / "tenant.jsonl"
    await erased_beside(service, file)
    assert (await service.client.delete("/v1/users/ada")).status_code == 200
    store: Any = service.resources.store
    report = await archive_import.read(store, file, None, key)
    assert (report.ok, report.bad, list(report.erased)) == (False, [], ["ada"])
    assert report.erased["ada"] > 50
    with pytest.raises(archive.ArchiveRefused, match=r"ada.*--restore-erased"):
        archive_import._explain(report)
    assert await found(service.client, "tea", user_id="ada", top_k=50) == []
    report = await archive_import.read(store, file, None, key, restore_erased=True)
    assert report.erased == {}
    assert "everybody's ada" in await found(service.client, "everybody", user_id="ada", top_k=50)


async def test_tombstones_of_another_erasure_key_are_left_out_and_told(
    service: Service, empty: MovableStore, tmp_path: Path
) -> None:
    file = tmp_path / "tenant.jsonl"
    await erased_beside(service, file)
    elsewhere = ErasureKey("another key of another machine, long enough", tmp_path)
    report = await archive_import.read(empty, file, None, elsewhere)
    assert (report.ok, report.tombstones_left) == (True, 2)
    assert await empty.find(ERASED, None) == []
    assert await Tombstones(empty, "default", elsewhere).hashed("eve"), "the tenant may have a key of its own now"
    assert (await archive_import.read(empty, file, None, elsewhere)).tombstones_left == 2


async def test_an_archive_of_the_format_before_is_still_taken(
    service: Service, empty: MovableStore, key: ErasureKey, tmp_path: Path
) -> None:
    """It holds the tenant's key as it is, and its hash counts tombstones."""
    file, old = tmp_path / "tenant.jsonl", tmp_path / "old.jsonl"
    await erased_beside(service, file)
    store: Any = service.resources.store
    tenant_key = await Tombstones(store, "default", key)._key()
    assert tenant_key is not None
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[0]["format"] = 1
    plain = {"tenant_id": "default", "erased_id": "key", "key": tenant_key.hex(), "created_at": ""}
    summed = await archive.summed(store, "default")
    summed.totals[ERASED.name], summed.with_tombstones = Total(), True
    for line in lines:
        if line.get("in") == ERASED.name:
            line["doc"] = plain if line["doc"]["erased_id"] == "key" else line["doc"]
            summed.add(ERASED, Record(line["doc"], None, ""))
    lines[-1]["hash"] = summed.hash()
    spelled = [json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in lines]
    old.write_text("\n".join(spelled) + "\n")
    report = await archive_import.read(empty, old, None, key)
    assert (report.bad, report.found, report.tombstones_left) == ([], report.expected, 0)
    assert await Tombstones(empty, "default", key).find("eve") is not None
    assert tenant_key.hex() not in json.dumps(await empty.find(ERASED, None))
