"""Reflection over HTTP: it finds once, applies by policy, and what it does can be undone."""

import pytest

from app.settings import JobSettings, ReflectionSettings, Settings
from tests.conftest import Service, Starter
from tests.support.findings import findings, memory, reflect
from tests.support.learning import undo
from tests.support.memories import PAIR, problem
from tests.support.operations import rows

pytestmark = pytest.mark.anyio

ROME, OSLO = "I live in Rome.", "I now live in Oslo."


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


async def test_it_finds_once_and_a_dismissed_finding_does_not_come_back(service: Service) -> None:
    rome, oslo = await memory(service, ROME), await memory(service, OSLO)
    dry = await reflect(service, dry_run=True)
    assert (dry["result"]["found"], await findings(service)) == (1, [])
    done = await reflect(service)
    assert done["status"] == "succeeded"
    (finding,) = await findings(service)
    assert [one["id"] for one in finding["evidence"]] == [rome, oslo]
    assert (finding["kind"], finding["proposal"]["keep"]["id"]) == ("stale", oslo)
    before = await rows(service)
    assert (await reflect(service))["result"]["found"] == 0
    assert await rows(service) == before
    await service.client.post(f"/v1/findings/{finding['finding_id']}/dismiss")
    assert (await reflect(service))["result"]["found"] == 0
    assert await findings(service) == []


async def test_facts_and_the_profile_are_compared_too(service: Service) -> None:
    await service.client.patch("/v1/users/u/profile", json={"home": "Rome"})
    fact = {**PAIR, "subject": "user", "predicate": "lives_in", "object": "Oslo"}
    await service.client.post("/v1/facts", json=fact)
    await reflect(service)
    (finding,) = await findings(service)
    assert [one["text"] for one in finding["evidence"]] == ["The user lives in Rome", "user lives in Oslo"]
    done = (await service.client.post(f"/v1/findings/{finding['finding_id']}/accept")).json()
    assert (await service.client.get("/v1/users/u/profile")).json()["home"] == "Oslo"
    await undo(service, done["operation_id"])
    assert (await service.client.get("/v1/users/u/profile")).json()["home"] == "Rome"


async def test_a_fact_gives_way_to_a_later_memory(service: Service) -> None:
    fact = {**PAIR, "subject": "user", "predicate": "lives_in", "object": "Rome"}
    made = (await service.client.post("/v1/facts", json=fact)).json()
    await memory(service, OSLO)
    await reflect(service)
    (finding,) = await findings(service)
    assert (await service.client.post(f"/v1/findings/{finding['finding_id']}/accept")).status_code == 200
    assert (await service.client.get(f"/v1/facts/{made['fact_id']}")).json()["status"] == "retracted"


async def test_a_plan_whose_time_is_past_is_stale(service: Service) -> None:
    await memory(service, "I'm flying to Lisbon on 3 March 2026.", "2026-02-01T00:00:00Z")
    await memory(service, "I will visit Graz on 3 July 2026.", "2026-02-01T00:00:00Z")
    await memory(service, "We are going to Porto on 5 March 2026.", "2026-02-01T00:00:00Z")
    await memory(service, "Porto was great.", "2026-03-09T00:00:00Z")
    await reflect(service)
    (finding,) = await findings(service, kind="stale")
    assert "Lisbon" in finding["evidence"][0]["text"]
    assert finding["proposal"]["action"] == "end"


async def test_a_plan_that_was_called_off(service: Service) -> None:
    await memory(service, "I'm flying to Lisbon on 3 July 2026.", "2026-02-01T00:00:00Z")
    await memory(service, "The trip to Lisbon was cancelled.", "2026-02-09T00:00:00Z")
    await reflect(service)
    (finding,) = await findings(service)
    assert [one["text"][:3] for one in finding["evidence"]] == ["I'm", "The"]


async def test_users_are_never_compared_with_each_other(service: Service) -> None:
    await memory(service, ROME)
    await memory(service, OSLO, user_id="v")
    await memory(service, OSLO, agent_id="b")
    assert (await reflect(service))["result"]["found"] == 0
    assert (await reflect(service, agent_id=None, user_id=None))["result"]["found"] == 0


async def test_a_bound_key_reflects_on_its_own(service: Service) -> None:
    await memory(service, ROME)
    await memory(service, OSLO)
    bound, reader = await service.key(users=["v"]), await service.key(verbs="read")
    for headers in (bound, reader):
        problem(await service.client.post("/v1/reflect", json=PAIR, headers=headers), 403, "forbidden")


async def test_a_focus_narrows(service: Service) -> None:
    await memory(service, ROME)
    await memory(service, OSLO)
    assert (await reflect(service, focus="coffee", dry_run=True))["result"]["found"] == 0
    assert (await reflect(service, focus="where do I live", dry_run=True))["result"]["found"] == 1


async def test_findings_whose_evidence_went_are_settled(service: Service) -> None:
    rome = await memory(service, ROME)
    await memory(service, OSLO)
    await reflect(service)
    await service.client.delete(f"/v1/memories/{rome}")
    assert (await reflect(service))["result"]["settled"] == 1
    (settled,) = await findings(service, status="settled")
    assert settled["settled_by"] == "reflection"


async def test_with_auto_the_later_one_supersedes_until_it_is_undone(start: Starter, settings: Settings) -> None:
    auto = settings.model_copy(update={"reflection": ReflectionSettings(policy="auto")})
    async with start(auto) as service:
        rome, oslo = await memory(service, ROME), await memory(service, OSLO)
        pinned = await memory(service, "My favourite colour is blue.", pinned=True)
        await memory(service, "My favourite colour is green.")
        done = await reflect(service)
        assert (done["result"]["found"], done["result"]["applied"]) == (2, 1)
        old = (await service.client.get(f"/v1/memories/{rome}")).json()
        assert (old["status"], old["superseded_by"]) == ("superseded", oslo)
        assert (await service.client.get(f"/v1/memories/{pinned}")).json()["status"] == "active"
        assert (await undo(service, done["operation_id"]))["status"] == "succeeded"
        assert (await service.client.get(f"/v1/memories/{rome}")).json()["status"] == "active"
        assert (await reflect(service))["result"]["applied"] == 0
        assert len(await findings(service)) == 2


async def test_what_is_to_happen_on_a_day_is_a_plan_and_a_birthday_is_none(service: Service) -> None:
    plans = {
        "On 3 March I open my little shop. Cake for all.": ["none"],
        "Am 4. März beginne ich meine Lehre.": ["end"],
        "El 5 de marzo presento mi libro.": ["end"],
        "My birthday is on 6 March.": [],
        "My sister's birthday is on 7 March.": [],
    }
    for user, (text, actions) in enumerate(plans.items()):
        await memory(service, text, "2026-02-01T00:00:00Z", user_id=f"u{user}")
        await reflect(service, user_id=f"u{user}")
        found = await findings(service, user_id=f"u{user}")
        assert [one["proposal"]["action"] for one in found] == actions, text
