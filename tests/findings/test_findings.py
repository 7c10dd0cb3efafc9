"""Findings are listed, accepted, dismissed and undone; none keeps a text that was deleted."""

import pytest

from app.findings.schemas import FINDINGS
from app.settings import JobSettings, Settings
from tests.conftest import Service
from tests.support.findings import findings, found, memory
from tests.support.learning import undo
from tests.support.memories import OWNER, problem

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"jobs": JobSettings(enabled=False)})


async def two(service: Service) -> tuple[str, str]:
    return await memory(service, "I live in Rome."), await memory(service, "I live in Oslo.")


async def test_a_finding_shows_its_evidence(service: Service) -> None:
    rome, oslo = await two(service)
    finding_id = await found(service, rome, oslo)
    (listed,) = await findings(service)
    got = (await service.client.get(f"/v1/findings/{finding_id}")).json()
    assert got == listed
    assert [one["text"] for one in got["evidence"]] == ["I live in Rome.", "I live in Oslo."]
    memories = [(await service.client.get(f"/v1/memories/{memory_id}")).json() for memory_id in (rome, oslo)]
    assert [piece["source"] for piece in got["evidence"]] == [record["source"] for record in memories]
    assert (got["status"], got["kind"], got["proposal"]["keep"]["id"]) == ("open", "contradiction", oslo)
    assert await findings(service, kind="stale") == []
    assert await findings(service, status="dismissed") == []


async def test_accepting_supersedes_and_an_undo_opens_it_again(service: Service) -> None:
    rome, oslo = await two(service)
    finding_id = await found(service, rome, oslo)
    done = (await service.client.post(f"/v1/findings/{finding_id}/accept")).json()
    assert done["status"] == "accepted"
    old = (await service.client.get(f"/v1/memories/{rome}")).json()
    assert (old["status"], old["superseded_by"]) == ("superseded", oslo)
    assert [piece["text"] for piece in done["evidence"]] == ["I live in Rome.", "I live in Oslo."]
    assert done["reason"] == "They differ."
    assert await findings(service, status="accepted") == [done]
    again = await service.client.post(f"/v1/findings/{finding_id}/accept")
    problem(again, 409, "conflict")
    undone = await undo(service, done["operation_id"])
    assert undone["status"] == "succeeded", undone
    assert (await service.client.get(f"/v1/memories/{rome}")).json()["status"] == "active"
    (open_again,) = await findings(service)
    assert (open_again["finding_id"], open_again["operation_id"]) == (finding_id, done["operation_id"])


async def test_the_other_record_can_be_kept_and_an_undo_brings_the_proposal_back(service: Service) -> None:
    rome, oslo = await two(service)
    finding_id = await found(service, rome, oslo)
    done = (await service.client.post(f"/v1/findings/{finding_id}/accept", json={"keep": rome})).json()
    assert (done["status"], done["proposal"]["keep"]["id"], done["proposal"]["retire"]) == (
        "accepted",
        rome,
        [{"kind": "memory", "id": oslo}],
    )
    states = {
        memory_id: (await service.client.get(f"/v1/memories/{memory_id}")).json()["status"]
        for memory_id in (rome, oslo)
    }
    assert states == {rome: "active", oslo: "superseded"}
    assert (await undo(service, done["operation_id"]))["status"] == "succeeded"
    (open_again,) = await findings(service)
    assert open_again["proposal"]["keep"]["id"] == oslo
    assert (await service.client.get(f"/v1/memories/{oslo}")).json()["status"] == "active"


async def test_what_is_kept_must_be_one_of_the_two(service: Service) -> None:
    rome, oslo = await two(service)
    finding_id = await found(service, rome, oslo)
    refused = await service.client.post(f"/v1/findings/{finding_id}/accept", json={"keep": "mem_other"})
    assert [error["pointer"] for error in problem(refused, 422, "invalid")["errors"]] == ["/keep"]
    plan = await memory(service, "I fly to Lisbon on 3 May.")
    ends = await found(service, plan, kind="stale", action="end")
    refused = await service.client.post(f"/v1/findings/{ends}/accept", json={"keep": plan})
    assert [error["pointer"] for error in problem(refused, 422, "invalid")["errors"]] == ["/keep"]
    assert {finding["finding_id"] for finding in await findings(service)} == {finding_id, ends}


async def test_an_accepted_end_leaves_the_memory_for_the_time_before(service: Service) -> None:
    plan = await memory(service, "I fly to Lisbon on 3 May.")
    finding_id = await found(service, plan, kind="stale", action="end")
    assert (await service.client.post(f"/v1/findings/{finding_id}/accept")).status_code == 200
    ended = (await service.client.get(f"/v1/memories/{plan}")).json()
    assert ended["status"] == "active"
    assert ended["valid_until"] is not None


async def test_dismissing_changes_nothing_else(service: Service) -> None:
    rome, oslo = await two(service)
    finding_id = await found(service, rome, oslo)
    dismissed = (await service.client.post(f"/v1/findings/{finding_id}/dismiss")).json()
    assert dismissed["status"] == "dismissed"
    assert (await service.client.get(f"/v1/memories/{rome}")).json()["status"] == "active"
    problem(await service.client.post(f"/v1/findings/{finding_id}/dismiss"), 409, "conflict")
    assert await findings(service) == []


async def test_no_finding_keeps_a_text_that_was_deleted(service: Service) -> None:
    rome, oslo = await two(service)
    finding_id = await found(service, rome, oslo)
    await service.client.delete(f"/v1/memories/{rome}")
    got = (await service.client.get(f"/v1/findings/{finding_id}")).json()
    assert (got["status"], got["evidence"][0]["text"]) == ("settled", None)
    assert await findings(service) == []
    problem(await service.client.post(f"/v1/findings/{finding_id}/accept"), 409, "conflict")
    (stored,) = await service.resources.store.find(FINDINGS, "default")
    assert "Rome" not in str(stored)


async def test_a_rewritten_memory_is_other_evidence(service: Service) -> None:
    rome, oslo = await two(service)
    await found(service, rome, oslo)
    await service.client.patch(f"/v1/memories/{rome}", json={"content": "I lived in Rome."})
    assert await findings(service) == []


async def test_a_finding_is_its_owners(service: Service) -> None:
    rome, oslo = await two(service)
    finding_id = await found(service, rome, oslo)
    reader, stranger = await service.key(verbs="read"), await service.key(users=["v"])
    other = await service.key(tenant="other")
    for verb in ("accept", "dismiss"):
        path = f"/v1/findings/{finding_id}/{verb}"
        problem(await service.client.post(path, headers=reader), 403, "forbidden")
        for key in (stranger, other):
            problem(await service.client.post(path, headers=key), 404, "not_found")
    for key in (stranger, other):
        problem(await service.client.get(f"/v1/findings/{finding_id}", headers=key), 404, "not_found")
        assert (await service.client.get("/v1/findings", headers=key)).json()["items"] == []


async def test_findings_leave_with_their_user(service: Service) -> None:
    rome, oslo = await two(service)
    finding_id = await found(service, rome, oslo)
    export = (await service.client.get("/v1/users/u/export")).text
    assert finding_id in export
    erased = await service.client.delete("/v1/users/u")
    assert erased.status_code in (200, 202), erased.text
    assert await service.resources.store.find(FINDINGS, None) == []
    assert OWNER["user_id"] == "u"
