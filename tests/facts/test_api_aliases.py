"""Names of one entity, over HTTP: facts of all of them are read and reconciled as those of one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import Phase, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from app.core.clock import rfc3339
from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter
from tests.support.facts import HOME, day, edge, listed, objects, tell, tell_all
from tests.support.memories import OWNER, Json, problem
from tests.support.operations import operation, undo

pytestmark = pytest.mark.anyio


@pytest.fixture
async def service(start: Starter, settings: Settings) -> AsyncIterator[Service]:
    """Without background work: a test runs the undo itself."""
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as made:
        yield made


LOVELACE = "/v1/graph/entities/Ada Lovelace"


async def declare(
    api: httpx.AsyncClient, *aliases: str, name: str = "Ada Lovelace", expect: int = 201, **of: Any
) -> Json:
    body = {**(of or OWNER), "aliases": list(aliases)}
    answer = await api.post(f"/v1/graph/entities/{name}/aliases", json=body)
    assert answer.status_code == expect, answer.text
    found: Json = answer.json()
    return found


async def aliases_of(api: httpx.AsyncClient, name: str, **params: Any) -> Json:
    answer = await api.get(f"/v1/graph/entities/{name}/aliases", params={**OWNER, **params})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def dismiss(api: httpx.AsyncClient, alias: str, expect: int = 200, **of: Any) -> Json:
    answer = await api.delete(f"{LOVELACE}/aliases", params={**(of or OWNER), "alias": alias})
    assert answer.status_code == expect, answer.text
    found: Json = answer.json()
    return found


async def homes(api: httpx.AsyncClient, subject: str, **params: Any) -> list[str]:
    return await objects(api, **{**OWNER, **params}, subject=subject, predicate="lives_in")


async def test_facts_of_both_names_are_listed_as_they_were_said(api: httpx.AsyncClient) -> None:
    await tell_all(api, edge("Ada", "knows", "Ben"), edge("Ada Lovelace", "knows", "Zoe"))
    assert await objects(api, **OWNER, subject="Ada") == ["Ben"]
    made = await declare(api, "Ada")
    assert (made["entity"], made["names"]) == ("Ada Lovelace", ["Ada Lovelace", "Ada"])
    for name in ("Ada", "ada lovelace"):
        assert await objects(api, **OWNER, subject=name) == ["Ben", "Zoe"]
        assert {fact["subject"] for fact in await listed(api, **OWNER, subject=name)} == {"Ada", "Ada Lovelace"}
    await tell(api, "Ada", "2026-01-01", subject="Ben", predicate="likes")
    assert [fact["subject"] for fact in await listed(api, **OWNER, object="Ada Lovelace")] == ["Ben"]
    found = await api.post("/v1/facts/search", json={**OWNER, "query": "whom does she know", "subject": "Ada Lovelace"})
    assert {one["fact"]["object"] for one in found.json()["items"]} >= {"Ben", "Zoe"}


async def test_the_later_home_bounds_the_earlier_one_of_the_other_name(api: httpx.AsyncClient) -> None:
    await declare(api, "Ada")
    await tell(api, "New York", "2019-01-01")
    await tell(api, "Boston", "2026-01-01", subject="Ada Lovelace")
    assert await homes(api, "Ada") == ["Boston"]
    assert await homes(api, "Ada", as_of=day("2020-01-01")) == ["New York"]
    await tell(api, "Rome", "2026-02-01")
    assert await homes(api, "Ada Lovelace") == ["Rome"]
    assert await homes(api, "Ada", as_of=day("2026-01-15")) == ["Boston"]


async def test_a_fact_of_less_trust_disputes_that_of_the_other_name(api: httpx.AsyncClient) -> None:
    await declare(api, "Ada")
    await tell(api, "Boston", "2026-01-01", subject="Ada Lovelace")
    weak = await tell(api, "Rome", trust=0.3)
    assert weak["status"] == "disputed"
    settled = await api.post(f"/v1/facts/{weak['fact_id']}/resolve", json={"keep": weak["fact_id"]})
    assert settled.status_code == 200, settled.text
    assert await homes(api, "Ada") == ["Rome"]


async def test_the_same_object_by_another_name_is_the_same(api: httpx.AsyncClient) -> None:
    await declare(api, "NYC", name="New York")
    first = await tell(api, "New York", "2019-01-01")
    assert (await tell(api, "NYC", expect=200, valid_from=day("2019-01-01")))["fact_id"] == first["fact_id"]


async def test_what_is_said_twice_is_told_and_reconciled_by_the_next_fact(api: httpx.AsyncClient) -> None:
    old, new = await tell(api, "Boston", "2019-01-01"), await tell(api, "Rome", "2020-01-01", subject="Ada Lovelace")
    (twice,) = (await declare(api, "Ada"))["contends"]
    assert (twice["predicate"], set(twice["fact_ids"])) == ("lives_in", {old["fact_id"], new["fact_id"]})
    assert await homes(api, "Ada") == ["Boston", "Rome"]
    await tell(api, "Oslo", "2026-01-01")
    assert await homes(api, "Ada") == ["Oslo"]


async def test_the_graph_has_one_node(api: httpx.AsyncClient) -> None:
    await declare(api, "Ada")
    await tell_all(
        api, edge("Ben", "knows", "Ada"), edge("Ada Lovelace", "lives_in", "Rome"), edge("Rome", "part_of", "Italy")
    )
    around = (await api.get("/v1/graph/entities/Ben/neighbors", params={**OWNER, "depth": 3})).json()
    assert [(one["name"], one["depth"]) for one in around["nodes"]] == [("Ada Lovelace", 1), ("Rome", 2), ("Italy", 3)]
    path = {"start": "Ben", "path": ["knows", "lives_in"]}
    assert [one["name"] for one in (await api.post("/v1/graph/query", json={**OWNER, **path})).json()["nodes"]] == [
        "Rome"
    ]
    entities = (await api.get("/v1/graph/entities", params={**OWNER, "prefix": "ada"})).json()["items"]
    assert [(one["name"], one["degree"]) for one in entities] == [("Ada Lovelace", 2)]
    asked = {**OWNER, "query": "Where does Ada live?"}
    assert "lives in Rome" in (await api.post("/v1/context", json=asked)).json()["text"]


async def test_titles_join_full_names_and_no_single_ones(api: httpx.AsyncClient) -> None:
    await tell(api, "Boston", "2019-01-01", subject="Ada Lovelace")
    await tell(api, "Rome", "2026-01-01", subject="Dr. Ada Lovelace")
    assert await homes(api, "Ada Lovelace") == ["Rome"]
    (made,) = (await aliases_of(api, "Ada Lovelace"))["items"]
    assert (made["alias"], made["rule"], made["status"]) == ("Dr. Ada Lovelace", "title", "active")
    await tell(api, "Oslo", subject="Mr. Smith")
    await tell(api, "Bergen", subject="Mrs. Smith")
    assert await homes(api, "Mr. Smith") == ["Oslo"]
    await dismiss(api, "Dr. Ada Lovelace")
    await tell(api, "Paris", subject="Dr. Ada Lovelace")
    assert (await aliases_of(api, "Ada Lovelace"))["items"] == []
    assert await homes(api, "Ada Lovelace") == []  # what was decided stays


async def test_a_first_name_is_proposed_until_it_is_declared_or_dismissed(api: httpx.AsyncClient) -> None:
    await tell_all(api, edge("Ada", "knows", "Ben"), edge("Ada Lovelace", "knows", "Zoe"))
    (one,) = (await aliases_of(api, "Ada", status="proposed"))["items"]
    assert (one["name"], one["alias"], one["rule"], one["status"]) == ("Ada Lovelace", "Ada", "contains", "proposed")
    assert await objects(api, **OWNER, subject="Ada") == ["Ben"]
    gone = await dismiss(api, "Ada")
    assert (await aliases_of(api, "Ada", status="proposed"))["items"] == []
    assert [each["status"] for each in (await aliases_of(api, "Ada", status="any"))["items"]] == ["dismissed"]
    assert gone["operation_id"] is not None
    await declare(api, "Ada")
    assert await objects(api, **OWNER, subject="Ada") == ["Ben", "Zoe"]
    await dismiss(api, "Nobody", expect=404)


async def test_each_change_can_be_undone(service: Service) -> None:
    api = service.client
    await tell_all(api, edge("Ada", "knows", "Ben"), edge("Ada Lovelace", "knows", "Zoe"))
    made = await declare(api, "Ada", "Countess")
    done = await operation(api, made["operation_id"])
    assert (done["kind"], done["status"], done["can_undo"], done["result"]) == (
        "alias",
        "succeeded",
        True,
        {"changed": 2},
    )
    assert (await declare(api, "Ada", expect=200))["operation_id"] is None
    gone = await dismiss(api, "Ada")
    assert await objects(api, **OWNER, subject="Ada") == ["Ben"]
    assert (await undo(service, gone["operation_id"]))["result"] == {"restored": 1, "not_restored": 0}
    assert await objects(api, **OWNER, subject="Ada") == ["Ben", "Zoe"]
    back = await undo(service, made["operation_id"])
    assert (back["status"], back["result"]) == ("partial", {"restored": 1, "not_restored": 1})  # one has changed since
    fresh = await declare(api, "Duchess")
    assert (await undo(service, fresh["operation_id"]))["result"] == {"restored": 1, "not_restored": 0}
    assert (await aliases_of(api, "Duchess", status="any"))["items"] == []
    problem(await api.post(f"/v1/operations/{fresh['operation_id']}/undo"), 409, "conflict")


async def test_an_alias_is_known_from_its_declaration_to_its_dismissal(service: Service) -> None:
    api, clock = service.client, service.clock
    await tell_all(api, edge("Ada", "knows", "Ben"), edge("Ada Lovelace", "knows", "Zoe"))

    def now() -> str:
        clock.move(hours=1)
        moment = rfc3339(clock.now())
        clock.move(hours=1)
        return moment

    async def known(known_at: str | None) -> list[list[str]]:
        """Whom Ada knows, as the list, the search, the graph, a chain and a prompt say."""
        times = {} if known_at is None else {"known_at": known_at}
        said = await objects(api, **OWNER, subject="Ada", **times)
        query = {**OWNER, **times, "query": "knows", "subject": "Ada"}
        found = (await api.post("/v1/facts/search", json=query)).json()["items"]
        walked = (await api.get("/v1/graph/entities/Ada/neighbors", params={**OWNER, **times})).json()["nodes"]
        chain = (await api.post("/v1/graph/query", json={**OWNER, **times, "start": "Ada", "path": ["knows"]})).json()
        page = (await api.get("/v1/graph/entities/Ada", params={**OWNER, **times})).json()
        return [
            sorted(said),
            sorted(one["fact"]["object"] for one in found),
            sorted(one["name"] for one in walked),
            sorted(one["name"] for one in chain["nodes"]),
            sorted(one["object"] for one in page["facts"]["items"]),
        ]

    before = now()
    await declare(api, "Ada")
    declared = now()
    await dismiss(api, "Ada")
    dismissed = now()
    await declare(api, "Ada")
    alone, both_names = [["Ben"]] * 5, [["Ben", "Zoe"]] * 5
    assert await known(before) == alone
    assert await known(declared) == both_names
    assert await known(dismissed) == alone
    assert await known(None) == both_names
    assert sorted(await objects(api, **OWNER, subject="Ada", as_of=dismissed)) == ["Ben", "Zoe"]


async def test_a_declaration_that_was_undone_was_never_known(service: Service) -> None:
    api, clock = service.client, service.clock
    await tell_all(api, edge("Ada", "knows", "Ben"), edge("Ada Lovelace", "knows", "Zoe"))
    made = await declare(api, "Ada")
    clock.move(hours=1)
    joined = rfc3339(clock.now())
    clock.move(hours=1)
    gone = await dismiss(api, "Ada")
    await undo(service, gone["operation_id"])
    assert sorted(await objects(api, **OWNER, subject="Ada", known_at=rfc3339(clock.now()))) == ["Ben", "Zoe"]
    fresh = await declare(api, "Countess")
    assert fresh["operation_id"]
    await undo(service, fresh["operation_id"])
    assert sorted(await objects(api, **OWNER, subject="Countess", known_at=rfc3339(clock.now()))) == []
    assert sorted(await objects(api, **OWNER, subject="Ada", known_at=joined)) == ["Ben", "Zoe"]
    assert made["names"] == ["Ada Lovelace", "Ada"]


async def test_aliases_of_one_user_are_nothing_to_another(api: httpx.AsyncClient) -> None:
    other = {"agent_id": "a", "user_id": "v"}
    await declare(api, "Ada")
    await tell_all(api, edge("Ada", "knows", "Ben", **other), edge("Ada Lovelace", "knows", "Zoe", **other))
    assert await objects(api, **other, subject="Ada") == ["Ben"]
    assert await objects(api, agent_id="a", subject="Ada") == ["Ben"]
    assert await objects(api, subject="Ada") == ["Ben"]
    assert (await aliases_of(api, "Ada", **other))["items"] == []
    around = (await api.get("/v1/graph/entities/Ada/neighbors", params=other)).json()
    assert [one["name"] for one in around["nodes"]] == ["Ben"]
    await tell(api, "Rome", **{**HOME, **other})
    await tell(api, "Oslo", **{**HOME, **other, "subject": "Ada Lovelace"})
    assert await objects(api, **other, subject="Ada", predicate="lives_in") == ["Rome"]


async def test_aliases_of_the_agent_hold_for_its_users(api: httpx.AsyncClient) -> None:
    await declare(api, "NYC", name="New York", agent_id="a")
    await tell_all(api, edge("Ben", "lives_in", "NYC"), edge("Zoe", "lives_in", "New York", user_id="v"))
    assert await objects(api, **OWNER, object="New York") == ["NYC"]
    assert await objects(api, agent_id="a", object="NYC") == ["NYC", "New York"]
    assert await objects(api, user_id="u", object="New York") == []
    for sight in (OWNER, {**OWNER, "include_shared": False}):
        around = (await api.get("/v1/graph/entities/New York/neighbors", params=sight)).json()
        assert [one["name"] for one in around["nodes"]] == ["Ben"]
    problem(await api.delete("/v1/graph/entities/New York/aliases", params={**OWNER, "alias": "NYC"}), 409, "conflict")


async def test_bound_keys_stay_within_their_users(service: Service) -> None:
    api = service.client
    bound, reads = await service.key(users="u"), await service.key(verbs="read")
    url, body = f"{LOVELACE}/aliases", {"user_id": "v", "aliases": ["Ada"]}
    problem(await api.post(url, json=body, headers=bound), 403, "forbidden")
    problem(await api.delete(url, params={"user_id": "v", "alias": "Ada"}, headers=bound), 403, "forbidden")
    problem(await api.post(url, json={"agent_id": "a", "aliases": ["Ada"]}, headers=bound), 403, "forbidden")
    problem(await api.post(url, json={"user_id": "u", "aliases": ["Ada"]}, headers=reads), 403, "forbidden")
    assert (await api.post(url, json={"user_id": "u", "aliases": ["Ada"]}, headers=bound)).status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        {"aliases": ["Ada"]},
        {**OWNER, "aliases": []},
        {**OWNER, "aliases": [" "]},
        {**OWNER, "aliases": ["ADA  lovelace"]},
        {**OWNER, "aliases": ["x" * 257]},
        {**OWNER, "aliases": [f"n{at}" for at in range(21)]},
    ],
)
async def test_what_cannot_be_an_alias_is_refused(api: httpx.AsyncClient, body: Json) -> None:
    problem(await api.post(f"{LOVELACE}/aliases", json=body), 422, "invalid")


async def test_an_entity_has_at_most_fifty_names(api: httpx.AsyncClient) -> None:
    for at in range(0, 40, 20):
        await declare(api, *(f"n{number}" for number in range(at, at + 20)))
    await declare(api, *(f"m{number}" for number in range(20)), expect=409)
    assert len((await aliases_of(api, "n7"))["names"]) == 41


NAMES, CITIES = ("Ada", "Ada Lovelace", "Countess"), ("Rome", "Oslo", "Paris")
TOLD = st.tuples(st.sampled_from(NAMES), st.sampled_from(CITIES), st.integers(1, 9), st.sampled_from((0.5, 1.0)))


def drawn() -> list[list[Any]]:
    """A few stories, drawn before they are told: they are told in the loop of the service."""
    stories: list[list[Any]] = []

    @profile(max_examples=6, deadline=None, phases=[Phase.generate], derandomize=True, database=None)
    @given(st.lists(TOLD, min_size=3, max_size=7))
    def draw(told: list[Any]) -> None:
        stories.append(told)

    draw()
    return stories


async def test_a_story_told_by_several_names_ends_as_by_one(api: httpx.AsyncClient) -> None:
    for at, told in enumerate(drawn()):
        ends = []
        for names in ("one", "several"):
            owner: Json = {"user_id": f"{names}-{at}"}
            await declare(api, "Ada", "Countess", **owner)
            for name, city, month, trust in told:
                fact = {**owner, "subject": "Ada" if names == "one" else name, "predicate": "lives_in", "object": city}
                since = {"valid_from": day(f"2025-0{month}-01"), "trust": trust}
                assert (await api.post("/v1/facts", json={**fact, **since})).status_code in (200, 201)
            facts = await listed(api, **owner, subject="Ada", timeline=True, status="any")
            rows = [
                (one["object"], one["valid_from"], one["valid_until"], one["status"], one["trust"]) for one in facts
            ]
            ends.append(sorted(map(str, rows)))
        assert ends[0] == ends[1], told


async def test_the_audit_trail_names_what_was_done(service: Service) -> None:
    api = service.client
    made = await declare(api, "Ada")
    await dismiss(api, "Ada")
    entries = (await api.get("/v1/audit", params={"user_id": "u"})).json()["items"]
    assert [one["action"] for one in entries] == ["dismiss_alias", "declare_aliases"]
    assert made["operation_id"] in entries[1]["records"]
    assert "Ada" not in str(entries)


async def test_two_names_said_at_once_leave_one_home(api: httpx.AsyncClient) -> None:
    owners: list[Json] = [{"agent_id": "a", "user_id": f"u{at}"} for at in range(6)]
    for owner in owners:
        await declare(api, "Ada", **owner)
    told = (("Rome", "Ada"), ("Oslo", "Ada Lovelace"))
    await asyncio.gather(*(tell(api, city, subject=name, **owner) for owner in owners for city, name in told))
    for owner in owners:
        assert len(await homes(api, "Ada", **owner)) == 1


async def test_one_name_too_many_is_told_with_the_limit(api: httpx.AsyncClient) -> None:
    """An entity and 49 aliases are 50 names."""
    owner = {"agent_id": "a", "user_id": "limits"}
    path = "/v1/graph/entities/Ada/aliases"
    for first in (0, 20, 40):
        aliases = [f"Name {n}" for n in range(first, min(first + 20, 49))]
        assert (await api.post(path, json={**owner, "aliases": aliases})).status_code == 201
    refused = problem(await api.post(path, json={**owner, "aliases": ["Name 50", "Name 51"]}), 409, "limit_reached")
    assert "at most 50 names" in refused["detail"]
    assert "make it 52" in refused["detail"]
    assert "changed meanwhile" not in refused["title"]
    assert (await api.post(path, json={**owner, "aliases": ["Name 7"]})).status_code == 200  # it is known
