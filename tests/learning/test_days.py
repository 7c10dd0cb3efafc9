"""The daily roll-up of action logs gets a text where there is a language model, and does without where it fails."""

import httpx
import pytest

from tests.conftest import Service
from tests.support.actions import act, log_all
from tests.support.learning import operation, summaries, work
from tests.support.memories import Json
from tests.support.model import Model
from tests.support.scripted import Reply

pytestmark = pytest.mark.anyio

DAY = "2026-06-01T09:00:00Z"


async def rolled_up(service: Service) -> Json:
    """The day's memory."""
    asked = (await service.client.post("/v1/jobs/retention/run", json={})).json()
    await work(service)
    assert (await operation(service, asked["operation_id"]))["status"] == "succeeded"
    (memory,) = await summaries(service, status="active")
    return memory


async def test_a_day_is_told_and_goes_on_where_late_logs_come(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    made = await log_all(api, act("Deployed the shop", outcome="success", timestamp=DAY))
    service.clock.move(days=40)
    llm.says["DayText"] = {"text": "The shop was deployed."}
    memory = await rolled_up(service)
    assert memory["content"] == "On 2026-06-01: 1 actions (1 success); 1 work. The shop was deployed."
    assert (memory["source"]["origin"], memory["source"]["action_ids"]) == ("consolidation", [made[0]["action_id"]])
    assert (memory["source"]["model"], memory["source"]["prompt_version"]) == ("scripted", "day.2")
    await log_all(api, act("Rolled it back", outcome="failure", timestamp=DAY))
    llm.says["DayText"] = lambda data: {"text": f"{data['earlier']} Then it was rolled back."}
    memory = await rolled_up(service)
    counts = "On 2026-06-01: 2 actions (1 failure, 1 success); 2 work."
    assert memory["content"] == f"{counts} The shop was deployed. Then it was rolled back."
    assert [episode["content"] for episode in llm.shown("DayText")[1]["episodes"]] == ["Rolled it back"]


async def test_a_day_has_no_number_that_no_log_has(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await log_all(api, act("Deployed the shop to 3 of 14 hosts", outcome="success", timestamp=DAY))
    service.clock.move(days=40)
    llm.says["DayText"] = {"text": "The shop runs on 3 of 14 hosts. It cost 4711 euros. All went well."}
    memory = await rolled_up(service)
    assert memory["content"].endswith("1 work. The shop runs on 3 of 14 hosts. All went well.")


async def test_nobody_looks_at_a_day_again_so_its_numbers_stand_in_digits(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await log_all(api, act("Deployed the shop to all hosts", outcome="success", timestamp=DAY))
    service.clock.move(days=40)
    llm.says["DayText"] = {"text": "The shop runs on 7 hosts. All went well."}
    memory = await rolled_up(service)
    assert memory["content"].endswith("1 work. All went well.")


async def test_a_model_that_fails_keeps_no_day_back(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await log_all(api, act("Deployed the shop", outcome="success", timestamp=DAY))
    service.clock.move(days=40)
    llm.server.then(Reply(401))
    memory = await rolled_up(service)
    assert memory["content"] == "On 2026-06-01: 1 actions (1 success); 1 work."
    assert memory["source"]["model"] is None
    assert (await api.get("/v1/actions", params={"agent_id": "a"})).json()["items"] == []
