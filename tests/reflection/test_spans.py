"""A judgement touches what it judged: of two statements in one text, the one that still holds keeps its hits, their
order and scores, and its words in the prompt."""

import random

import pytest

from tests.conftest import Service
from tests.support.findings import findings, knows, memory, reflect
from tests.support.memories import OWNER, Json
from tests.support.model import Model

pytestmark = pytest.mark.anyio

STATEMENTS = {
    "my sister is vegetarian": ("My sister eats fish again.", "Is my sister vegetarian?"),
    "I have a deadly peanut allergy": ("The peanut allergy was a mistake of the clinic.", "What of my peanut allergy?"),
    "I work as a nurse": ("I quit nursing and drive a tram now.", "What is my work?"),
    "my son plays the violin": ("My son has changed to the cello.", "What does my son play?"),
    "ich wohne in Bremen": ("Wir sind nach Kiel gezogen.", "Wo wohne ich?"),
    "mi perro se llama Toto": ("Al perro lo llamamos ahora Rex.", "¿Cómo se llama mi perro?"),
    "我妹妹吃素": ("我妹妹又吃鱼了。", "我妹妹吃什么?"),
    "I am 41 years old": ("I turned 42 yesterday.", "How old am I?"),
}
JOINTS = (" and ", ", ", ". ", "; ", "\n")
DRAWN = 24


def drawn() -> list[tuple[str, str, str, bool]]:
    """A kept and a replaced statement, what joins them, and whether the kept one comes first."""
    chance = random.Random(64)
    pairs = [(kept, gone) for kept in STATEMENTS for gone in STATEMENTS if kept != gone]
    return [(*pair, chance.choice(JOINTS), chance.random() < 0.5) for pair in chance.sample(pairs, DRAWN)]


async def answers(service: Service, query: str, user: str) -> tuple[list[tuple[str, float]], str]:
    """The hits with their scores, and the prompt."""
    body: Json = {**OWNER, "user_id": user, "query": query, "min_score": 0}
    found = await service.client.post("/v1/memories/search", json=body)
    prompt = await service.client.post("/v1/context", json={**body, "citations": "none"})
    items = [(hit["memory"]["content"], hit["score"]) for hit in found.json()["items"]]
    return items, str(prompt.json()["text"])


async def test_what_still_holds_is_found_ranked_and_shown_as_before(judged: Service, llm: Model) -> None:
    for number, (kept, gone, joint, first) in enumerate(drawn()):
        user, later = f"u{number}", STATEMENTS[gone][0]
        text = joint.join((kept, gone) if first else (gone, kept)) + "."
        llm.says["JudgedPairs"] = knows(text, later, said="replaces", earlier=gone, earlier_left=kept)
        await memory(judged, text, "2026-01-05T00:00:00Z", user_id=user)
        await memory(judged, later, "2026-03-05T00:00:00Z", user_id=user)
        await memory(judged, "The weather was nice in the hills.", "2026-02-05T00:00:00Z", user_id=user)
        hits, prompt = await answers(judged, STATEMENTS[kept][1], user)
        await reflect(judged, user_id=user)
        after, marked = await answers(judged, STATEMENTS[kept][1], user)
        assert after == hits, text
        mark = f" (until 2026-03-05: {later})"
        assert marked.count(mark) == (gone in prompt), text
        assert marked.replace(mark, "") == prompt
        (finding,) = await findings(judged, user_id=user)
        answer = await judged.client.post(f"/v1/findings/{finding['finding_id']}/accept")
        assert answer.status_code == 200, answer.text
        accepted, _ = await answers(judged, STATEMENTS[kept][1], user)
        assert [content.strip(" .") for content, _ in accepted if kept in content] == [kept], text
        assert not any(gone in content for content, _ in accepted)
