"""Nothing that anybody sends is a 500, is slow, or is stored."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import httpx
import pytest
from fastapi import APIRouter
from pydantic import BaseModel

from app.api.strict import StrictRoute
from app.jobs.queue import JOBS, SCHEDULES
from app.lifespan import COLLECTIONS
from app.settings import LimitSettings, Settings
from tests.conftest import Service
from tests.support import bad_input
from tests.support.bad_input import Case
from tests.support.contract import ANY_ROUTE, Contract, Operation

pytestmark = pytest.mark.anyio
HANGS_SECONDS = 30


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Those of a service to which one address may send any number of wrong keys."""
    return settings.model_copy(update={"limits": LimitSettings(wrong_keys=0)})


async def fault_of(service: Service, contract: Contract, case: Case) -> str | None:
    """What is wrong with the answer. `HANGS_SECONDS` is no measure of speed: it finds work that grows with the square
    of what is sent."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in case.headers.items()]
    try:
        async with asyncio.timeout(HANGS_SECONDS):
            response = await service.client.request(
                case.operation.method, case.url, headers=headers, content=case.body()
            )
    except TimeoutError:
        return f"took more than {HANGS_SECONDS} s"
    if response.status_code not in case.statuses:
        return f"{response.status_code} instead of {case.statuses}: {response.text[:200]}"
    fault = contract.problem(response)
    if fault is None and response.status_code not in ANY_ROUTE:
        fault = contract.check(case.operation, response)
    if fault is None and (foreign := bad_input.foreign_words(response.json())) is not None:
        fault = f"is told in a library's words: {foreign}"
    pointers = [error["pointer"] for error in response.json()["errors"]]
    if fault is None and case.pointer is not None and not any(p.startswith(case.pointer) for p in pointers):
        fault = f"{pointers} instead of {case.pointer}"
    return fault


async def faults(service: Service, cases: Iterable[Case]) -> list[str]:
    contract = Contract(service.app)
    found = [(case.name, await fault_of(service, contract, case)) for case in cases]
    assert found
    return [f"{name}: {fault}" for name, fault in found if fault is not None]


async def stored(service: Service) -> dict[str, int]:
    store = service.resources.store
    asked_for = [c for c in COLLECTIONS if c not in (JOBS, SCHEDULES)]  # those are the clock's own
    return {c.name: await store.count(c, tenant) for c in asked_for for tenant in ("default", "")}


async def begin(service: Service) -> None:
    """The session that the cases name; memories cannot be made under an id of ours."""
    made = await service.client.post(
        "/v1/sessions", json={"session_id": bad_input.SESSION, "agent_id": "a", "user_id": "u"}
    )
    assert made.status_code == 201


Part = Callable[[Contract, Operation], Iterator[Case]]


before_store = pytest.mark.before_store


def third_of_fields(first: int) -> Part:
    """Of each field some cases, and of each kind of case some fields."""
    return lambda contract, operation: islice(bad_input.field_cases(contract, operation), first, None, 3)


PARTS = [
    *(bad_input.path_cases, bad_input.query_cases, bad_input.header_cases),
    pytest.param(bad_input.body_cases, marks=before_store),
    pytest.param(third_of_fields(0), marks=before_store, id="fields-0"),
    *(pytest.param(third_of_fields(at), marks=(before_store, pytest.mark.release), id=f"fields-{at}") for at in (1, 2)),
]


@pytest.mark.parametrize("part", PARTS)
async def test_bad_input_is_refused_by_every_operation(service: Service, part: Part) -> None:
    await begin(service)
    contract = Contract(service.app)
    before = await stored(service)
    ours = [op for op in contract.operations() if "operating" not in op.spec["tags"]]
    assert await faults(service, (case for operation in ours for case in part(contract, operation))) == []
    assert await stored(service) == before


@before_store
async def test_a_malformed_host_is_no_fault_of_ours(api: httpx.AsyncClient) -> None:
    for host in (b"[::1", b"127.0.0.1:x", b"\xff", b""):
        response = await api.get("/v1/memories", headers=[(b"host", host)])
        assert response.status_code < 500, host


# --- The checker itself -----------------------------------------------------------------------------------------------

SECRET = "what nobody outside may read"
planted = APIRouter(prefix="/v1/planted", tags=["planted"], route_class=StrictRoute)


class Lenient(BaseModel):
    model_config = {"json_schema_extra": {"examples": [{"note": "x"}]}}
    note: str | None = None


@planted.get("/{item_id}", operation_id="breaks")
async def breaks(item_id: str) -> int:
    return len(f"{SECRET} {item_id}") // 0


@planted.post("", operation_id="takes_anything")
async def takes_anything(body: Lenient) -> Lenient:
    return body


@before_store
async def test_the_battery_reports_planted_bugs(service: Service) -> None:
    service.app.include_router(planted)
    contract = Contract(service.app)
    operations = {op.name: op for op in contract.operations()}
    crashes = await faults(service, bad_input.path_cases(contract, operations["breaks"]))
    refused = [crash for crash in crashes if "declared" in crash]  # before the planted route was reached
    assert len(crashes) == len([bad for bad in bad_input.BAD_IDS if bad != ".."])
    assert len(refused) == len({"%ff", "%ed%a0%80", "%2F"})
    assert all("500 instead of" in crash for crash in crashes if crash not in refused)
    lenient = await faults(service, bad_input.body_cases(contract, operations["takes_anything"]))
    assert [fault for fault in lenient if fault.startswith("takes_anything: an unknown field: 200 instead of")]


@before_store
async def test_a_bug_of_ours_is_a_problem_that_tells_nothing(service: Service) -> None:
    service.app.include_router(planted)
    response = await service.client.get("/v1/planted/x", headers={"x-request-id": "seen-1"})
    assert response.status_code == 500
    assert Contract(service.app).problem(response) is None
    body = response.json()
    assert (body["code"], body["request_id"]) == ("internal_error", "seen-1")
    assert "Zero" not in response.text
    assert SECRET not in response.text
