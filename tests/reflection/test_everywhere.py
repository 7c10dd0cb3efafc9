"""A mark follows its statement: what was judged away in one form is marked in all that was made of the same statement,
the message, the memory and the summary of its session, and an undo takes all marks back."""

import pytest

from app.memories.schemas import STATEMENTS
from app.storage.schema import EVERYTHING
from tests.conftest import Service
from tests.support.findings import findings, knows, memory, reflect
from tests.support.learning import end, kept, talk, undo, work
from tests.support.memories import OWNER, Json
from tests.support.model import Model

pytestmark = pytest.mark.anyio

SAID = "I have a deadly peanut allergy and my sister is vegetarian."
ALLERGY, SISTER = "The user has a deadly peanut allergy.", "The user's sister is vegetarian."
FISH, QUOTE = "My sister eats fish again.", "my sister is vegetarian"
EVERYWHERE = {text: SISTER.strip(".") for text in (SISTER, f"{ALLERGY} {SISTER}")} | {SAID: QUOTE}
FORMS = pytest.mark.parametrize("form", [SAID, SISTER], ids=["message", "memory"])


def judges(llm: Model, form: str, said: str = "replaces") -> None:
    part = {"earlier": QUOTE, "earlier_left": "I have a deadly peanut allergy"} if form == SAID else {}
    llm.says["JudgedPairs"] = knows(form, FISH, said=said, **part)


async def told(service: Service, llm: Model) -> None:
    of_allergy = {"quote": "I have a deadly peanut allergy", "text": ALLERGY}
    of_sister = {"quote": QUOTE, "text": SISTER, "subject": "my sister", "predicate": "is", "object": "vegetarian"}
    llm.says["Statements"] = {
        "statements": [
            {"subject": "user", "kind": "fact", "certainty": "stated", "holds": "now", **one}
            for one in (of_allergy | {"predicate": "has", "object": "peanut allergy"}, of_sister)
        ]
    }
    await talk(service, SAID)
    await end(service)
    llm.says.pop("Statements")
    service.clock.move(days=2)
    await memory(service, FISH)


async def marked(service: Service) -> dict[str, str]:
    """The memories that a search shows with a mark: what each says, and its words that were replaced."""
    body: Json = {**OWNER, "query": "Is my sister vegetarian? What of my peanut allergy?", "min_score": 0}
    items = (await service.client.post("/v1/memories/search", json=body)).json()["items"]
    return {hit["memory"]["content"]: one["replaced"].strip(".") for hit in items for one in hit.get("replaced_by", ())}


async def told_in_a_prompt(service: Service, **more: object) -> str:
    query = "What of my sister, is she vegetarian?"
    body: Json = {**OWNER, "query": query, "session_id": "new", "min_score": 0, **more}
    return str((await service.client.post("/v1/context", json=body)).json()["text"])


async def facts(service: Service) -> list[str]:
    items = (await service.client.get("/v1/facts", params={"user_id": "u", "agent_id": "a"})).json()["items"]
    return sorted(fact["object"] for fact in items)


async def settled(service: Service, how: str) -> str:
    """The operation that settled the only finding."""
    (finding,) = await findings(service)
    answer = await service.client.post(f"/v1/findings/{finding['finding_id']}/{how}")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["operation_id"])


@FORMS
async def test_a_judgement_marks_every_form_and_an_undo_none(judged: Service, llm: Model, form: str) -> None:
    await told(judged, llm)
    judges(llm, form)
    done = await reflect(judged)
    assert await marked(judged) == EVERYWHERE
    prompt = (
        await judged.client.post("/v1/context", json={**OWNER, "query": "My sister?", "session_id": "new"})
    ).json()
    (line,) = [one for one in prompt["text"].splitlines() if "session of" in one]
    assert f"{ALLERGY} The user's sister is vegetarian" in line
    assert "(until" in line
    await undo(judged, done["operation_id"])
    assert await marked(judged) == {}


async def test_a_fact_that_stands_alone_in_a_prompt_is_marked_too(judged: Service, llm: Model) -> None:
    await told(judged, llm)
    judges(llm, SAID)
    await reflect(judged)
    for exclude in (["summary"], ["summary", "memories"]):
        prompt = await told_in_a_prompt(judged, exclude=exclude)
        (line,) = [one for one in prompt.splitlines() if "my sister is vegetarian" in one and "peanut" not in one]
        assert "(until" in line, exclude


@FORMS
@pytest.mark.parametrize("verdict", ["replaces", "contradicts"])
async def test_accepting_marks_what_it_does_not_change(judged: Service, llm: Model, form: str, verdict: str) -> None:
    await told(judged, llm)
    judges(llm, form, verdict)
    await reflect(judged)
    before = await marked(judged)
    assert before == (EVERYWHERE if verdict == "replaces" else {})
    operation = await settled(judged, "accept")
    others = {text: words for text, words in EVERYWHERE.items() if text != form}
    assert await marked(judged) == others
    assert await facts(judged) == ["peanut allergy"]
    assert (await undo(judged, operation))["result"]["not_restored"] == 0
    assert await marked(judged) == before
    assert await facts(judged) == ["peanut allergy", "vegetarian"]


@FORMS
async def test_dismissing_takes_every_mark_away(judged: Service, llm: Model, form: str) -> None:
    await told(judged, llm)
    judges(llm, form)
    await reflect(judged)
    operation = await settled(judged, "dismiss")
    assert await marked(judged) == {}
    await undo(judged, operation)
    assert await marked(judged) == EVERYWHERE


async def test_a_summary_that_goes_on_keeps_its_marks(judged: Service, llm: Model) -> None:
    await told(judged, llm)
    judges(llm, SISTER)
    await reflect(judged)
    await judged.client.post("/v1/sessions/s/reopen")
    await talk(judged, "I live in Oslo.")
    llm.says["memories"] = {"memories": [{"text": "The user lives in Oslo.", "message_seqs": [2]}]}
    await end(judged)
    longer = f"{ALLERGY} {SISTER} The user lives in Oslo."
    assert (await judged.client.get("/v1/sessions/s")).json()["summary"] == longer
    assert await marked(judged) == {SAID: QUOTE, SISTER: SISTER.strip("."), longer: SISTER.strip(".")}


async def test_what_was_told_twice_is_marked_in_both_messages(judged: Service, llm: Model) -> None:
    again = {"quote": "is vegetarian, as I said", "text": SISTER, "subject": "my sister"}
    await talk(judged, "My sister is vegetarian, as I said.", session="before")
    stated = {"kind": "fact", "certainty": "stated", "holds": "now", **again}
    llm.says["Statements"] = {"statements": [stated]}
    await end(judged, "before")
    await told(judged, llm)
    judges(llm, SISTER)
    await reflect(judged)
    twice = {"My sister is vegetarian, as I said.": "is vegetarian, as I said"}
    assert await marked(judged) == {SAID: QUOTE, SISTER: SISTER.strip("."), **twice}


async def test_the_statement_of_a_memory_that_was_there_before_goes_with_its_message_or_with_an_undo(
    judged: Service, llm: Model
) -> None:
    async def quotes() -> list[str]:
        return sorted(one["quote"] for one in await judged.resources.store.find(STATEMENTS, "default", EVERYTHING))

    async def again(session: str) -> str:
        stated = {"subject": "my sister", "kind": "fact", "certainty": "stated", "holds": "now"}
        name = {**stated, "quote": f"she is called {session}", "text": f"The user's sister is called {session}."}
        await talk(judged, f"My sister is vegetarian, {session}, and she is called {session}.", session=session)
        llm.says["Statements"] = {
            "statements": [{**stated, "quote": f"is vegetarian, {session}", "text": SISTER}, name]
        }
        done = await end(judged, session)
        llm.says.pop("Statements")
        return str(done["operation_id"])

    await told(judged, llm)
    first = await quotes()
    operation = await again("Ann")
    await again("Eva")
    of_eva = ["is vegetarian, Eva", "she is called Eva"]
    assert await quotes() == sorted([*first, "is vegetarian, Ann", "she is called Ann", *of_eva])
    assert (await undo(judged, operation))["result"]["not_restored"] == 0
    assert await quotes() == sorted([*first, *of_eva])
    assert (await judged.client.delete("/v1/sessions/Eva/messages/1")).status_code in (200, 204)
    await work(judged, minutes=1)
    assert await quotes() == first


async def test_what_only_repeats_what_is_known_can_be_undone_and_what_changed_nothing_says_so(
    judged: Service, llm: Model
) -> None:
    async def quotes() -> list[str]:
        return sorted(one["quote"] for one in await judged.resources.store.find(STATEMENTS, "default", EVERYTHING))

    await told(judged, llm)
    first, memories = await quotes(), await kept(judged)
    await talk(judged, "As I said, my sister is vegetarian.", session="again")
    stated = {"subject": "my sister", "kind": "fact", "certainty": "stated", "holds": "now"}
    llm.says["Statements"] = {"statements": [{**stated, "quote": "my sister is vegetarian", "text": SISTER}]}
    repeats = await end(judged, "again")
    assert (await quotes(), repeats["can_undo"]) == (sorted([*first, "my sister is vegetarian"]), True)
    assert (await undo(judged, repeats["operation_id"]))["result"] == {"restored": 1, "not_restored": 0}
    assert (await quotes(), await kept(judged)) == (first, memories)

    llm.says["Statements"] = {"statements": []}
    await talk(judged, "Thank you for the nice talk.", session="nothing")
    nothing = await end(judged, "nothing")
    refused = await judged.client.post(f"/v1/operations/{nothing['operation_id']}/undo")
    assert (nothing["can_undo"], refused.status_code) == (False, 409)
    assert refused.json()["detail"].endswith("changed nothing that could be undone: its `result` says what it did.")
