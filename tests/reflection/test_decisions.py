"""What is decided of a contradiction is an operation, whose undo puts it in doubt again."""

from typing import Any

import httpx
import pytest

from app.settings import JobSettings, Settings
from tests.conftest import Service
from tests.support.facts import found as found_facts
from tests.support.facts import listed as listed_facts
from tests.support.facts import objects, spans, tell
from tests.support.findings import findings, found, memory
from tests.support.learning import operation, undo
from tests.support.memories import OWNER, Json, listed, problem, remember
from tests.support.memories import found as found_memories
from tests.support.profiles import profile, state

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


async def resolved(api: httpx.AsyncClient, record: Json, keep: str) -> Json:
    kind, name = ("facts", "fact_id") if "fact_id" in record else ("memories", "memory_id")
    answer = await api.post(f"/v1/{kind}/{record[name]}/resolve", json={"keep": keep})
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    return body


async def read(api: httpx.AsyncClient, memory_id: str) -> Json:
    body: Json = (await api.get(f"/v1/memories/{memory_id}")).json()
    return body


def stated(facts: list[Json]) -> list[tuple[Any, ...]]:
    """What facts say, without what a change of any kind counts up."""
    names = ("fact_id", "object", "status", "trust", "cardinality", "valid_from", "valid_until", "disputes")
    return sorted(tuple(str(fact[name]) for name in names) for fact in facts)


@pytest.mark.parametrize("keep", ["it", "other", "both"])
async def test_facts_are_in_dispute_again(service: Service, keep: str) -> None:
    api = service.client
    home = await tell(api, "New York", "2019-01-01")
    weak = await tell(api, "Boston", "2026-05-01", trust=0.4)
    before = await listed_facts(api, status="any", timeline=True)
    chosen = {"it": weak["fact_id"], "other": home["fact_id"], "both": "both"}[keep]
    for _ in range(2):
        kept = await resolved(api, weak, chosen)
        assert await objects(api, status="disputed") == []
        done = await operation(service, kept["operation_id"])
        assert (done["kind"], done["status"], done["can_undo"]) == ("resolve", "succeeded", True)
        assert (done["agent_id"], done["user_id"], done["result"]) == ("a", "u", {"kept": kept["fact_id"]})
        assert (await undo(service, kept["operation_id"]))["status"] == "succeeded"
        assert stated(await listed_facts(api, status="any", timeline=True)) == stated(before)
        assert await objects(api, status="disputed") == ["Boston"]
        assert await spans(api) == [("New York", "2019-01-01", None)]
        assert await found_facts(api, "Where does Ada live?") == ["New York"]
        problem(await api.post(f"/v1/operations/{kept['operation_id']}/undo"), 409, "conflict")


async def test_a_profile_has_its_value_back(service: Service) -> None:
    api = service.client
    await state(api, "lives_in", "London")
    weak = await state(api, "lives_in", "Mars", trust=0.4)
    kept = await resolved(api, weak, weak["fact_id"])
    decided = await profile(api)
    await undo(service, kept["operation_id"])
    after = await profile(api)
    assert (decided["home"], after["home"]) == ("Mars", "London")
    assert after["version"] > decided["version"]


@pytest.mark.parametrize("keep", ["it", "other", "both"])
async def test_memories_are_in_dispute_again(service: Service, keep: str) -> None:
    """The key goes back to the one that it was taken from."""
    api = service.client
    sure = await remember(api, "lives in Oslo", key="home", trust=0.9)
    weak = await remember(api, "lives in Rome", key="home", trust=0.6)
    chosen = {"it": weak["memory_id"], "other": sure["memory_id"], "both": "both"}[keep]
    kept = await resolved(api, weak, chosen)
    assert kept["memory_id"] == (sure if keep == "other" else weak)["memory_id"]
    assert await listed(api, status="disputed") == []
    assert (await undo(service, kept["operation_id"]))["status"] == "succeeded"
    after = [await read(api, one["memory_id"]) for one in (sure, weak)]
    names = ("status", "key", "trust", "contradicts", "supersedes", "superseded_by")
    assert [[one[name] for name in names] for one in after] == [[one[name] for name in names] for one in (sure, weak)]
    assert await found_memories(api, "Where does she live?") == ["lives in Oslo"]


async def test_what_was_changed_since_is_left_alone(service: Service) -> None:
    api = service.client
    await tell(api, "New York", "2019-01-01")
    weak = await tell(api, "Boston", "2026-05-01", trust=0.4)
    kept = await resolved(api, weak, weak["fact_id"])
    await tell(api, "Rome", "2026-05-20")
    undone = await undo(service, kept["operation_id"])
    assert (undone["status"], undone["result"]) == ("failed", {"restored": 0, "not_restored": 1})
    assert [span[0] for span in await spans(api)] == ["New York", "Boston", "Rome"]


async def test_a_dismissed_finding_is_open_again(service: Service) -> None:
    rome, oslo = await memory(service, "I live in Rome."), await memory(service, "I live in Oslo.")
    finding_id = await found(service, rome, oslo)
    dismissed = (await service.client.post(f"/v1/findings/{finding_id}/dismiss")).json()
    done = await operation(service, dismissed["operation_id"])
    assert (done["status"], done["result"]) == ("succeeded", {"dismissed": finding_id})
    assert (await undo(service, dismissed["operation_id"]))["status"] == "succeeded"
    (again,) = await findings(service)
    assert (again["finding_id"], again["status"], again["settled_at"]) == (finding_id, "open", None)


async def test_only_who_may_write_them_undoes_it(service: Service) -> None:
    mine, theirs = await service.key(users=["u"]), await service.key(users=["v"])
    reader = await service.key(users=["u"], verbs="read")
    weak_body = {**OWNER, "content": "two", "trust": 0.5}
    sure = (
        await service.client.post("/v1/memories", json={**OWNER, "content": "one", "trust": 0.9}, headers=mine)
    ).json()
    weak = (
        await service.client.post("/v1/memories", json={**weak_body, "supersedes": [sure["memory_id"]]}, headers=mine)
    ).json()
    path = f"/v1/memories/{weak['memory_id']}/resolve"
    kept = (await service.client.post(path, json={"keep": "both"}, headers=mine)).json()
    undoing = f"/v1/operations/{kept['operation_id']}/undo"
    problem(await service.client.post(undoing, headers=theirs), 404, "not_found")
    problem(await service.client.post(undoing, headers=reader), 403, "forbidden")
    assert (await service.client.post(undoing, headers=mine)).status_code == 202
