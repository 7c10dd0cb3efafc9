"""Reflection over HTTP: it finds once, applies by policy, and what it does can be undone."""

from datetime import timedelta

import pytest

from app.core.clock import rfc3339
from app.facts.repository import FactRepository
from app.learning.dependencies import Tools
from app.memories.schemas import MEMORIES
from app.reflection.finders import same_value
from app.settings import Settings
from app.storage.schema import Eq
from app.storage.scope import Scope
from tests.conftest import Service, Starter
from tests.support.findings import findings, judging, knows, memory, reflect
from tests.support.learning import undo
from tests.support.memories import OWNER, problem
from tests.support.model import Model
from tests.support.operations import rows
from tests.support.stores import Watched

pytestmark = pytest.mark.anyio

ROME, OSLO = "I live in Rome.", "I now live in Oslo."


@pytest.fixture(autouse=True)
def homes(llm: Model) -> None:
    """The model knows that nobody lives in two towns."""
    llm.says["JudgedPairs"] = knows(ROME, OSLO, said="replaces")


async def test_it_finds_once_and_a_dismissed_finding_does_not_come_back(judged: Service) -> None:
    rome, oslo = await memory(judged, ROME), await memory(judged, OSLO)
    dry = await reflect(judged, dry_run=True)
    assert (dry["result"]["judge"], await findings(judged)) == ({"to_judge": 1}, [])
    done = await reflect(judged)
    assert done["status"] == "succeeded"
    (finding,) = await findings(judged)
    assert [one["id"] for one in finding["evidence"]] == [rome, oslo]
    assert (finding["kind"], finding["proposal"]["keep"]["id"]) == ("stale", oslo)
    before = await rows(judged)
    assert (await reflect(judged))["result"]["found"] == 0
    assert await rows(judged) == before
    await judged.client.post(f"/v1/findings/{finding['finding_id']}/dismiss")
    assert (await reflect(judged))["result"]["found"] == 0
    assert await findings(judged) == []


async def test_memories_in_scripts_whose_vowels_are_marks_do_not_end_a_run(judged: Service) -> None:
    for text in (
        "ฉันอาศัยอยู่ที่กรุงเทพมหานคร",
        "ຂ້ອຍຢູ່ວຽງຈັນ",
        "ကျွန်တော် ရန်ကုန်မှာ နေတယ်",
        "ខ្ញុំរស់នៅភ្នំពេញ",
        "אֲנִי גָּר בְּחֵיפָה",
        "मैं दिल्ली में रहता हूँ",
        "👍🏽",
    ):
        await memory(judged, text)
        await memory(judged, f"{text} 3")
    rome, oslo = await memory(judged, ROME), await memory(judged, OSLO)
    assert (await reflect(judged))["status"] == "succeeded"
    assert [[one["id"] for one in finding["evidence"]] for finding in await findings(judged)] == [[rome, oslo]]


async def test_facts_and_the_profile_are_compared_too(service: Service) -> None:
    await service.client.patch("/v1/users/u/profile", json={"home": "Rome"})
    fact = {**OWNER, "subject": "user", "predicate": "lives_in", "object": "Oslo"}
    await service.client.post("/v1/facts", json=fact)
    await reflect(service)
    (finding,) = await findings(service)
    assert [one["text"] for one in finding["evidence"]] == ["The user lives in Rome", "user lives in Oslo"]
    done = (await service.client.post(f"/v1/findings/{finding['finding_id']}/accept")).json()
    assert (await service.client.get("/v1/users/u/profile")).json()["home"] == "Oslo"
    await undo(service, done["operation_id"])
    assert (await service.client.get("/v1/users/u/profile")).json()["home"] == "Rome"


async def test_a_fact_gives_way_to_a_later_memory(judged: Service, llm: Model) -> None:
    llm.says["JudgedPairs"] = knows("user lives in Rome", OSLO, said="replaces")
    fact = {**OWNER, "subject": "user", "predicate": "lives_in", "object": "Rome"}
    made = (await judged.client.post("/v1/facts", json=fact)).json()
    judged.clock.move(days=30)
    told = rfc3339(judged.clock.now())
    await memory(judged, OSLO, told)
    judged.clock.move(days=1)
    await reflect(judged)
    (finding,) = await findings(judged)
    done = await judged.client.post(f"/v1/findings/{finding['finding_id']}/accept")
    assert done.status_code == 200
    ended = (await judged.client.get(f"/v1/facts/{made['fact_id']}")).json()
    then = {**OWNER, "subject": "user", "as_of": rfc3339(judged.clock.now() - timedelta(days=2))}
    (rest,) = (await judged.client.get("/v1/facts", params=then)).json()["items"]
    assert (ended["status"], ended["superseded_by"]) == ("superseded", [rest["fact_id"]])
    assert (rest["object"], rest["valid_from"], rest["valid_until"]) == ("Rome", made["valid_from"], told)
    await undo(judged, done.json()["operation_id"])
    (back,) = (await judged.client.get("/v1/facts", params={**OWNER, "subject": "user"})).json()["items"]
    assert (back["fact_id"], back["valid_until"]) == (made["fact_id"], None)


async def test_a_fact_that_two_memories_taught_ends_once(service: Service) -> None:
    fact = {**OWNER, "subject": "user", "predicate": "lives_in", "object": "Rome"}
    made = (await service.client.post("/v1/facts", json=fact)).json()
    service.clock.move(days=1)
    held, scope = service.resources, Scope("default")
    tools = Tools(held.store, held.embedder, held.clock, held.settings, held.tuning)
    (record,) = await FactRepository(held.store, scope).find(Eq("fact_id", made["fact_id"]))
    await held.store.commit(await tools.facts(scope).ending([record, record], rfc3339(service.clock.now())))
    ended = (await service.client.get(f"/v1/facts/{made['fact_id']}")).json()
    assert (ended["status"], len(ended["superseded_by"])) == ("superseded", 1)


async def test_facts_of_one_subject_and_predicate_are_compared_across_their_owners(service: Service) -> None:
    said = {"subject": "Ben", "predicate": "works_at", "cardinality": "one"}
    for owner, firm in ((OWNER, "Acme"), ({"user_id": "u"}, "Initech"), ({"user_id": "v"}, "Hooli")):
        await service.client.post("/v1/facts", json={**owner, **said, "object": firm})
    for owner, friend in ((OWNER, "Ada"), ({"user_id": "u"}, "Eve")):
        many = {"subject": "Ben", "predicate": "knows", "object": friend, "cardinality": "many"}
        await service.client.post("/v1/facts", json={**owner, **many})
    await reflect(service)
    (finding,) = await findings(service)
    assert [one["text"] for one in finding["evidence"]] == ["Ben works at Acme", "Ben works at Initech"]
    assert finding["reason"] == "They give different values (Ben: works at)."


async def test_users_are_never_compared_with_each_other(judged: Service) -> None:
    await memory(judged, ROME)
    await memory(judged, OSLO, user_id="v")
    await memory(judged, OSLO, agent_id="b")
    assert (await reflect(judged))["result"]["found"] == 0
    assert (await reflect(judged, agent_id=None, user_id=None))["result"]["found"] == 0


async def test_a_bound_key_reflects_on_its_own(service: Service) -> None:
    await memory(service, ROME)
    await memory(service, OSLO)
    bound, reader = await service.key(users=["v"]), await service.key(verbs="read")
    for headers in (bound, reader):
        problem(await service.client.post("/v1/reflect", json=OWNER, headers=headers), 403, "forbidden")


async def test_a_focus_narrows(judged: Service) -> None:
    await memory(judged, ROME)
    await memory(judged, OSLO)
    assert (await reflect(judged, focus="coffee", dry_run=True))["result"].get("judge") == {}
    assert (await reflect(judged, focus="where do I live", dry_run=True))["result"]["judge"] == {"to_judge": 1}


async def test_findings_whose_evidence_went_are_settled(judged: Service) -> None:
    rome = await memory(judged, ROME)
    await memory(judged, OSLO)
    await reflect(judged)
    await judged.client.delete(f"/v1/memories/{rome}")
    assert (await reflect(judged))["result"]["settled"] == 1
    (settled,) = await findings(judged, status="settled")
    assert settled["settled_by"] == "reflection"


async def test_what_a_model_judged_waits_whatever_the_policy_is(start: Starter, settings: Settings, llm: Model) -> None:
    async with start(judging(settings, llm, policy="auto")) as service:
        rome, _ = await memory(service, ROME), await memory(service, OSLO)
        done = await reflect(service)
        assert (done["result"]["found"], done["result"]["applied"]) == (1, 0)
        assert (await service.client.get(f"/v1/memories/{rome}")).json()["status"] == "active"


@pytest.mark.parametrize(
    ("value", "other", "same"),
    [
        ("Oslo", "Oslo, Norway", True),
        ("OSLO", "oslo", True),
        ("nurses", "nurse", True),
        ("Oslo", "Rome", False),
        ("41", "42", False),
    ],
)
def test_two_wordings_of_one_value_are_no_conflict(value: str, other: str, same: bool) -> None:
    assert same_value(value, other) is same
    assert same_value(other, value) is same


async def test_whose_records_there_are_is_counted_and_not_read(
    start: Starter, settings: Settings, watched: list[Watched]
) -> None:
    async with start(settings) as service:
        await memory(service, ROME)
        watched[-1].watch()
        await reflect(service)
        read = [asked.method for asked in watched[-1].asked if asked.collection is MEMORIES]
    assert "tally" in read
    assert read.count("find") == 1, "of the one agent and user, by the finders"
