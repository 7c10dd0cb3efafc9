"""`recalld export` and `import`: a tenant goes out and comes back the same, under any name, into any engine."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.cli import archive, importing
from app.settings import JobSettings, Settings
from app.storage.transfer import MovableStore
from app.wiring import open_store
from tests.conftest import Service, Starter
from tests.forgetting.lives import Life
from tests.memories.helpers import found

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


def last(file: Path) -> Any:
    return json.loads(file.read_text().splitlines()[-1])


async def test_a_round_trip_is_the_same(exported: Path, empty: MovableStore, tmp_path: Path) -> None:
    text = exported.read_text()  # noqa: ASYNC240
    assert "ada likes water" in text
    assert "stranger" not in text
    assert "secret_sha256" not in text
    for tenant in (None, "renamed"):
        report = await importing.read(empty, exported, tenant)
        assert report.ok, report.bad[:3]
        assert report.found == last(exported)["hash"]
        assert report.new == last(exported)["records"]
        again = await archive.write(empty, tmp_path / f"again-{tenant}.jsonl", report.tenant)
        assert again.hash() == report.found
    assert all(finding.ok for finding in await empty.check(deep=True))


@EMBEDDED
async def test_what_was_imported_is_found_and_goes_on(
    start: Starter, exported: Path, tmp_path: Path, service: Service
) -> None:
    settings = Settings(data_dir=tmp_path / "new", _env_file=None)
    store = await open_store(settings, dim=1)
    assert (await importing.read(store, exported)).ok
    await store.close()
    async with start(settings) as made:
        assert "I am ada, good day" in await found(made.client, "who wished a good day?", user_id="ada", top_k=50)
        said = {"messages": [{"role": "user", "content": "more"}], "agent_id": "a", "user_id": "ada"}
        answer = await made.client.post("/v1/sessions/left-ada/messages", json=said)
        assert [message["seq"] for message in answer.json()["items"]] == [4], "counters came with it"


@EMBEDDED
async def test_an_import_that_was_cut_short_is_run_again(exported: Path, empty: MovableStore, tmp_path: Path) -> None:
    lines = exported.read_bytes().splitlines(keepends=True)  # noqa: ASYNC240
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[:150]) + lines[150][:20])
    report = await importing.read(empty, cut)
    assert [number for number, _ in report.bad] == [151, 152]
    assert "missing" in report.bad[1][1]
    assert report.new == 149
    report = await importing.read(empty, exported)
    assert report.ok
    assert report.new == last(exported)["records"] - 149


@EMBEDDED
async def test_bad_lines_are_told_by_their_numbers_and_the_others_come_in(
    exported: Path, empty: MovableStore, tmp_path: Path
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
    report = await importing.read(empty, file)
    numbers = [number for number, _ in report.bad]
    assert numbers == list(range(place + 2, place + 2 + len(faults))), report.bad
    assert report.new == last(exported)["records"]
    assert report.found == last(exported)["hash"]
    assert not report.ok


@EMBEDDED
async def test_a_tenant_that_holds_other_data_is_told(exported: Path, service: Service) -> None:
    store: Any = service.resources.store
    key = await service.key("third")
    await service.client.post("/v1/memories", json={"user_id": "u", "content": "tea"}, headers=key)
    report = await importing.read(store, exported, "third")
    assert not report.ok
    assert report.bad == []
    with pytest.raises(archive.ArchiveRefused, match="held other data"):
        importing._explain(report)


@pytest.mark.parametrize("text", ["", "nonsense", "{}", '{"recalld":"tenant","format":1,"tenant":""}', "[]"])
async def test_what_is_no_export_is_refused(empty: MovableStore, tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(archive.ArchiveRefused):
        await importing.read(empty, file)
    with pytest.raises(archive.ArchiveRefused, match="there already"):
        await archive.write(empty, file, "default")
