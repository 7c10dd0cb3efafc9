"""What was done becomes facts and procedures, by a model that says what it is told and by rules."""

from typing import Any

import httpx
import pytest

from app.actions.schemas import ACTIONS
from app.learning.derivations import DERIVATIONS
from app.lifespan import job_runner
from app.storage.schema import EVERYTHING, Absent
from tests.conftest import Service
from tests.support.actions import act, log, log_all
from tests.support.learning import consolidate, operation, undo, work
from tests.support.memories import OWNER, Json, remember
from tests.support.model import Model
from tests.support.procedures import learn
from tests.support.scripted import Reply

pytestmark = pytest.mark.anyio

USES: Json = {"subject": "shop", "predicate": "uses", "cardinality": "one"}


def fact(object: str, *numbers: int, **more: Any) -> Json:
    """A fact as the model says it."""
    return {**USES, "object": object, "valid_from": None, "episode_numbers": list(numbers), **more}


def way(name: str, *numbers: int, **more: Any) -> Json:
    """A procedure as the model says it."""
    told: Json = {"trigger": "A release is due", "preconditions": [], "steps": ["Test", "Deploy"], "notes": []}
    return {"procedure_id": None, "name": name, **told, "episode_numbers": list(numbers), **more}


async def done(api: httpx.AsyncClient) -> list[str]:
    made = await log_all(
        api,
        act("Ran the tests of the shop on PostgreSQL 16", outcome="success", action={"tool": "ci", "duration_ms": 9}),
        act("Deployed the shop", outcome="success", entities=["shop"]),
        act("Deployed without the tests, and had to roll back", outcome="failure", feedback={"correction": "Test!"}),
    )
    return [action["action_id"] for action in made]


async def ways(api: httpx.AsyncClient, **params: Any) -> list[Json]:
    items: list[Json] = (await api.get("/v1/procedures", params={**OWNER, **params})).json()["items"]
    return items


async def facts(api: httpx.AsyncClient) -> list[Json]:
    items: list[Json] = (await api.get("/v1/facts", params=OWNER)).json()["items"]
    return items


async def test_facts_and_procedures_with_their_sources(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    first, second, third = await done(api)
    llm.says["FoundFacts"] = {
        "facts": [
            fact("PostgreSQL 16", 1),
            fact("magic", 9),
            fact("MySQL", 1),
        ]
    }
    note = "Without tests it had to be rolled back"
    llm.says["FoundProcedures"] = {"procedures": [way("Release", 1, 2, 3, notes=[note]), way("Roll back", 3)]}
    over = await consolidate(service)
    assert (over["status"], over["error"]) == ("succeeded", None)
    parts = over["result"]["parts"]
    assert (over["result"]["episodes"], over["result"]["waiting"]) == (3, 0)
    assert parts["facts"]["dropped"] == {"not_quoted": 1, "not_said": 1}
    assert parts["procedures"]["dropped"] == {"not_of_this_part": 1}
    (known,) = await facts(api)
    assert (known["object"], known["trust"], known["valid_from"]) == ("PostgreSQL 16", 1.0, known["valid_from"])
    assert (known["source"]["origin"], known["source"]["action_ids"]) == ("consolidation", [first])
    assert known["source"]["prompt_version"] == "episode_facts.2"
    (learned,) = await ways(api)
    assert (learned["name"], learned["steps"], learned["notes"]) == ("Release", ["Test", "Deploy"], [note])
    assert (learned["source"]["origin"], learned["source"]["action_ids"]) == ("consolidation", [first, second, third])
    found = await api.post("/v1/procedures/search", json={**OWNER, "situation": "A release is due"})
    assert found.json()["items"][0]["procedure"]["procedure_id"] == learned["procedure_id"]
    (shown,) = llm.shown("FoundFacts")
    assert shown["user_name"] == "u"
    assert shown["episodes"][2] | {"at": ""} == {
        "number": 3,
        "at": "",
        "event_type": "tool_call",
        "action_type": "work",
        "actor": "agent",
        "outcome": "failure",
        "entities": [],
        "tool": None,
        "content": "Deployed without the tests, and had to roll back",
        "feedback": {"correction": "Test!"},
    }


@pytest.mark.parametrize("given", ["1987-03-04T00:00:00Z", "soon"])
async def test_a_time_that_no_log_says_is_that_of_the_log(
    service: Service, llm: Model, api: httpx.AsyncClient, given: str
) -> None:
    (log_of,) = await log_all(api, act("The shop runs on PostgreSQL 16 since 3 March", outcome="success"))
    llm.says["FoundFacts"] = {"facts": [fact("PostgreSQL 16", 1, valid_from=given)]}
    over = await consolidate(service)
    (known,) = await facts(api)
    assert known["valid_from"] == log_of["timestamp"]
    assert over["result"]["parts"]["facts"]["dropped"] == {"not_said": 1}


async def test_a_time_that_a_log_says_is_kept(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await log_all(api, act("The shop runs on PostgreSQL 16 since 3 March 2025", outcome="success"))
    llm.says["FoundFacts"] = {"facts": [fact("PostgreSQL 16", 1, valid_from="2025-03-03T00:00:00Z")]}
    await consolidate(service)
    (known,) = await facts(api)
    assert known["valid_from"] == "2025-03-03T00:00:00.000Z"


async def test_the_same_episodes_are_learned_from_once(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await done(api)
    llm.says["FoundFacts"] = {"facts": [fact("PostgreSQL 16", 1)]}
    await consolidate(service)
    asked = len(llm.asked)
    again = await consolidate(service)
    assert (again["status"], again["can_undo"], again["result"]["episodes"]) == ("succeeded", False, 0)
    assert len(llm.asked) == asked
    await log(api, "Deployed again", outcome="success")
    assert (await consolidate(service))["result"]["episodes"] == 1
    assert [len(shown["episodes"]) for shown in llm.shown("FoundFacts")] == [3, 1]
    assert (await api.get("/v1/actions", params=OWNER)).json()["items"][0].keys() == (await log(api, "x")).keys()


async def test_an_undo_restores_facts_and_procedures_exactly(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    since = "2026-01-01T00:00:00Z"
    told = await api.post("/v1/facts", json={**OWNER, **USES, "object": "MySQL", "valid_from": since})
    await learn(api, name="Release", steps=["Deploy"])
    before = await facts(api), await ways(api)
    await done(api)
    llm.says["FoundFacts"] = {
        "facts": [fact("PostgreSQL", 1), fact("PostgreSQL 16", 1), fact("ci", 1, predicate="has")]
    }
    llm.says["FoundProcedures"] = {"procedures": [way("release", 1, notes=["Test first"]), way("Ship", 2)]}
    over = await consolidate(service)
    assert over["result"]["parts"]["procedures"]["dropped"] == {"known": 1}, "a caller's steps stay"
    assert [procedure["notes"] for procedure in await ways(api, order="asc")] == [["Test first"], []]
    assert sorted(one["object"] for one in await facts(api)) == ["PostgreSQL 16", "ci"]
    undone = await undo(service, over["operation_id"])
    assert undone["result"] == {"restored": 2, "not_restored": 0}
    after = await facts(api), await ways(api)
    assert [same(one) for one in after[0] + after[1]] == [same(one) for one in before[0] + before[1]]
    history = (await api.get(f"/v1/facts/{told.json()['fact_id']}/history")).json()["items"]
    assert [(one["object"], one["valid_until"], one["known_until"]) for one in history] == [("MySQL", None, None)]
    assert (await consolidate(service))["result"]["episodes"] == 0, "what was undone is not learned again"
    assert (await api.post("/v1/facts", json={**OWNER, **USES, "object": "MariaDB"})).status_code == 201


def same(record: Json) -> Json:
    return record | {"version": 0, "updated_at": ""}


async def test_what_was_used_or_changed_since_stays(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await done(api)
    llm.says["FoundFacts"] = {"facts": [fact("PostgreSQL 16", 1)]}
    llm.says["FoundProcedures"] = {"procedures": [way("Release", 1)]}
    over = await consolidate(service)
    (learned,) = await ways(api)
    await api.post(f"/v1/procedures/{learned['procedure_id']}/outcomes", json={"success": True})
    undone = await undo(service, over["operation_id"])
    assert (undone["status"], undone["result"]) == ("partial", {"restored": 1, "not_restored": 1})
    assert (await facts(api), [one["success_count"] for one in await ways(api)]) == ([], [1])


async def test_a_derived_procedure_is_refined_by_what_worked(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await done(api)
    llm.says["FoundProcedures"] = {"procedures": [way("Release", 1)]}
    await consolidate(service)
    (made,) = await ways(api)
    await log(api, "Deployed after a backup", outcome="success")
    better = ["Back up", "Test", "Deploy"]
    llm.says["FoundProcedures"] = lambda shown: {
        "procedures": [
            way("Another name", 1, procedure_id=shown["known_procedures"][0]["procedure_id"], steps=better),
            way("Invented", 1, procedure_id="proc_none"),
        ]
    }
    over = await consolidate(service)
    assert over["result"]["parts"]["procedures"] == {
        "status": "done",
        "procedure_ids": [(await ways(api))[0]["procedure_id"]],
        "refined_ids": [made["procedure_id"]],
        "dropped": {"known": 1},
    }
    refined = (await api.get(f"/v1/procedures/{made['procedure_id']}")).json()
    assert (refined["name"], refined["steps"]) == ("Release", better)
    assert (await undo(service, over["operation_id"]))["result"] == {"restored": 1, "not_restored": 0}
    assert [(one["name"], one["steps"]) for one in await ways(api)] == [("Release", ["Test", "Deploy"])]


async def test_what_was_served_is_not_learned_again(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await remember(api, "Ada lives in Boston.")
    served = (await api.post("/v1/context", json={**OWNER, "query": "Where does she live?"})).json()["text"]
    assert "Boston" in served
    await log(api, f"{served}\nAnswered her.", outcome="success")
    llm.says["FoundFacts"] = {"facts": [fact(served, 1), fact("answered", 1)]}
    over = await consolidate(service)
    for shape in ("FoundFacts", "FoundProcedures"):
        (shown,) = llm.shown(shape)
        assert [episode["content"] for episode in shown["episodes"]] == ["Answered her."], shape
    assert over["result"]["parts"]["facts"]["dropped"] == {"not_said": 1}
    assert [known["object"] for known in await facts(api)] == ["answered"]


async def test_every_twenty_episodes_of_a_pair(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await log_all(api, *(act(f"step {number}") for number in range(19)))
    await log(api, "another user's", user_id="v")
    assert await work(service) == 0
    await log(api, "step 19")
    assert await work(service) == 1
    (begun,) = (await api.get("/v1/operations")).json()["items"]
    assert (begun["kind"], begun["user_id"], begun["result"]["episodes"]) == ("consolidation", "u", 20)
    await log(api, "step 20")
    assert await work(service) == 0


async def test_a_bound_key_learns_within_its_bounds(service: Service, llm: Model) -> None:
    bound = await service.key(agents=["a"], users=["u"])
    items = [act(f"step {number}", outcome="success") for number in range(20)]
    assert (await service.client.post("/v1/actions/batch", json={"items": items}, headers=bound)).status_code == 201
    llm.says["FoundFacts"] = {"facts": [fact("step 0", 1)]}
    assert await work(service) == 1
    (begun,) = (await service.client.get("/v1/operations", headers=bound)).json()["items"]
    assert begun["status"] == "succeeded"
    (known,) = (await service.client.get("/v1/facts", params=OWNER, headers=bound)).json()["items"]
    assert known["object"] == "step 0"


async def test_the_clock_brings_what_is_left(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await done(api)
    held = service.resources
    on = held.settings.model_copy(update={"jobs": type(held.settings.jobs)()})
    await job_runner(on, held.store, held.embedder, held.clock, held.llm)._schedules.tick()
    await work(service)
    (begun,) = (await api.get("/v1/operations")).json()["items"]
    assert (begun["status"], begun["result"]["episodes"]) == ("succeeded", 3)


async def test_many_episodes_are_read_in_batches(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await log_all(api, *(act(f"{number} " + "word " * 320) for number in range(21)))
    assert await work(service) == 1
    (over,) = (await api.get("/v1/operations")).json()["items"]
    assert over["result"]["episodes"] == 21
    sizes = [len(shown["episodes"]) for shown in llm.shown("FoundFacts")]
    assert (sum(sizes), len(sizes) > 1) == (21, True)
    assert over["result"]["llm"]["calls"] == llm.calls == len(sizes)


async def test_without_a_model_it_is_said_what_was_left_out(service: Service, api: httpx.AsyncClient) -> None:
    await done(api)
    object.__setattr__(service.resources, "llm", None)
    over = await consolidate(service)
    assert (over["status"], over["can_undo"], over["result"]["waiting"]) == ("succeeded", False, 3)
    reason = {"status": "skipped", "reason": "no language model is configured"}
    assert over["result"]["parts"] == dict.fromkeys(("facts", "procedures", "experience"), reason)
    dry = await consolidate(service, dry_run=True)
    assert (dry["status"], dry["result"]["waiting"]) == ("succeeded", 3)


async def test_a_part_that_fails_is_tried_again_and_loses_no_episode(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await done(api)
    for told in ("Likes tea", "likes tea."):
        await remember(api, told)
    llm.says["FoundFacts"] = {"facts": [fact("PostgreSQL 16", 1)]}
    llm.says["FoundProcedures"] = {"procedures": [{"name": 1}]}
    answer = await api.post("/v1/jobs/consolidation/run", json={})
    await work(service)
    waiting = await operation(service, answer.json()["operation_id"])
    assert waiting["status"] == "queued"
    assert "procedures: The model's answer cannot be used" in waiting["error"]
    llm.says["FoundProcedures"] = {"procedures": [way("Release", 1)]}
    asked = len(llm.asked)
    await work(service, minutes=1)
    assert [shape for shape, *_ in llm.asked[asked:]] == ["FoundProcedures", "SecondLook"]
    over = await operation(service, answer.json()["operation_id"])
    assert (over["status"], over["result"]["episodes"]) == ("succeeded", 3)
    assert over["result"]["memories"]["retired"] == 1, "by the first attempt"
    assert (await undo(service, over["operation_id"]))["result"] == {"restored": 3, "not_restored": 0}


async def test_a_model_that_stays_away_ends_as_partial_and_the_episodes_wait(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await done(api)
    llm.server.then(*[Reply(401)] * 100)
    answer = await api.post("/v1/jobs/consolidation/run", json={})
    for _ in range(7):
        await work(service, minutes=60)
    over = await operation(service, answer.json()["operation_id"])
    assert (over["status"], over["result"]["waiting"], over["can_undo"]) == ("partial", 3, False)
    assert over["result"]["parts"]["facts"]["reason"] == "The model's server answered 401."
    left = await service.resources.store.find(ACTIONS, "default", Absent("consolidated_at"))
    assert len(left) == 3
    assert await service.resources.store.find(DERIVATIONS, "default", EVERYTHING) == []
