"""Names, equal and similar texts, and what replaces what."""

import asyncio
from typing import Any

import httpx
import pytest

from app.settings import JobSettings, Settings
from tests.conftest import Service, Starter, TurnedClock
from tests.support.memories import OWNER, batch, found, history, listed, problem, remember

pytestmark = pytest.mark.anyio


# --- key --------------------------------------------------------------------------------------------------------------


async def test_a_name_that_is_there_is_updated(api: httpx.AsyncClient) -> None:
    old = await remember(api, "lives in Oslo", key="home", tags=["place"], importance=0.9)
    new = await remember(api, "lives in Bergen", 200, key="home")
    assert (new["memory_id"], new["version"], new["content"]) == (old["memory_id"], 2, "lives in Bergen")
    assert (new["tags"], new["importance"]) == (["place"], 0.9)  # what is absent stays
    assert [past["record"]["content"] for past in await history(api, old["memory_id"])] == ["lives in Oslo"]
    assert await found(api, "Oslo", mode="text") == []
    assert await found(api, "Bergen", mode="text") == ["lives in Bergen"]


async def test_the_same_under_the_same_name_changes_nothing(api: httpx.AsyncClient) -> None:
    await remember(api, "lives in Oslo", key="home")
    again = await remember(api, "lives in Oslo", 200, key="home")
    assert again["version"] == 1


async def test_a_name_goes_before_deduplication(api: httpx.AsyncClient) -> None:
    plain = await remember(api, "lives in Oslo")
    named = await remember(api, "lives in Oslo", 201, key="home")
    assert named["memory_id"] != plain["memory_id"]


@pytest.mark.parametrize("other", [{"agent_id": None}, {"user_id": None}, {"user_id": "u2"}, {"agent_id": "a2"}])
async def test_a_name_belongs_to_its_scope_empty_sides_included(api: httpx.AsyncClient, other: dict[str, Any]) -> None:
    mine = await remember(api, "one", key="home")
    theirs = await remember(api, "two", 201, key="home", **other)
    assert (await remember(api, "three", 200, key="home", **other))["memory_id"] == theirs["memory_id"]
    assert (await api.get(f"/v1/memories/{mine['memory_id']}")).json()["content"] == "one"


async def test_an_expired_memory_makes_room_for_its_name(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    old = await remember(api, "one", key="home", expires_at="2026-06-02T00:00:00Z")
    clock.move(days=2)
    new = await remember(api, "two", 201, key="home")
    assert new["memory_id"] != old["memory_id"]
    assert await listed(api) == ["two"]


async def test_twenty_posts_of_one_name_at_once_leave_one_memory(api: httpx.AsyncClient) -> None:
    made = await asyncio.gather(
        *(api.post("/v1/memories", json={**OWNER, "content": f"n {i}", "key": "k"}) for i in range(20))
    )
    assert sorted(response.status_code for response in made) == [200] * 19 + [201]
    assert len({response.json()["memory_id"] for response in made}) == 1
    (last,) = [response.json() for response in made if response.json()["version"] == 20]
    assert await listed(api, key="k") == [last["content"]]
    assert len(await history(api, last["memory_id"])) == 19


# --- Equal texts ------------------------------------------------------------------------------------------------------


async def test_equal_texts_are_one_whatever_their_case_space_and_width(api: httpx.AsyncClient) -> None:
    first = await remember(api, "Straße  ＡＢＣ １２ tea\n")
    for variant in ("straße abc 12 TEA", "STRASSE ABC 12 tea", " Straße\tABC\u3000１２ tea"):
        again = await remember(api, variant, 200)
        assert (again["memory_id"], again["content"], again["version"]) == (first["memory_id"], first["content"], 1)
    assert len(await listed(api)) == 1


@pytest.mark.parametrize("other", [{"memory_type": "preference"}, {"user_id": None}, {"agent_id": "a2"}])
async def test_equal_texts_of_another_type_or_pair_stand_apart(api: httpx.AsyncClient, other: dict[str, Any]) -> None:
    await remember(api, "tea")
    await remember(api, "tea", 201, **other)


OTHERWISE: dict[str, dict[str, Any]] = {
    "context": {"context": "at work"},
    "time": {"event_at": "2026-05-02T08:00:00Z"},
    "start of validity": {"valid_from": "2026-05-02T08:00:00Z"},
    "end of validity": {"valid_until": "2026-07-02T08:00:00Z"},
    "expiry": {"expires_at": "2026-07-02T08:00:00Z"},
    "metadata": {"metadata": {"door": 2}},
    "key": {"key": "gate"},
}
"""Each makes another memory of the same text."""


@pytest.mark.parametrize("first", ["with", "without"])
@pytest.mark.parametrize("other", OTHERWISE.values(), ids=OTHERWISE)
async def test_an_equal_text_that_differs_otherwise_is_another_memory(
    api: httpx.AsyncClient, other: dict[str, Any], first: str
) -> None:
    fields: list[dict[str, Any]] = [other, {}] if first == "with" else [{}, other]
    old, new = [await remember(api, "Gate code is 4711", 201, **given) for given in fields]
    assert old["memory_id"] != new["memory_id"]
    for given, made in zip(fields, (old, new), strict=True):
        assert (await remember(api, "gate CODE is 4711", 200, **given))["memory_id"] == made["memory_id"]
    shown = 1 if "event_at" in other else 2
    assert [text.lower() for text in await found(api, "Gate code")] == ["gate code is 4711"] * shown
    assert len(await listed(api)) == 2


@pytest.mark.parametrize("other", OTHERWISE.values(), ids=OTHERWISE)
async def test_items_of_a_batch_that_differ_otherwise_are_two(api: httpx.AsyncClient, other: dict[str, Any]) -> None:
    same = {"content": "Gate code is 4711"}
    made = await batch(api, same, {**same, **other}, same)
    first, second, third = [item["memory_id"] for item in made["items"]]
    assert first == third != second


async def test_said_again_without_expiry_it_stays_when_the_first_has_expired(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "Gate code is 4711", expires_at="2026-06-02T00:00:00Z")
    await remember(api, "Gate code is 4711")
    clock.move(days=2)
    assert await found(api, "Gate code") == ["Gate code is 4711"]


async def test_a_patch_that_makes_a_memory_another_makes_room_for_the_first(api: httpx.AsyncClient) -> None:
    first = await remember(api, "Gate code is 4711")
    await api.patch(f"/v1/memories/{first['memory_id']}", json={"context": "at night"})
    again = await remember(api, "Gate code is 4711", 201)
    assert (await remember(api, "Gate code is 4711", 200, context="At night"))["memory_id"] == first["memory_id"]
    assert (await remember(api, "Gate code is 4711", 200))["memory_id"] == again["memory_id"]


async def test_said_again_a_memory_takes_the_higher_trust_and_importance_the_new_tags_and_the_pin(
    api: httpx.AsyncClient,
) -> None:
    first = await remember(api, "tea", trust=0.5, importance=0.8, tags=["a", "b"])
    again = await remember(api, "Tea", 200, trust=0.9, importance=0.3, tags=["b", "c"], pinned=True)
    assert (again["memory_id"], again["version"], again["content"]) == (first["memory_id"], 2, "tea")
    assert (again["trust"], again["importance"], again["tags"], again["pinned"]) == (0.9, 0.8, ["a", "b", "c"], True)
    last = await remember(api, "tea", 200, trust=0.1, importance=1.0)
    assert (last["trust"], last["importance"], last["base_importance"], last["pinned"]) == (0.9, 1.0, 1.0, True)
    assert [past["version"] for past in await history(api, first["memory_id"])] == [2, 1]


async def test_said_again_with_nothing_new_changes_nothing(api: httpx.AsyncClient) -> None:
    await remember(api, "tea", trust=0.9, importance=0.8, tags=["a"])
    assert (await remember(api, "tea", 200, trust=0.5, importance=0.2, tags=["a"]))["version"] == 1


async def test_an_importance_that_has_faded_rises_when_the_memory_is_said_again(
    api: httpx.AsyncClient, clock: TurnedClock
) -> None:
    await remember(api, "tea", importance=0.6)
    clock.move(days=365)
    assert (await remember(api, "tea", 200, importance=0.6))["importance"] == 0.6


async def test_tags_beyond_the_most_are_refused_and_nothing_is_lost(api: httpx.AsyncClient) -> None:
    await remember(api, "tea", tags=[f"t{i}" for i in range(40)])
    body = {**OWNER, "content": "tea", "tags": [f"u{i}" for i in range(40)]}
    problem(await api.post("/v1/memories", json=body), 422, pointer="/tags")
    batched = {"items": [{**OWNER, "content": "coffee"}, body]}
    problem(await api.post("/v1/memories/batch", json=batched), 422, pointer="/items/1/tags")
    assert await listed(api) == ["tea"]


async def test_twins_of_one_batch_share_what_they_say(api: httpx.AsyncClient) -> None:
    twins = [{"content": "tea", "tags": ["a"], "trust": 0.5}, {"content": "TEA", "tags": ["b"], "importance": 0.9}]
    made = await batch(api, *twins)
    kept = (await api.get(f"/v1/memories/{made['items'][0]['memory_id']}")).json()
    assert (kept["tags"], kept["trust"], kept["importance"]) == (["a", "b"], 1.0, 0.9)


async def test_deduplication_can_be_declined(api: httpx.AsyncClient) -> None:
    first = await remember(api, "tea")
    second = await remember(api, "tea", 201, deduplicate=False)
    assert first["memory_id"] != second["memory_id"]
    assert (await remember(api, "tea", 200))["memory_id"] == first["memory_id"]


async def test_equal_texts_in_one_batch_are_one(api: httpx.AsyncClient) -> None:
    made = await batch(api, {"content": "tea"}, {"content": "coffee"}, {"content": "TEA"})
    ids = [item["memory_id"] for item in made["items"]]
    assert ids[0] == ids[2] != ids[1]
    assert len(await listed(api)) == 2


async def test_equal_texts_posted_at_once_are_one(api: httpx.AsyncClient) -> None:
    made = await asyncio.gather(*(remember_any(api, "tea") for _ in range(20)))
    assert sorted(status for status, _ in made) == [200] * 19 + [201]
    assert len({memory_id for _, memory_id in made}) == 1


async def remember_any(api: httpx.AsyncClient, content: str) -> tuple[int, str]:
    made = await api.post("/v1/memories", json={**OWNER, "content": content})
    return made.status_code, made.json()["memory_id"]


async def test_an_expired_equal_does_not_count(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    await remember(api, "tea", expires_at="2026-06-02T00:00:00Z")
    clock.move(days=2)
    await remember(api, "tea", 201)


async def test_what_was_changed_by_patch_may_equal_another(api: httpx.AsyncClient) -> None:
    await remember(api, "tea")
    other = await remember(api, "coffee")
    patched = await api.patch(f"/v1/memories/{other['memory_id']}", json={"content": "tea"})
    assert patched.status_code == 200


async def test_an_archived_equal_does_not_count_and_can_come_back(api: httpx.AsyncClient) -> None:
    old = await remember(api, "tea")
    path = f"/v1/memories/{old['memory_id']}"
    await api.patch(path, json={"status": "archived"})
    await remember(api, "tea", 201)
    back = await api.patch(path, json={"status": "active"})
    assert back.status_code == 200, back.text
    assert await found(api, "tea") == ["tea"]  # identical texts appear once


async def test_identical_texts_of_a_search_count_once_towards_k(api: httpx.AsyncClient) -> None:
    for _ in range(3):
        await remember(api, "tea at five", deduplicate=False)
    await remember(api, "tea at six")
    assert sorted(await found(api, "tea", top_k=2)) == ["tea at five", "tea at six"]


# --- supersedes -------------------------------------------------------------------------------------------------------


async def test_what_is_superseded_is_kept_linked_and_out_of_search(api: httpx.AsyncClient) -> None:
    old = await remember(api, "lives in Oslo")
    new = await remember(api, "moved to Bergen", supersedes=[old["memory_id"]])
    assert new["supersedes"] == [old["memory_id"]]
    kept = (await api.get(f"/v1/memories/{old['memory_id']}")).json()
    assert (kept["status"], kept["superseded_by"], kept["version"]) == ("superseded", new["memory_id"], 2)
    assert [past["record"]["status"] for past in await history(api, old["memory_id"])] == ["active"]
    assert await found(api, "Oslo") == ["moved to Bergen"]
    assert await found(api, "Oslo", status="superseded") == ["lives in Oslo"]
    assert await listed(api) == ["moved to Bergen"]
    assert await listed(api, status="superseded") == ["lives in Oslo"]


async def test_superseding_what_is_superseded_already_is_a_conflict(api: httpx.AsyncClient) -> None:
    old = await remember(api, "one")
    await remember(api, "two", supersedes=[old["memory_id"]])
    again = await api.post("/v1/memories", json={**OWNER, "content": "three", "supersedes": [old["memory_id"]]})
    problem(again, 409, "conflict")
    assert await listed(api) == ["two"]


async def test_superseding_an_unknown_an_expired_or_a_foreign_memory_answers_alike(
    service: Service, clock: TurnedClock
) -> None:
    ours, theirs = await service.key("ours"), await service.key("theirs")
    api = service.client
    foreign = await api.post("/v1/memories", json={**OWNER, "content": "secret"}, headers=theirs)
    gone = {**OWNER, "content": "gone", "expires_at": "2026-06-02T00:00:00Z"}
    expired = await api.post("/v1/memories", json=gone, headers=ours)
    clock.move(days=2)
    answers = []
    for memory_id in ("mem_none", foreign.json()["memory_id"], expired.json()["memory_id"]):
        body = {**OWNER, "content": "x", "supersedes": [memory_id]}
        answer = problem(await api.post("/v1/memories", json=body, headers=ours), 422, pointer="/supersedes/0")
        answers.append({name: value for name, value in answer.items() if name != "request_id"})
    assert answers[0] == answers[1] == answers[2]
    kept = await api.get(f"/v1/memories/{foreign.json()['memory_id']}", headers=theirs)
    assert kept.json()["status"] == "active"


@pytest.mark.parametrize("owner", [{"user_id": "ada"}, {"agent_id": "a2"}, {"user_id": None}, {"agent_id": None}])
async def test_no_memory_of_another_pair_can_be_superseded(api: httpx.AsyncClient, owner: dict[str, Any]) -> None:
    theirs = await remember(api, "lives in Oslo", **owner)
    body = {**OWNER, "content": "x", "supersedes": [theirs["memory_id"]]}
    problem(await api.post("/v1/memories", json=body), 422, "invalid", "/supersedes/0")
    problem(await api.post("/v1/memories/batch", json={"items": [body]}), 422, "invalid", "/items/0/supersedes/0")
    assert (await api.get(f"/v1/memories/{theirs['memory_id']}")).json()["status"] == "active"
    assert await listed(api) == ["lives in Oslo"]


async def test_of_many_that_supersede_one_memory_at_once_one_wins(api: httpx.AsyncClient) -> None:
    old = await remember(api, "old")
    bodies = [{**OWNER, "content": f"n {i}", "supersedes": [old["memory_id"]]} for i in range(10)]
    made = await asyncio.gather(*(api.post("/v1/memories", json=body) for body in bodies))
    assert sorted(response.status_code for response in made) == [201] + [409] * 9
    assert len(await listed(api)) == 1


async def test_items_of_a_batch_see_what_earlier_ones_do(api: httpx.AsyncClient) -> None:
    olds = await batch(
        api, {"content": "tea"}, {"content": "x", "key": "k"}, *({"content": f"n {i}"} for i in range(4))
    )
    tea, named, *others = [item["memory_id"] for item in olds["items"]]
    made = await batch(
        api,
        {"content": "Tea", "supersedes": others[:1]},
        {"content": "TEA", "supersedes": others[1:2]},
        {"content": "new", "supersedes": others[2:3]},
        {"content": "NEW", "supersedes": others[3:]},
        {"content": "y", "key": "k"},
        {"content": "instead of k", "supersedes": [named]},
    )
    assert (await api.get(f"/v1/memories/{tea}")).json()["supersedes"] == others[:2]
    new = made["items"][2]["memory_id"]
    assert (await api.get(f"/v1/memories/{new}")).json()["supersedes"] == others[2:]
    assert [past["record"]["content"] for past in await history(api, named)] == ["y", "x"]
    assert sorted(await listed(api)) == ["instead of k", "new", "tea"]
    await remember(api, "z", 201, key="k")


async def test_a_batch_that_contradicts_itself_is_a_conflict(api: httpx.AsyncClient) -> None:
    old = await remember(api, "tea")
    items = [{**OWNER, "content": "coffee", "supersedes": [old["memory_id"]]}, {**OWNER, "content": "tea"}]
    problem(await api.post("/v1/memories/batch", json={"items": items}), 409, "conflict")
    assert await listed(api) == ["tea"]


async def test_the_pointer_counts_repeated_ids(api: httpx.AsyncClient) -> None:
    old = await remember(api, "one")
    body = {**OWNER, "content": "two", "supersedes": [old["memory_id"], old["memory_id"], "mem_none"]}
    problem(await api.post("/v1/memories", json=body), 422, pointer="/supersedes/2")


# --- Similar texts ----------------------------------------------------------------------------------------------------

LIKE, ALIKE = "Ada likes green tea in the morning.", "Ada likes green tea in the morning!"


async def test_near_duplicates_are_listed_and_kept(api: httpx.AsyncClient) -> None:
    first = await remember(api, LIKE)
    second = await remember(api, ALIKE)
    (similar,) = second["similar"]
    assert similar["score"] >= 0.95
    assert (similar["memory_id"], similar["content"], similar["superseded"]) == (first["memory_id"], LIKE, False)
    assert sorted(await listed(api)) == sorted([LIKE, ALIKE])


@pytest.mark.parametrize("named", [False, True], ids=["near", "near and named"])
async def test_near_duplicates_are_superseded_on_wish(api: httpx.AsyncClient, named: bool) -> None:
    first = await remember(api, LIKE)
    second = await remember(api, ALIKE, on_similar="supersede", supersedes=[first["memory_id"]] if named else [])
    assert second["supersedes"] == [first["memory_id"]]
    assert (await api.get(f"/v1/memories/{first['memory_id']}")).json()["version"] == 2
    assert second["similar"][0]["superseded"] is True
    assert await listed(api) == [ALIKE]


@pytest.mark.parametrize(
    "kept",
    [{"memory_type": "message"}, {"user_id": None}, {"agent_id": None}],
    ids=["a message", "shared by the agent", "shared by the user"],
)
async def test_messages_and_other_pairs_are_never_superseded_by_similarity(
    api: httpx.AsyncClient, kept: dict[str, Any]
) -> None:
    first = await remember(api, LIKE, **kept)
    second = await remember(api, ALIKE, on_similar="supersede")
    assert [(s["memory_id"], s["superseded"]) for s in second["similar"]] == [(first["memory_id"], False)]
    assert second["supersedes"] == []
    assert (await api.get(f"/v1/memories/{first['memory_id']}")).json()["status"] == "active"


async def test_other_users_memories_are_never_listed_as_similar(api: httpx.AsyncClient) -> None:
    await remember(api, LIKE, user_id="u2")
    assert (await remember(api, ALIKE, on_similar="supersede"))["similar"] == []


async def test_what_has_expired_is_no_near_duplicate(start: Starter, settings: Settings, clock: TurnedClock) -> None:
    """Time limits are exact, whenever the purge comes: here it never does."""
    async with start(settings.model_copy(update={"jobs": JobSettings(enabled=False)})) as service:
        await remember(service.client, LIKE, expires_at="2026-06-02T00:00:00Z")
        clock.move(days=2)
        assert (await remember(service.client, ALIKE))["similar"] == []
        last = await remember(service.client, ALIKE + "!", on_similar="supersede")
        assert [one["content"] for one in last["similar"]] == [ALIKE]


def accented(number: int) -> str:
    """Another text with the same vector: the model reads no accents. Consolidation leaves these apart."""
    places = [at for at, letter in enumerate(LIKE) if letter == "e"]
    return "".join("\u00e9" if at in places and number >> places.index(at) & 1 else c for at, c in enumerate(LIKE))


async def test_all_near_duplicates_are_superseded_and_messages_hide_none(api: httpx.AsyncClient) -> None:
    said = [await remember(api, LIKE, memory_type="message", deduplicate=False) for _ in range(12)]
    others = {(await remember(api, accented(n), 201))["memory_id"] for n in range(1, 14)}
    last = await remember(api, LIKE, on_similar="supersede")
    assert set(last["supersedes"]) == others
    assert {s["memory_id"] for s in last["similar"] if s["superseded"]} == others
    assert len([s for s in last["similar"] if not s["superseded"]]) == 10
    assert sorted(await listed(api)) == [LIKE] * (1 + len(said))


async def test_a_batch_sees_its_own_near_duplicates(api: httpx.AsyncClient) -> None:
    items = [
        {**OWNER, "content": LIKE},
        {**OWNER, "content": ALIKE},
        {**OWNER, "content": "Trains to Oslo leave at nine."},
        {**OWNER, "content": ALIKE + "!", "on_similar": "supersede"},
        {**OWNER, "content": LIKE + "!!!", "user_id": "u2"},
    ]
    first, second, train, last, strange = (await batch(api, *items))["items"]
    assert [s["memory_id"] for s in second["similar"]] == [first["memory_id"]]
    assert (first["similar"], train["similar"], strange["similar"]) == ([], [], [])
    assert {s["memory_id"] for s in last["similar"]} == {first["memory_id"], second["memory_id"]}
    assert sorted(await listed(api)) == sorted([items[2]["content"], items[3]["content"], items[4]["content"]])
    kept = (await api.get(f"/v1/memories/{first['memory_id']}")).json()
    assert (kept["status"], kept["superseded_by"], kept["version"]) == ("superseded", last["memory_id"], 2)


async def test_a_new_text_under_a_name_has_near_duplicates_too(api: httpx.AsyncClient) -> None:
    named = await remember(api, "Trains to Oslo leave at nine.", key="k")
    plain = await remember(api, LIKE)
    kept = await remember(api, ALIKE, 200, key="k")
    assert [(s["memory_id"], s["superseded"]) for s in kept["similar"]] == [(plain["memory_id"], False)]
    changed = await remember(api, ALIKE + "!", 200, key="k", on_similar="supersede")
    assert (changed["memory_id"], changed["supersedes"]) == (named["memory_id"], [plain["memory_id"]])
    assert await listed(api) == [ALIKE + "!"]


async def test_expired_equals_hide_no_live_one(api: httpx.AsyncClient, clock: TurnedClock) -> None:
    for _ in range(12):
        await remember(api, "tea", deduplicate=False, expires_at="2026-06-02T00:00:00Z")
    live = await remember(api, "tea", deduplicate=False)
    clock.move(days=2)
    again = await remember(api, "tea", 200)
    assert again["memory_id"] == live["memory_id"]
