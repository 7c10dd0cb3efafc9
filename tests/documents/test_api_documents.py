"""Files over HTTP: what they become, and what is left of them."""

import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.requests import ClientDisconnect

from app.documents import jobs
from app.documents.jobs import DocumentJobs
from app.documents.schemas import MAX_BYTES, PARTS
from app.documents.service import DocumentService
from app.settings import JobSettings, SecretSettings, Settings
from app.storage.scope import Scope
from tests.conftest import Service, Starter, TestParts, running
from tests.support.documents import MANUAL, passages, pdf, read, send
from tests.support.learning import work
from tests.support.memories import recall, remember
from tests.support.operations import run

pytestmark = pytest.mark.anyio


async def parts_of(service: Service) -> int:
    return await service.resources.store.count(PARTS, "default")


async def test_a_file_becomes_passages_that_are_found_with_their_place(service: Service) -> None:
    operation, document = await read(service, MANUAL, metadata='{"topic": "ferns"}')
    assert operation["status"] == "succeeded"
    assert operation["result"] == {"document_id": document["document_id"], "passages": 3}
    assert (document["status"], document["passages"], document["version"]) == ("ready", 3, 1)
    hit = (await recall(service.client, "How often does a fern get water?"))["items"][0]["memory"]
    assert hit["content"] == "## Water\nWater a fern every other day."
    assert (hit["memory_type"], hit["context"]) == ("document", "fern.md › Fern care › Water")
    assert hit["metadata"] == {"topic": "ferns"}
    place = hit["source"]["document"]
    assert (place["document_id"], place["headings"]) == (document["document_id"], ["Fern care", "Water"])
    assert MANUAL[place["start"] : place["end"]] == hit["content"]
    assert await parts_of(service) == 0


async def test_the_upload_says_in_which_encoding_it_is(service: Service) -> None:
    latin = "Größe: drei Meter. Süße Äpfel.".encode("latin-1")
    _, document = await read(service, latin, 'text/plain; charset="ISO-8859-1"', name="a.txt")
    assert (document["status"], document["media_type"], "charset" in document) == ("ready", "text/plain", False)
    assert [item["content"] for item in await passages(service.client)] == [latin.decode("latin-1")]
    _, document = await read(service, latin, "text/plain", name="a.txt")
    assert document["status"] == "failed"
    for name in ("hex", "none-such"):
        headers = {"Content-Type": f"text/plain; charset={name}"}
        refused = await service.client.post("/v1/documents?user_id=u&name=a.txt", content=latin, headers=headers)
        assert (refused.status_code, name in refused.json()["detail"]) == (415, True)


async def test_a_pdf_is_cited_by_its_page(service: Service) -> None:
    _, document = await read(service, pdf("Cut it.", "", "Water the fern daily."), "application/pdf", name="fern.pdf")
    assert (document["pages"], document["empty_pages"], document["passages"]) == (3, 1, 2)
    asked = {"agent_id": "a", "user_id": "u", "query": "When do I water the fern?"}
    prompt = (await service.client.post("/v1/context", json=asked)).json()["text"]
    assert "Water the fern daily. (fern.pdf, p. 3)" in prompt


async def test_the_next_version_keeps_the_passages_that_are_in_it(service: Service) -> None:
    await read(service, MANUAL)
    before = {item["content"]: item["memory_id"] for item in await passages(service.client)}
    changed = MANUAL.replace("every other day", "twice a week").replace("# Fern care", "# Ferns", 1)
    _, document = await read(service, changed)
    after = {item["content"]: item["memory_id"] for item in await passages(service.client)}
    assert document["version"] == 2
    soil = "## Soil\nUse peat with a little bark."
    assert after[soil] == before[soil]
    assert "## Water\nWater a fern twice a week." in after
    assert len(after) == 3
    moved = next(item for item in await passages(service.client) if item["content"] == soil)
    assert moved["context"] == "fern.md › Ferns › Soil"
    assert changed[moved["source"]["document"]["start"] :].startswith(soil)


async def test_a_file_that_cannot_be_read_says_why_and_leaves_the_version_before(service: Service) -> None:
    await read(service, MANUAL)
    operation, document = await read(service, pdf("", ""), "application/pdf")
    assert operation["status"] == "failed"
    assert "no text" in operation["error"]
    assert (document["status"], document["error"]) == ("failed", operation["error"])
    assert len(await passages(service.client)) == 3
    assert await parts_of(service) == 0


@pytest.mark.parametrize("broken", [b"%PDF-1.4 nothing", b"\x00\x01\x02"])
async def test_what_is_no_pdf_is_said(service: Service, broken: bytes) -> None:
    operation, _ = await read(service, broken, "application/pdf")
    assert (operation["status"], operation["error"].split(":")[0]) == (
        "failed",
        "The file cannot be read as application/pdf",
    )


async def test_a_process_that_takes_too_long_is_ended(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.documents.jobs.SECONDS", 0.0)
    operation, document = await read(service, MANUAL)
    assert operation["error"] == "The file takes more than 0 seconds to read."
    assert document["status"] == "failed"


def test_no_python_of_the_service_runs_in_the_process_that_reads_a_file(
    settings: Settings, parts: TestParts, tmp_path: Path
) -> None:
    """uvloop forks: in its child, connections of other threads are closed, and a lock of theirs held it for ever."""
    forked = tmp_path / "forked"

    def note() -> None:
        if tmp_path.exists():  # it stays registered for tests that fork later
            forked.touch()

    async def read_one() -> Any:
        async with running(settings, parts) as service:
            return (await read(service, MANUAL))[1]["status"]

    os.register_at_fork(after_in_child=note)
    assert (uvloop.run(read_one()), forked.exists()) == ("ready", False)


async def test_a_service_that_is_killed_leaves_no_text_of_a_file_behind(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "temporary").mkdir()
    python = tmp_path / "python"  # lists what lies there while a file is read
    python.write_text(f'#!/bin/sh\nls -A "{folder}" > "{tmp_path}/seen"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(sys, "executable", str(python))
    _, document = await read(service, MANUAL)
    assert (document["status"], (tmp_path / "seen").read_text()) == ("ready", "")


@pytest.mark.parametrize("policy", ["flag", "redact", "block"])
async def test_secrets_in_a_file_are_handled_as_in_a_request(settings: Settings, start: Starter, policy: str) -> None:
    asked = settings.model_copy(update={"secrets": SecretSettings(policy=policy)})  # type: ignore[arg-type]
    async with start(asked) as service:
        operation, document = await read(service, "Pay with 4242 4242 4242 4242 in the shop.")
        texts = [item["content"] for item in await passages(service.client)]
    if policy == "block":
        assert operation["error"] == "The file holds a secret (card): it is refused."
        assert texts == []
    else:
        assert document["secrets"] == 1
        shown = "[secret: card]" if policy == "redact" else "4242 4242 4242 4242"
        assert texts == [f"Pay with {shown} in the shop."]


@pytest.mark.parametrize("policy", ["redact", "block"])
async def test_what_is_private_or_a_key_may_go_on_in_the_next_passage(
    settings: Settings, start: Starter, policy: str
) -> None:
    asked = settings.model_copy(update={"secrets": SecretSettings(policy=policy)})  # type: ignore[arg-type]
    lines = "\n\n".join(f"I am afraid of heights, line {n}." for n in range(80))
    key = "\n".join(
        ["-----BEGIN RSA PRIVATE KEY-----", *["MIIEpAIBAAKCAQEA" * 4] * 25, "-----END RSA PRIVATE KEY-----"]
    )
    async with start(asked) as service:
        _, document = await read(service, f"Before.\n\n<private>{lines}</private>\n\nBehind.")
        assert "".join(item["content"] for item in await passages(service.client)).split() == ["Before.", "Behind."]
        assert (document["status"], document["secrets"]) == ("ready", 1)
        operation, document = await read(service, f"Before.\n\n{key}\n\nBehind.", name="key.md")
        if policy == "block":
            assert "private_key" in operation["error"]
        else:
            texts = [item["content"] for item in await passages(service.client) if "key.md" in item["context"]]
            assert not any("MII" in text for text in texts)


@pytest.mark.parametrize("policy", ["flag", "redact", "block"])
async def test_secrets_in_the_metadata_are_handled_as_in_a_body(
    settings: Settings, start: Starter, policy: str
) -> None:
    asked = settings.model_copy(update={"secrets": SecretSettings(policy=policy)})  # type: ignore[arg-type]
    async with start(asked) as service:
        sent = await send(
            service.client,
            MANUAL,
            metadata='{"note": "4242 4242 4242 4242"}',
            expect=422 if policy == "block" else 202,
        )
        if policy == "block":
            assert sent["errors"][0]["pointer"] == "/metadata/note"
            assert await parts_of(service) == 0
            return
        (warning,) = sent["warnings"]
        assert (warning["kind"], warning["pointer"]) == ("card", "/metadata/note")
        document = (await service.client.get(f"/v1/documents/{sent['document_id']}")).json()
        assert document["bytes"] == len(MANUAL)
        assert ("4242" in document["metadata"]["note"]) is (policy == "flag")


async def test_the_same_request_sent_again_is_one_version(service: Service) -> None:
    headers = {"idempotency-key": "one", "content-type": "text/plain"}
    asked = {"name": "x", "user_id": "u"}
    first, again = [
        await service.client.post("/v1/documents", params=asked, content=b"Hello.", headers=headers) for _ in range(2)
    ]
    assert first.json() == again.json()
    assert await parts_of(service) == 1
    other = await service.client.post("/v1/documents", params=asked, content=b"Bye.", headers=headers)
    assert other.json()["code"] == "idempotency_mismatch"
    assert await parts_of(service) == 1


async def test_what_is_sent_wrongly_is_named_and_nothing_is_left(service: Service) -> None:
    api = service.client
    assert "image/png" in (await send(api, b"x", "image/png", expect=415))["detail"]
    unnamed = (await send(api, b"x", "application/octet-stream", expect=415, name="manual"))["detail"]
    assert "application/octet-stream; or give `name` an ending: .md" in unnamed
    assert (await send(api, b"", expect=422))["detail"].endswith("it is empty")
    assert (await send(api, b"x" * (MAX_BYTES + 1), expect=413))["code"] == "too_large"
    nobody = await api.post("/v1/documents", params={"name": "x"}, content=b"x", headers={"content-type": "text/plain"})
    assert nobody.json()["errors"][0]["pointer"] == "/query/user_id"
    assert (await send(api, b"x", expect=422, metadata="[1]"))["errors"][0]["pointer"] == "/query/metadata"
    assert (await send(api, b"x", expect=422, name=""))["errors"][0]["pointer"] == "/query/name"
    assert await parts_of(service) == 0
    assert (await api.get("/v1/documents")).json()["items"] == []


async def test_an_upload_that_breaks_off_leaves_nothing(service: Service) -> None:
    held = service.resources

    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * (1 << 20)
        assert await parts_of(service) == 1
        raise ClientDisconnect

    with pytest.raises(ClientDisconnect):
        await DocumentService(held.store, Scope("default"), held.clock).receive(None, "u", "text/plain", broken())
    assert await parts_of(service) == 0


async def test_a_newer_file_ends_the_reading_of_the_one_before(settings: Settings, start: Starter) -> None:
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        await _replaced_before_it_was_read(service)


async def _replaced_before_it_was_read(service: Service) -> None:
    first = await send(service.client, "Old text.")
    second = await send(service.client, "New text.")
    await work(service)
    assert first["document_id"] == second["document_id"]
    assert [item["content"] for item in await passages(service.client)] == ["New text."]
    ended = (await service.client.get(f"/v1/operations/{first['operation_id']}")).json()
    assert "replaced" in ended["error"]
    assert await parts_of(service) == 0


async def test_a_document_is_deleted_with_its_passages(service: Service) -> None:
    _, document = await read(service, MANUAL)
    await read(service, "Other.", name="other.md")
    assert (await service.client.delete(f"/v1/documents/{document['document_id']}")).status_code == 204
    assert [item["content"] for item in await passages(service.client)] == ["Other."]
    assert (await service.client.get(f"/v1/documents/{document['document_id']}")).status_code == 404


async def test_only_the_document_changes_its_passages(service: Service) -> None:
    await read(service, MANUAL)
    api, passage = service.client, (await passages(service.client))[0]
    path = f"/v1/memories/{passage['memory_id']}"
    assert (await api.patch(path, json={"content": "Other."})).status_code == 409
    assert (await api.delete(path)).status_code == 409
    made = await api.post("/v1/memories", json={"user_id": "u", "content": "x", "memory_type": "document"})
    assert (made.status_code, made.json()["errors"][0]["pointer"]) == (422, "/memory_type")
    assert (await api.delete("/v1/memories", params={"user_id": "u"})).json()["deleted"] == 0
    assert await passages(api) == await passages(api)
    assert (await api.get(path)).json() == passage


async def test_passages_neither_fade_nor_stand_in_the_way_of_what_people_say(service: Service) -> None:
    await read(service, "Water a fern every other day.")
    said = await remember(service.client, "Water a fern every other day.", agent_id=None)
    assert said["similar"] == []
    service.clock.move(days=400)
    for name in ("decay", "consolidation", "retention"):
        await run(service, name)
    (passage,) = await passages(service.client)
    assert (passage["importance"], passage["status"]) == (0.5, "active")


async def test_a_manual_takes_half_of_a_prompt_at_most(service: Service) -> None:
    manual = "\n\n".join(
        f"## Part {n}\nWater the fern in part {n} every {n} days and look at its {n} leaves." for n in range(60)
    )
    await read(service, manual)
    await remember(service.client, "I water my fern on Mondays", agent_id=None)
    asked = {"agent_id": "a", "user_id": "u", "query": "When do I water the fern?", "token_budget": 600, "fill": True}
    answer = (await service.client.post("/v1/context", json=asked)).json()
    items = [item for section in answer["sections"] for item in section["items"]]
    assert sum(item["tokens"] for item in items if item["type"] == "document") <= 300
    assert "I water my fern on Mondays" in answer["text"]


async def test_a_manual_takes_nothing_of_the_little_that_was_said_out_of_a_prompt(service: Service) -> None:
    """A store as small as this is given whole, and a file of 60 passages is none of what was said."""
    await read(service, "\n\n".join(f"## Part {n}\nBolt {n} of the pump is turned by {n} degrees." for n in range(60)))
    said = ("Is allergic to peanuts", "Likes green tea", "Has a dog called Rex")
    for text in said:
        await remember(service.client, text, agent_id=None)
    for query in ("Suggest a birthday cake for Boston.", "thanks!", "How far is bolt 12 turned?"):
        asked = {"agent_id": "a", "user_id": "u", "query": query, "token_budget": 800}
        answer = (await service.client.post("/v1/context", json=asked)).json()
        assert all(text in answer["text"] for text in said), query
        items = [item for section in answer["sections"] for item in section["items"]]
        assert any(item["type"] == "document" for item in items) == (query[:3] == "How"), query


async def test_others_see_no_document_and_no_passage(service: Service) -> None:
    _, document = await read(service, MANUAL)
    stranger, bound = await service.key("other"), await service.key(users=["v"])
    own = await service.key()
    for headers in (stranger, bound):
        got = await service.client.get(f"/v1/documents/{document['document_id']}", headers=headers)
        assert got.status_code == 404
        assert (await service.client.get("/v1/documents", headers=headers)).json()["items"] == []
        gone = await service.client.delete(f"/v1/documents/{document['document_id']}", headers=headers)
        assert gone.status_code == 404
    answer = await service.client.post(
        "/v1/documents",
        params={"name": "x", "user_id": "u"},
        content=b"x",
        headers={"content-type": "text/plain", **bound},
    )
    assert answer.status_code == 403
    assert len((await service.client.get("/v1/documents", headers=own)).json()["items"]) == 1


async def test_the_user_is_erased_and_exported_with_documents(service: Service) -> None:
    _, document = await read(service, MANUAL)
    lines = (await service.client.get("/v1/users/u/export")).text
    assert document["document_id"] in lines
    assert "Water a fern every other day." in lines
    await service.client.delete("/v1/users/u")
    await work(service)
    assert (await service.client.get("/v1/documents")).json()["items"] == []


async def test_a_run_that_is_interrupted_goes_on_where_it_stopped(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "AT_ONCE", 1)
    stop = iter([None, None, ValueError("the process is gone")])
    commit = DocumentJobs._commit

    async def failing(*args: object) -> None:
        if (error := next(stop, None)) is not None:
            raise error
        await commit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(DocumentJobs, "_commit", failing)
    sent = await send(service.client, MANUAL)
    await work(service)
    ids = {item["memory_id"] for item in await passages(service.client)}
    assert len(ids) == 2
    service.clock.move(minutes=5)
    await work(service)
    after = {item["memory_id"] for item in await passages(service.client)}
    assert ids < after
    assert len(after) == 3
    assert (await service.client.get(f"/v1/documents/{sent['document_id']}")).json()["status"] == "ready"
