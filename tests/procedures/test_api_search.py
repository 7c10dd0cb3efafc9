"""Procedures for a situation: what fits, what has worked, what fails lately."""

from typing import Any

import httpx
import pytest

from app.embedding.embedder import Embedder
from app.memories.reembed import PendingEmbeddings
from app.procedures.schemas import PROCEDURES
from app.procedures.service import PROCEDURE
from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter, TestParts, TurnedClock
from tests.support.memories import OWNER, Faulty, Json, problem
from tests.support.procedures import LOGIN, PARCEL, got, learn, looked_up, names, path, report

pytestmark = pytest.mark.anyio

OWNERS: list[Json] = [{}, {"user_id": None}, {"agent_id": None}]


async def three_ways(api: httpx.AsyncClient) -> list[Json]:
    """Procedures that a situation cannot tell apart: one name and trigger, in three scopes that it sees."""
    return [await learn(api, steps=[f"way {at}"], **owner) for at, owner in enumerate(OWNERS)]


async def ways(api: httpx.AsyncClient, **fields: Any) -> list[str]:
    found = await looked_up(api, "a customer says that a parcel never arrived", **fields)
    return [one["procedure"]["steps"][0] for one in found]


async def test_procedures_are_found_by_meaning(api: httpx.AsyncClient) -> None:
    await learn(api)
    await learn(api, LOGIN)
    await learn(api, name="Water the plants", trigger="It is dry outside", steps=["Fill the can"])
    assert (await names(api, "the package was not delivered"))[0] == PARCEL["name"]
    assert (await names(api, "user forgot the passphrase"))[0] == LOGIN["name"]
    found = await looked_up(api, "somebody's account is locked")
    assert len(found) == 3
    assert found[0]["procedure"] == await got(api, found[0]["procedure"])
    scores = [one["score"] for one in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= one <= 1 for one in scores)
    assert all(one["track_record"] == "not tried yet" and one["warnings"] == [] for one in found)


async def test_what_fits_comes_before_what_merely_works(api: httpx.AsyncClient) -> None:
    await learn(api)
    works = await learn(api, LOGIN)
    await report(api, works, *[True] * 8)
    assert (await names(api, "the parcel never arrived"))[0] == PARCEL["name"]


async def test_of_those_that_fit_what_has_worked_comes_first(api: httpx.AsyncClient) -> None:
    _, works, fails = await three_ways(api)
    await report(api, works, True, True, True)
    await report(api, fails, False)
    assert await ways(api) == ["way 1", "way 0", "way 2"]
    found = await looked_up(api, "a customer says that a parcel never arrived", explain=True)
    for one, rate in zip(found, (0.8, 0.5, 1 / 3), strict=True):
        assert one["procedure"]["success_rate"] == pytest.approx(rate)
        scores = one["scores"]
        assert one["score"] == pytest.approx(scores["relevance"] * scores["works"] * scores["freshness"], rel=1e-5)
        assert {"vector", "text"} < set(scores)


async def test_a_hair_nearer_is_not_better_than_what_works(api: httpx.AsyncClient) -> None:
    """Of two that fit alike: cosines of 0.53 and 0.49, drawn apart to the whole scale, would outweigh any record."""
    nearer = await learn(api, name="Replace a parcel that never arrived")
    works = await learn(api, name="Pay for a parcel that got lost")
    asked = "the box went missing in the mail"
    assert (await names(api, asked))[0] == nearer["name"]
    await report(api, nearer, *[False] * 5)
    await report(api, works, *[True] * 5)
    assert (await names(api, asked))[0] == works["name"]


async def test_what_begins_to_fail_is_said_and_ranks_down(api: httpx.AsyncClient) -> None:
    """Three ways worked alike, two in three times; of one the failures are the last."""
    made = await three_ways(api)
    await report(api, made[0], *[True, False, True] * 2)
    await report(api, made[1], True, True, True, True, False, False)
    await report(api, made[2], False, False, True, True, True, True)
    found = await looked_up(api, "a parcel never arrived")
    assert [one["procedure"]["steps"] for one in found] == [["way 2"], ["way 0"], ["way 1"]]
    assert {one["procedure"]["success_rate"] for one in found} == {5 / 8}
    assert [one["warnings"] for one in found] == [
        [],
        [],
        [{"code": "failing_lately", "detail": "It failed the last 2."}],
    ]
    assert found[2]["track_record"] == "worked 4 of 6 times, failed the last 2"
    assert found[2]["recent"]["failed_in_a_row"] == 2
    assert found[2]["recent"]["rate"] < found[1]["recent"]["rate"] < found[0]["recent"]["rate"]


async def test_what_lies_unused_is_said_and_ranks_down_a_little(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    old, new, _ = await three_ways(api)
    await report(api, old, True, True)
    clock.move(days=200)
    await report(api, new, True, True)
    found = {one["procedure"]["procedure_id"]: one for one in await looked_up(api, "a parcel never arrived")}
    unused, used = found[old["procedure_id"]], found[new["procedure_id"]]
    assert 0.8 * used["score"] < unused["score"] < used["score"]
    assert [one["code"] for one in unused["warnings"]] == ["stale"]
    assert unused["warnings"][0]["detail"] == "Neither used nor changed for 200 days."
    assert used["warnings"] == []
    earlier = await looked_up(api, "a parcel never arrived", now="2026-06-02T00:00:00Z")
    assert all(one["warnings"] == [] for one in earlier)


async def test_filters_hold_inside_the_search(api: httpx.AsyncClient) -> None:
    one, two, three = [await learn(api, name=f"Lost parcel {at}") for at in range(3)]
    await learn(api, LOGIN, tags=["t"])
    await learn(api, name="Ask everybody", agent_id=None, trust=0.3)
    await learn(api, name="Ask the agent", user_id=None, tags=["s"])
    await learn(api, name="Another user's", user_id="v")
    await report(api, one, True)
    await report(api, two, False)
    await api.patch(path(three), json={"status": "archived"})
    every = {"Lost parcel 0", "Lost parcel 1", LOGIN["name"], "Ask everybody", "Ask the agent"}
    wanted: list[tuple[Json, set[str]]] = [
        ({}, every),
        ({"include_shared": False}, {"Lost parcel 0", "Lost parcel 1", LOGIN["name"]}),
        ({"agent_id": None}, {"Lost parcel 0", "Lost parcel 1", LOGIN["name"], "Ask everybody"}),
        ({"user_id": None}, {"Ask the agent"}),
        ({"tags": ["t"]}, {LOGIN["name"]}),
        ({"tags": ["t", "s"]}, {LOGIN["name"], "Ask the agent"}),
        ({"min_success_rate": 0.5}, every - {"Lost parcel 1"}),
        ({"min_success_rate": 0.51}, {"Lost parcel 0"}),
        ({"min_success_rate": 0.9}, set()),
        ({"min_trust": 0.4}, every - {"Ask everybody"}),
        ({"status": "archived"}, {"Lost parcel 2"}),
    ]
    for fields, expected in wanted:
        asked = {name: value for name, value in {**OWNER, **fields}.items() if value is not None}
        answered = await api.post("/v1/procedures/search", json={"situation": "lost parcel", "top_k": 100, **asked})
        assert {one["procedure"]["name"] for one in answered.json()["items"]} == expected, fields
    assert len(await names(api, "parcel", min_success_rate=0.5, top_k=4)) == 4


REFUSED: list[tuple[Json, str]] = [
    ({"situation": "x"}, ""),
    ({"situation": " ", "agent_id": "a"}, "/situation"),
    ({"situation": "x", "agent_id": "a", "top_k": 0}, "/top_k"),
    ({"situation": "x", "agent_id": "a", "min_success_rate": 1.5}, "/min_success_rate"),
    ({"situation": "x", "agent_id": "a", "tags": []}, "/tags"),
    ({"situation": "x", "agent_id": "a", "now": "soon"}, "/now"),
    ({"situation": "x", "agent_id": "a", "query": "x"}, "/query"),
]


@pytest.mark.before_store
async def test_a_bad_search_is_refused(api: httpx.AsyncClient) -> None:
    for body, pointer in REFUSED:
        problem(await api.post("/v1/procedures/search", json=body), 422, "invalid", pointer)


# --- Without the model ------------------------------------------------------------------------------------------------


async def test_a_procedure_is_kept_when_the_embedder_fails_and_found_by_meaning_later(
    parts: TestParts, start: Starter, settings: Settings
) -> None:
    made: list[Faulty] = []

    def wrap(embedder: Embedder) -> Embedder:
        made.append(Faulty(embedder))
        return made[-1]

    parts.wrap = wrap
    idle = settings.model_copy(update={"jobs": JobSettings(enabled=False)})
    async with start(idle) as service:
        api, faulty = service.client, made[-1]
        refund = await learn(api)
        faulty.failing = True
        login = await learn(api, LOGIN)
        assert login["embedding"]["status"] == "pending"
        patched = await api.patch(path(refund), json={"trigger": "Somebody wants to drink wine"})
        assert patched.json()["embedding"]["status"] == "pending"
        await report(api, login, True)
        assert await names(api, "log in") == [LOGIN["name"]]  # by words alone
        faulty.failing = False
        assert (await names(api, "log in"))[0] == LOGIN["name"]  # by its words
        assert await embedded(service) == 2
        now = await got(api, login)
        assert (now["embedding"]["status"], now["version"], now["success_count"]) == ("ready", 1, 1)
        assert (await names(api, "user forgot the passphrase"))[0] == LOGIN["name"]
        assert (await names(api, "a glass of Riesling"))[0] == PARCEL["name"]


async def embedded(service: Service) -> int:
    """As the service's own job does."""
    assert PROCEDURE.collection is PROCEDURES
    held = service.resources
    return await PendingEmbeddings(held.store, held.embedder, [PROCEDURE], service.clock).embed_all()
