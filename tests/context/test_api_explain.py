"""What a context says of the entries that it leaves out, where the request asks for it."""

import httpx
import pytest

from tests.support.context import ask, items, texts
from tests.support.facts import edge, tell_all
from tests.support.memories import remember
from tests.support.profiles import learn, register
from tests.support.sessions import append, said

pytestmark = pytest.mark.anyio

TEAS = [f"Ada likes tea number {at} of the harbour shop" for at in range(12)]
QUERY = "Which tea of the harbour shop does Ada like?"


async def test_each_dropped_entry_says_what_it_is(api: httpx.AsyncClient) -> None:
    for tea in TEAS:
        await remember(api, tea)
    plain = await ask(api, QUERY, token_budget=120, fill=True)
    assert all(entry.keys() <= {"id", "reason", "repeats", "links"} for entry in plain["dropped"])
    body = await ask(api, QUERY, token_budget=120, fill=True, explain=True)
    assert (body["text"], body["sections"]) == (plain["text"], plain["sections"])
    dropped = {answer["id"]: answer["entry"] for answer in body["dropped"] if answer["reason"] == "budget"}
    assert dropped
    shown = texts(body, "memories")
    assert sorted([*shown, *(entry["text"] for entry in dropped.values())]) == sorted(TEAS)
    assert {(entry["type"], entry["section"]) for entry in dropped.values()} == {("fact", "memories")}
    kept = {item["tokens"] for item in items(body, "memories")}
    assert {entry["tokens"] for entry in dropped.values()} <= kept | {tokens + 1 for tokens in kept}
    assert all(0 < entry["score"] < 1 for entry in dropped.values())
    (misfit,) = [entry for entry in dropped.values() if entry["needed"] is not None]
    assert (misfit["needed"], misfit["left"]) == (misfit["tokens"], 120 - body["tokens"])
    assert misfit["needed"] > misfit["left"]
    whole = await ask(api, QUERY, token_budget=4000, fill=True)
    scores = {item["id"]: item["score"] for item in items(whole, "memories")}
    assert {entry_id: entry["score"] for entry_id, entry in dropped.items()} == {
        entry_id: scores[entry_id] for entry_id in dropped
    }


async def test_what_no_record_has_says_its_text_and_what_importance_hides_too(api: httpx.AsyncClient) -> None:
    await register(api)
    await learn(api, effective_strategies=["Ask which tea of the harbour shop it was"])
    hidden = await remember(api, TEAS[0], importance=0.2)
    body = await ask(api, QUERY, explain=True, min_importance=0.5, sections={"experience": {"tokens": 1}})
    answers = {answer["entry"]["type"]: answer for answer in body["dropped"]}
    assert answers["fact"]["id"] == hidden["memory_id"]
    assert (answers["fact"]["reason"], answers["fact"]["entry"]["text"]) == ("importance", TEAS[0])
    lesson = answers["experience"]
    assert (lesson["reason"], lesson["entry"]["section"]) == ("section_budget", "experience")
    assert lesson["entry"]["text"].endswith("strategy: Ask which tea of the harbour shop it was")
    assert lesson["entry"]["needed"] > lesson["entry"]["left"] == 1


async def test_a_dropped_chain_names_its_facts(api: httpx.AsyncClient) -> None:
    chain = [edge("Ben Ng", "reports_to", "Cleo"), edge("Cleo", "sits_in", "Oslo")]
    teas = [edge("Ada", "likes", f"tea {at}") for at in range(30)]
    boss, seat, *_ = [fact["fact_id"] for fact in await tell_all(api, *chain, *teas)]
    body = await ask(api, "Where does Ben Ng's boss sit?", sections={"facts": {"tokens": 1}}, explain=True)
    (answer,) = [answer for answer in body["dropped"] if answer["id"] == seat]
    assert answer["links"] == [boss, seat]
    assert answer["entry"]["text"].startswith("Ben Ng reports to Cleo")
    assert all("links" not in other for other in body["dropped"] if len(other["entry"]["text"].split("→")) == 1)


async def test_what_had_no_room_in_its_section_names_the_entry_that_has_its_words(api: httpx.AsyncClient) -> None:
    """The summary of a session and the interaction of its end say the same."""
    summary = "Ada chose the smoked tea of the harbour shop."
    await append(api, said("hello", timestamp="2026-05-03T08:00:00Z"), "before")
    await api.patch("/v1/sessions/before", json={"summary": summary})
    interaction = {"summary": summary, "timestamp": "2026-05-03T08:00:00Z", "agent_id": "a"}
    assert (await api.post("/v1/users/u/interactions", json=interaction)).status_code == 201
    body = await ask(api, QUERY, sections={"summary": {"tokens": 5}}, exclude=["memories"], fill=True)
    (told,) = items(body, "episodes")
    (answer,) = body["dropped"]
    assert (answer["reason"], answer["repeats"]) == ("section_budget", [told["id"]])


async def test_a_memory_below_the_floor_is_told_too(api: httpx.AsyncClient) -> None:
    await remember(api, "My sister Ines keeps bees behind the old brewery in Ghent")
    for at in range(70):
        await remember(api, f"Paid invoice {at} of the printing house")
    body = await ask(api, "What does Ines keep behind the brewery?", explain=True, token_budget=2000)
    below = [answer for answer in body["dropped"] if answer["reason"] == "score"]
    found = [item["id"] for item in items(body, "memories")] + [answer["id"] for answer in body["dropped"]]
    assert len(found) == len(set(found)) == 71
    assert len(below) > 60
    assert all(answer["entry"]["score"] < 0.005 and answer["entry"]["tokens"] > 5 for answer in below)
    assert all(answer["entry"]["text"].startswith("Paid invoice") for answer in below)
