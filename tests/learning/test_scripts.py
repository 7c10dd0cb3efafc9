"""Texts of all scripts through every job: nothing is skipped, and no run fails."""

import random
import sys
import unicodedata
from collections import defaultdict

import httpx
import pytest

from app.core.clock import rfc3339
from app.jobs.queue import DECAY, EXPIRY, JOBS, REVIEW_PROCEDURE
from app.memories.repository import pending_note
from app.memories.schemas import MEMORIES
from app.storage.schema import Eq
from app.storage.scope import SYSTEM
from tests.conftest import Service
from tests.learning.test_planted_records import ended, run
from tests.support.actions import act, log_all
from tests.support.learning import consolidate, end, kept, learned, operation, talk, work
from tests.support.memories import OWNER, Json, batch, eventually
from tests.support.model import Model
from tests.support.procedures import learn, report

pytestmark = pytest.mark.anyio
WORDS, WORD_CHARS = 5, 6


def script_of(character: str) -> str:
    """The first word of a character's name, which is that of its script for nearly all: `THAI`."""
    return unicodedata.name(character, "").partition(" ")[0]


def texts_of_all_scripts(seed: int) -> list[str]:
    """A text of each script, of letters, marks and digits in any order: marks also stand alone and come first."""
    of_script: dict[str, list[str]] = defaultdict(list)
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] in "LMN":
            of_script[script_of(chr(code))].append(chr(code))
    draw = random.Random(seed)
    return [
        " ".join("".join(draw.choices(characters, k=draw.randint(1, WORD_CHARS))) for _ in range(WORDS))
        for _, characters in sorted(of_script.items())
    ]


async def succeeded(service: Service) -> None:
    """Every operation has succeeded, and no job waits for another try."""
    page = (await service.client.get("/v1/operations", params={"limit": 100})).json()
    ends = {
        (item["kind"], item["status"], str(item["result"] and item["result"].get("skipped_records")))
        for item in page["items"]
    }
    assert {status for _, status, _ in ends} <= {"succeeded", "undone"}, ends
    assert await service.resources.store.count(JOBS, SYSTEM, Eq("status", "queued")) == 0


async def erase(service: Service) -> None:
    """Erases the user. What takes longer than the answer waits goes on as an operation."""
    erased = await service.client.delete("/v1/users/u")
    assert erased.status_code in (200, 202)

    async def done() -> bool:
        await work(service)
        status: str = (await operation(service, erased.json()["operation_id"]))["status"]
        assert status in ("queued", "running", "succeeded")
        return status == "succeeded"

    if erased.status_code == 202:
        await eventually(done)


async def test_texts_of_all_scripts_go_through_every_job(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    texts = texts_of_all_scripts(40)
    assert len(texts) > 150
    store, memory_ids = service.resources.store, list[str]()
    for at in range(0, len(texts), 50):
        made = await batch(api, *({"content": f"{text}{mark}"} for mark in ("", "!") for text in texts[at : at + 50]))
        memory_ids += [item["memory_id"] for item in made["items"]]
        await log_all(api, *(act(text, outcome="failure") for text in texts[at : at + 50]))
        facts = [
            {**OWNER, "subject": text[:60], "predicate": text[:60], "object": text} for text in texts[at : at + 50]
        ]
        for value in ("one", "two"):
            items = [{**fact, "object": f"{fact['object']} {value}"} for fact in facts]
            assert (await api.post("/v1/facts/batch", json={"items": items})).status_code == 201
    now = rfc3339(service.clock.now())
    await store.commit([pending_note(MEMORIES, "default", memory_id, now) for memory_id in memory_ids])

    def all_of(data: Json) -> Json:
        return {"memories": [learned(line["text"], line["seq"]) for line in data["conversation"][:50]]}

    llm.says["memories"] = all_of
    await talk(service, *texts[:100])
    await end(service)
    assert await kept(service, memory_type="preference") != []
    deleted = await api.delete("/v1/sessions/s/messages", params={})
    assert deleted.status_code == 200, deleted.text
    procedures = [await learn(api, {"name": text[:60], "trigger": text, "steps": [text]}) for text in texts[::20]]
    for procedure in procedures:
        await report(api, procedure, False, False, note=procedure["trigger"])
        await run(service, REVIEW_PROCEDURE, procedure_id=procedure["procedure_id"])
    await consolidate(service)
    assert await store.count(MEMORIES, "default", Eq("status", "superseded")) > 50
    for name in ("reflection", DECAY, EXPIRY):
        await ended(service, f"/v1/jobs/{name}/run")
    service.clock.move(days=500)
    for name in ("retention", "reflection"):
        await ended(service, f"/v1/jobs/{name}/run")
    asked: Json = {**OWNER, "policy": {"older_than_days": 100}, "dry_run": False}
    forgotten = await ended(service, "/v1/memories/forget", asked)
    for item in (await api.get("/v1/operations", params={"limit": 100})).json()["items"]:
        if item["can_undo"]:
            await ended(service, f"/v1/operations/{item['operation_id']}/undo")
    assert (await operation(service, forgotten["operation_id"]))["status"] == "undone"
    await work(service, minutes=10)
    await succeeded(service)
    await erase(service)
