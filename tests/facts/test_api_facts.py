"""Facts in two times, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.core.clock import parse_rfc3339, rfc3339
from app.embedding.onnx import OnnxModel
from app.facts.ledger import Ledger
from app.facts.schemas import FACT_GROUPS, FACTS
from tests.conftest import Service
from tests.support.facts import HOME, day, found, listed, objects, spans, tell, tell_all
from tests.support.memories import OWNER, Json, problem, shared_service

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, model: OnnxModel, anyio_backend: str
) -> AsyncIterator[httpx.AsyncClient]:
    async with shared_service(tmp_path_factory.mktemp("facts"), model) as made:
        yield made.client


async def test_a_fact_has_all_its_fields(api: httpx.AsyncClient) -> None:
    body = {
        **HOME,
        "object": "Boston",
        "object_type": "entity",
        "confidence": 0.8,
        "trust": 0.9,
        "valid_from": "2026-05-01T02:00:00+02:00",
        "valid_until": "2027-01-01T00:00:00Z",
        "cardinality": "many",
    }
    made = await api.post("/v1/facts", json=body)
    assert made.status_code == 201
    fact = made.json()
    times = {"valid_from": day("2026-05-01"), "valid_until": day("2027-01-01")}
    assert {name: fact[name] for name in body} == body | times
    assert (fact["status"], fact["version"], fact["known_until"]) == ("active", 1, None)
    assert fact["fact_id"] == fact["lineage_id"]
    assert fact["fact_id"].startswith("fact_")
    assert fact["known_from"] == fact["created_at"] == fact["updated_at"]
    assert (fact["source"]["origin"], fact["supersedes"], fact["superseded_by"], fact["disputes"]) == (
        "api",
        [],
        [],
        [],
    )
    got = await api.get(f"/v1/facts/{fact['fact_id']}")
    assert got.json() | {"superseded": []} == fact
    assert got.headers["etag"] == made.headers["etag"] == '"1"'


async def test_what_is_not_given_is_its_default(service: Service) -> None:
    fact = await tell(service.client, "Boston")
    assert (fact["confidence"], fact["trust"], fact["cardinality"], fact["valid_until"]) == (1.0, 1.0, "one", None)
    assert fact["valid_from"] == fact["known_from"] <= rfc3339(service.clock.now())
    always = await tell(service.client, "Vienna", predicate="born_in", valid_from=None)
    assert always["valid_from"] is None
    past = await tell(service.client, "Acme", predicate="worked_at", valid_until=day("2020-01-01"))
    assert past["valid_from"] is None


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"agent_id": None, "user_id": None}, ""),
        ({"subject": " "}, "/subject"),
        ({"subject": "x" * 257}, "/subject"),
        ({"predicate": None}, "/predicate"),
        ({"object": ""}, "/object"),
        ({"object": 7}, "/object"),
        ({"object": "x" * 257, "object_type": "entity"}, "/object"),
        ({"object_type": "thing"}, "/object_type"),
        ({"confidence": 1.1}, "/confidence"),
        ({"trust": -0.1}, "/trust"),
        ({"cardinality": "two"}, "/cardinality"),
        ({"on_conflict": "sum"}, "/on_conflict"),
        ({"valid_from": "2026-01-01T00:00:00"}, "/valid_from"),
        ({"valid_from": day("2026-01-02"), "valid_until": day("2026-01-02")}, "/valid_until"),
        ({"status": "active"}, "/status"),
        ({"known_from": day("2026-01-02")}, "/known_from"),
    ],
)
@pytest.mark.before_store
async def test_bad_fields_are_named(shared: httpx.AsyncClient, fields: Json, pointer: str) -> None:
    bad = {**HOME, "object": "Boston", **fields}
    problem(await shared.post("/v1/facts", json=bad), 422, "invalid", pointer)
    both = {"items": [{**HOME, "object": "Rome"}, bad]}
    problem(await shared.post("/v1/facts/batch", json=both), 422, "invalid", f"/items/1{pointer}")
    assert await listed(shared, status="any", timeline=True) == []


# --- Two times --------------------------------------------------------------------------------------------------------


async def test_what_was_true_and_what_was_known(service: Service) -> None:
    """Seed 004: the user moves. Everything that was ever answered can be answered again."""
    api, clock = service.client, service.clock
    old = await tell(api, "New York", "2019-01-01")
    then = rfc3339(clock.now())
    clock.move(days=1)
    new = await tell(api, "Boston", "2026-05-01")
    assert new["supersedes"] == [old["fact_id"]]
    assert await objects(api, subject="ada") == ["Boston"]
    assert await objects(api, as_of=day("2025-06-01")) == ["New York"]
    assert await objects(api, as_of=day("2018-12-31")) == []
    assert await objects(api, known_at=then) == ["New York"]
    assert await objects(api, known_at=rfc3339(clock.now() - timedelta(days=2))) == []
    assert await spans(api) == [("New York", "2019-01-01", "2026-05-01"), ("Boston", "2026-05-01", None)]
    assert await spans(api, known_at=then) == [("New York", "2019-01-01", None)]
    gone = (await api.get(f"/v1/facts/{old['fact_id']}")).json()
    assert (gone["status"], gone["known_until"], gone["version"]) == ("superseded", new["known_from"], 2)
    (bounded,) = await listed(api, as_of=day("2025-06-01"))
    assert bounded["lineage_id"] == old["fact_id"] != bounded["fact_id"]
    assert (bounded["supersedes"], gone["superseded_by"]) == (
        [old["fact_id"]],
        [bounded["fact_id"], new["fact_id"]],
    )


async def test_intervals_are_closed_open_in_both_times(api: httpx.AsyncClient) -> None:
    await tell(api, "New York", "2019-01-01")
    new = await tell(api, "Boston", "2026-05-01")
    assert await objects(api, as_of=day("2026-05-01")) == ["Boston"]
    assert await objects(api, as_of="2026-04-30T23:59:59.999Z") == ["New York"]
    assert await objects(api, known_at=new["known_from"]) == ["Boston"]
    before = rfc3339(parse_rfc3339(new["known_from"]) - timedelta(milliseconds=1))
    assert await objects(api, known_at=before) == ["New York"]


async def test_the_same_again_is_answered_and_not_stored(api: httpx.AsyncClient) -> None:
    first = await tell(api, "New York", "2019-01-01", confidence=0.7)
    for again in ("New York", "  new   YORK ", "Ｎｅｗ York"):
        assert await tell(api, again, "2019-01-01", 200, confidence=0.2) == first
        assert await tell(api, again, None, 200, subject="ADA", predicate="Lives_In") == first
    assert len(await listed(api, status="any", timeline=True)) == 1


async def test_an_end_is_added_to_what_had_none(api: httpx.AsyncClient) -> None:
    first = await tell(api, "Acme", "2019-01-01", predicate="works_at")
    ended = await tell(api, "Acme", predicate="works_at", valid_until=day("2026-02-01"))
    assert (ended["valid_from"], ended["lineage_id"]) == (first["valid_from"], first["fact_id"])
    assert await objects(api, predicate="works_at") == []
    assert await objects(api, predicate="works_at", as_of=day("2026-01-31")) == ["Acme"]


async def test_each_status_is_of_its_time(service: Service) -> None:
    api = service.client
    await tell(api, "New York", "2019-01-01")
    moved = await tell(api, "Boston", "2026-05-01")
    await tell(api, "Rome", "2026-05-20", trust=0.5)
    late = rfc3339(service.clock.now())
    await api.post(f"/v1/facts/{moved['fact_id']}/retract")
    every: Json = {"timeline": True, "status": "any"}
    assert await objects(api, status="active") == []
    assert await objects(api, status="disputed") == ["Rome"]
    assert await objects(api, status="retracted") == ["Boston"]
    assert await objects(api, status="superseded") == ["New York"]
    assert await objects(api, **every) == ["Boston", "New York", "New York", "Rome"]
    assert await objects(api, status="active", known_at=late) == ["Boston"]
    assert await objects(api, status="retracted", known_at=late) == []
    assert await objects(api, **every, known_at=moved["known_from"]) == ["Boston", "New York", "New York"]


async def test_facts_are_listed_by_each_filter(api: httpx.AsyncClient) -> None:
    await tell_all(
        api,
        {"subject": "Ada", "predicate": "knows", "object": "Ben", "cardinality": "many"},
        {"subject": "Ada", "predicate": "knows", "object": "Cleo", "cardinality": "many", "agent_id": "b"},
        {"subject": "Ben", "predicate": "age", "object": "40", "user_id": None},
    )
    for params, wanted in (
        ({}, ["40", "Ben", "Cleo"]),
        ({"agent_id": "a"}, ["40", "Ben"]),
        ({"user_id": "u"}, ["Ben", "Cleo"]),
        ({"agent_id": "a", "user_id": "u"}, ["Ben"]),
        ({"subject": "aDa"}, ["Ben", "Cleo"]),
        ({"predicate": "KNOWS", "subject": "ada"}, ["Ben", "Cleo"]),
        ({"object": "ben"}, ["Ben"]),
        ({"object_type": "literal"}, ["40"]),
        ({"subject": "A"}, []),
    ):
        assert await objects(api, **params) == wanted, params
    first = (await api.get("/v1/facts", params={"limit": 2, "user_id": "u"})).json()
    assert first["next_cursor"] is None
    page = (await api.get("/v1/facts", params={"limit": 2, "order": "asc"})).json()
    rest = (await api.get("/v1/facts", params={"limit": 2, "order": "asc", "cursor": page["next_cursor"]})).json()
    assert [f["object"] for f in (*page["items"], *rest["items"])] == ["Ben", "Cleo", "40"]
    moved: Json = {"limit": 2, "order": "asc", "subject": "ada", "cursor": page["next_cursor"]}
    problem(await api.get("/v1/facts", params=moved), 400, "invalid_cursor")
    both: Json = {"timeline": True, "as_of": day("2026-01-01")}
    problem(await api.get("/v1/facts", params=both), 422, "invalid", "/query/as_of")


async def test_only_the_same_scope_subject_and_predicate_meet(api: httpx.AsyncClient) -> None:
    await tell(api, "New York")
    for other in ({"agent_id": "b"}, {"agent_id": None}, {"user_id": "v"}, {"subject": "Ben"}, {"predicate": "was_in"}):
        await tell(api, "Boston", **other)
    assert await objects(api, **OWNER, subject="Ada", predicate="lives_in") == ["New York"]
    assert len(await listed(api)) == 6


# --- What gave way is told --------------------------------------------------------------------------------------------


async def test_what_gave_way_is_told_with_what_keeps_both(api: httpx.AsyncClient) -> None:
    """Nobody says that there can be several allergies: the first answer that ends one says so, and how to keep it."""
    first = await tell(api, "walnuts", "2019-01-01", predicate="allergic_to")
    assert first["superseded"] == []
    kiwi = await tell(api, "kiwi", predicate="allergic_to")
    (ended,) = kiwi["superseded"]
    assert (ended["fact_id"], ended["object"]) == (first["fact_id"], "walnuts")
    assert (ended["valid_from"], ended["valid_until"]) == (first["valid_from"], None)
    assert await objects(api, predicate="allergic_to") == ["kiwi"]
    again = await api.post("/v1/facts", json=ended["keep_both"])
    assert again.status_code == 201
    assert (again.json()["superseded"], again.json()["valid_from"]) == ([], first["valid_from"])
    assert await objects(api, predicate="allergic_to") == ["kiwi", "walnuts"]
    assert (await tell(api, "penicillin", predicate="allergic_to"))["superseded"] == []
    assert await objects(api, predicate="allergic_to") == ["kiwi", "penicillin", "walnuts"]


async def test_a_batch_tells_what_gave_way_within_it(api: httpx.AsyncClient) -> None:
    body = {**OWNER, "subject": "Ada", "predicate": "speaks"}
    items = [{**body, "object": language} for language in ("Dutch", "French", "French")]
    made = (await api.post("/v1/facts/batch", json={"items": items})).json()["items"]
    assert [[old["object"] for old in item["superseded"]] for item in made] == [[], ["Dutch"], []]


async def test_the_profile_has_one_value_so_nothing_keeps_both(api: httpx.AsyncClient) -> None:
    home = {"user_id": "u", "subject": "@user", "predicate": "lives_in"}
    await api.post("/v1/facts", json={**home, "object": "Oslo"})
    (ended,) = (await api.post("/v1/facts", json={**home, "object": "Bergen"})).json()["superseded"]
    assert (ended["object"], ended["keep_both"]) == ("Oslo", None)


async def test_a_predicate_that_was_many_once_stays_many_in_its_scope(api: httpx.AsyncClient) -> None:
    await tell(api, "tea", predicate="likes", cardinality="many")
    for subject in ("Ada", "Ben"):
        for thing in ("jazz", "rain"):
            told = await tell(api, thing, predicate="likes", subject=subject)
            assert (told["cardinality"], told["superseded"]) == ("many", [])
    assert (await tell(api, "snow", predicate="likes", cardinality="one"))["cardinality"] == "one"
    assert (await tell(api, "hail", predicate="likes"))["cardinality"] == "many"
    assert (await tell(api, "jazz", predicate="likes", user_id="v"))["cardinality"] == "one", "another scope"
    items = [
        {**OWNER, "subject": subject, "predicate": "plays", "object": game, **more}
        for subject, game, more in (("Ada", "chess", {"cardinality": "many"}), ("Ben", "go", {}), ("Ben", "bridge", {}))
    ]
    made = (await api.post("/v1/facts/batch", json={"items": items})).json()["items"]
    assert [item["cardinality"] for item in made] == ["many"] * 3


# --- Retracting, disputes, deleting -----------------------------------------------------------------------------------


async def test_what_is_retracted_was_known_and_brings_nothing_back(service: Service) -> None:
    api = service.client
    await tell(api, "New York", "2019-01-01")
    wrong = await tell(api, "Boston", "2026-05-01")
    path = f"/v1/facts/{wrong['fact_id']}"
    problem(await api.post(f"{path}/retract", headers={"If-Match": '"2"'}), 412)
    gone = await api.post(f"{path}/retract", headers={"If-Match": '"1"'})
    assert gone.status_code == 200
    assert (gone.json()["status"], gone.json()["superseded_by"], gone.headers["etag"]) == ("retracted", [], '"2"')
    assert (await api.post(f"{path}/retract")).json() == gone.json()
    assert await spans(api) == [("New York", "2019-01-01", "2026-05-01")]
    assert await objects(api, known_at=wrong["known_from"]) == ["Boston"]
    again = await tell(api, "New York", "2026-05-01")
    assert await spans(api) == [("New York", "2019-01-01", None)]
    assert again["lineage_id"] != wrong["lineage_id"]


async def test_what_was_superseded_cannot_be_retracted(api: httpx.AsyncClient) -> None:
    old = await tell(api, "New York", "2019-01-01")
    new = await tell(api, "Boston", "2026-05-01")
    answer = problem(await api.post(f"/v1/facts/{old['fact_id']}/retract"), 409, "conflict")
    assert new["fact_id"] in answer["detail"]
    problem(await api.post(f"/v1/facts/{old['fact_id']}/resolve", json={"keep": "both"}), 409, "conflict")


async def test_less_trust_disputes_and_changes_nothing(api: httpx.AsyncClient) -> None:
    home = await tell(api, "New York", "2019-01-01")
    weak = await tell(api, "Boston", "2026-05-01", trust=0.4)
    assert (weak["status"], weak["disputes"], weak["supersedes"]) == ("disputed", [home["fact_id"]], [])
    assert await tell(api, "Boston", "2026-05-01", 200, trust=0.4) == weak
    assert await spans(api) == [("New York", "2019-01-01", None)]
    rome = await tell(api, "Rome", "2026-05-01", trust=0.9, on_conflict="last_write_wins")
    assert (rome["status"], rome["disputes"]) == ("disputed", [home["fact_id"]])
    beside = await tell(api, "Oslo", "2026-05-01", trust=0.1, on_conflict="keep_both")
    assert (beside["status"], beside["cardinality"]) == ("active", "many")


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ("it", [("New York", "2019-01-01", "2026-05-01"), ("Boston", "2026-05-01", None)]),
        ("other", [("New York", "2019-01-01", None)]),
        ("both", [("New York", "2019-01-01", None), ("Boston", "2026-05-01", None)]),
    ],
)
async def test_a_dispute_is_settled(service: Service, keep: str, left: list[tuple[str, str, str | None]]) -> None:
    api = service.client
    home = await tell(api, "New York", "2019-01-01")
    weak = await tell(api, "Boston", "2026-05-01", trust=0.4)
    before = rfc3339(service.clock.now())
    elsewhere = await tell(api, "Ben", predicate="knows")
    path = f"/v1/facts/{weak['fact_id']}/resolve"
    for wrong in (elsewhere["fact_id"], "fact_x"):
        problem(await api.post(path, json={"keep": wrong}), 422, "invalid", "/keep")
    chosen = {"it": weak["fact_id"], "other": home["fact_id"], "both": "both"}[keep]
    kept = (await api.post(path, json={"keep": chosen})).json()
    assert (kept["status"], kept["lineage_id"]) == ("active", (home if keep == "other" else weak)["lineage_id"])
    assert kept["trust"] == (0.4 if keep == "both" else 1.0), "it stands where what it replaced stood"
    assert await spans(api, predicate="lives_in") == left
    was = (await api.get(f"/v1/facts/{weak['fact_id']}")).json()
    assert was["status"] == ("retracted" if keep == "other" else "superseded")
    assert await objects(api, status="disputed") == []
    assert await objects(api, status="disputed", known_at=before) == ["Boston"]
    assert await objects(api, predicate="lives_in", known_at=before) == ["New York"]
    problem(await api.post(path, json={"keep": chosen}), 409, "conflict")


async def test_history_holds_every_statement_of_an_assertion(api: httpx.AsyncClient) -> None:
    first = await tell(api, "New York", "2019-01-01")
    await tell(api, "Rome", "2021-01-01", valid_until=day("2022-01-01"))
    await tell(api, "Boston", "2026-05-01")
    for fact in await listed(api, object="new york", status="any", timeline=True):
        page = (await api.get(f"/v1/facts/{fact['fact_id']}/history", params={"order": "asc"})).json()
        assert [(f["valid_from"][:4], (f["valid_until"] or "now")[:4], f["status"]) for f in page["items"]] == [
            ("2019", "now", "superseded"),
            ("2019", "2021", "active"),
            ("2022", "now", "superseded"),
            ("2022", "2026", "active"),
        ]
        assert page["items"][0] == (await api.get(f"/v1/facts/{first['fact_id']}")).json()


async def test_deleting_leaves_nothing_of_an_assertion(service: Service) -> None:
    api = service.client
    first = await tell(api, "New York", "2019-01-01")
    boston = await tell(api, "Boston", "2026-05-01")
    (left,) = await listed(api, object="new york", timeline=True)
    problem(await api.delete(f"/v1/facts/{left['fact_id']}", headers={"If-Match": '"7"'}), 412)
    assert (await api.delete(f"/v1/facts/{left['fact_id']}")).status_code == 204
    for fact_id in (first["fact_id"], left["fact_id"]):
        problem(await api.get(f"/v1/facts/{fact_id}"), 404)
        problem(await api.get(f"/v1/facts/{fact_id}/history"), 404)
    assert await objects(api, status="any", timeline=True) == ["Boston"]
    assert (await api.delete(f"/v1/facts/{boston['fact_id']}")).status_code == 204
    counts = [await service.resources.store.count(c, None) for c in (FACTS, FACT_GROUPS)]
    assert counts == [0, 0]
    await tell(api, "Boston")


async def removed(api: httpx.AsyncClient, fact: Json) -> None:
    answer = await api.delete(f"/v1/facts/{fact['fact_id']}")
    assert answer.status_code == 204, answer.text


async def test_deleting_a_fact_brings_back_what_it_had_ended(service: Service) -> None:
    api = service.client
    home = await tell(api, "New York", "2019-01-01")
    wrong = await tell(api, "Boston", "2021-01-01")
    await tell(api, "Rome", "2023-01-01")
    await removed(api, wrong)
    assert await spans(api) == [("New York", "2019-01-01", "2023-01-01"), ("Rome", "2023-01-01", None)]
    (back,) = await listed(api, object="New York", timeline=True)
    assert back["lineage_id"] == home["fact_id"]
    assert await found(api, "New York", as_of=day("2022-01-01")) == ["New York"]


async def test_deleting_brings_back_all_that_was_replaced_as_a_whole(api: httpx.AsyncClient) -> None:
    await tell(api, "New York", "2019-01-01", valid_until=day("2021-01-01"))
    await tell(api, "Boston", "2021-01-01")
    wrong = await tell(api, "Rome", "2020-01-01", on_conflict="last_write_wins")
    assert await spans(api) == [("Rome", "2020-01-01", None)]
    await removed(api, wrong)
    assert await spans(api) == [("New York", "2019-01-01", "2021-01-01"), ("Boston", "2021-01-01", None)]


async def test_deleting_brings_back_nothing_that_was_retracted_or_says_the_same(api: httpx.AsyncClient) -> None:
    await tell(api, "New York", "2019-01-01")
    wrong = await tell(api, "Boston", "2021-01-01")
    (left,) = await listed(api, object="New York", timeline=True)
    await api.post(f"/v1/facts/{left['fact_id']}/retract")
    await removed(api, wrong)
    assert await spans(api) == []


@pytest.mark.parametrize("keep", ["it", "open"])
async def test_a_dispute_whose_one_side_is_deleted_is_over(api: httpx.AsyncClient, keep: str) -> None:
    """Open: what was disputed holds. Decided for what was disputed: what had given way to it comes back."""
    home = await tell(api, "New York", "2019-01-01")
    weak = await tell(api, "Boston", "2026-05-01", trust=0.4)
    if keep == "it":
        kept = (await api.post(f"/v1/facts/{weak['fact_id']}/resolve", json={"keep": weak["fact_id"]})).json()
        await removed(api, kept)
        assert await spans(api) == [("New York", "2019-01-01", None)]
    else:
        await removed(api, home)
        assert await spans(api) == [("Boston", "2026-05-01", None)]
        (held,) = await listed(api)
        assert (held["status"], held["trust"], held["lineage_id"]) == ("active", 0.4, weak["lineage_id"])
    assert await objects(api, status="disputed") == []


async def test_a_dispute_with_two_goes_on_with_the_one_that_is_left(api: httpx.AsyncClient) -> None:
    first = await tell(api, "New York", "2019-01-01", valid_until=day("2021-01-01"))
    second = await tell(api, "Boston", "2021-01-01")
    weak = await tell(api, "Rome", "2020-01-01", trust=0.4, valid_until=day("2022-01-01"))
    assert len(weak["disputes"]) == 2
    await removed(api, first)
    assert await objects(api, status="disputed", as_of=day("2020-06-01")) == ["Rome"]
    await removed(api, second)
    assert await spans(api) == [("Rome", "2020-01-01", "2022-01-01")]


async def test_a_deletion_under_an_alias_brings_back_what_another_name_said(api: httpx.AsyncClient) -> None:
    await tell(api, "New York", "2019-01-01", subject="Ada Lovelace")
    names = {**OWNER, "aliases": ["Ada"]}
    assert (await api.post("/v1/graph/entities/Ada%20Lovelace/aliases", json=names)).status_code == 201
    wrong = await tell(api, "Boston", "2021-01-01", subject="Ada")
    await removed(api, wrong)
    assert await spans(api) == [("New York", "2019-01-01", None)]


async def test_the_profile_shows_what_comes_back(api: httpx.AsyncClient) -> None:
    home = {"user_id": "u", "subject": "@user", "predicate": "lives_in"}
    await api.post("/v1/facts", json={**home, "object": "Oslo"})
    wrong = (await api.post("/v1/facts", json={**home, "object": "Bergen"})).json()
    await removed(api, wrong)
    assert (await api.get("/v1/users/u/profile")).json()["home"] == "Oslo"


async def test_others_go_on_between_the_facts_of_a_batch(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, seen, one = 0, list[int](), Ledger.assert_fact

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def noted(ledger: Ledger, *stated: Any) -> Any:
        seen.append(turns)
        return one(ledger, *stated)

    monkeypatch.setattr(Ledger, "assert_fact", noted)
    waiting = asyncio.create_task(others())
    try:
        items = [{**HOME, "object": f"House {number}"} for number in range(20)]
        assert (await service.client.post("/v1/facts/batch", json={"items": items})).status_code == 201
    finally:
        waiting.cancel()
    assert len(seen) == len({*seen}) == 20


async def test_a_batch_is_one_change(service: Service) -> None:
    api = service.client
    await tell(api, "New York", "2019-01-01")
    made = await tell_all(
        api,
        {**HOME, "object": "Rome", "valid_from": day("2021-01-01")},
        {**HOME, "object": "Boston", "valid_from": day("2026-05-01")},
        {**HOME, "object": "boston"},
    )
    assert len({fact["known_from"] for fact in made}) == 1
    assert made[1] == {**made[2], "superseded": made[1]["superseded"]}
    assert made[0]["status"] == "superseded", "it was bounded by the next item"
    assert await spans(api) == [
        ("New York", "2019-01-01", "2021-01-01"),
        ("Rome", "2021-01-01", "2026-05-01"),
        ("Boston", "2026-05-01", None),
    ]
    bound = await service.key(users=["u"])
    mixed = {"items": [{**HOME, "object": "Oslo"}, {**HOME, "object": "Oslo", "user_id": "v"}]}
    problem(await api.post("/v1/facts/batch", json=mixed, headers=bound), 403, "forbidden")
    assert len((await api.get("/v1/facts", params={"object": "oslo"}, headers=bound)).json()["items"]) == 0
    for items in ([], [{**HOME, "object": "x"}] * 501):
        problem(await api.post("/v1/facts/batch", json={"items": items}, headers=bound), 422, "invalid", "/items")


async def test_an_idempotency_key_asserts_once(api: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "k"}
    first = await api.post("/v1/facts", json={**HOME, "object": "Boston"}, headers=key)
    again = await api.post("/v1/facts", json={**HOME, "object": "Boston"}, headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    problem(await api.post("/v1/facts", json={**HOME, "object": "Rome"}, headers=key), 422, "idempotency_mismatch")
    problem(await api.post("/v1/facts", json={**HOME, "object": "Rome"}, headers={"If-Match": '"1"'}), 412)
