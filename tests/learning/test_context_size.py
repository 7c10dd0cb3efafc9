"""Prompts fit into the model's context, answers have a limit for each part, and cheap parts go to a small model."""

import pytest

from app.core import prompt_text
from app.learning import prompts
from app.settings import Settings
from tests.conftest import Service
from tests.support.learning import end, talk
from tests.support.memories import remember
from tests.support.model import Model

pytestmark = pytest.mark.anyio

CONTEXT = 4096


@pytest.fixture
def settings(settings: Settings) -> Settings:
    more = {"context_tokens": CONTEXT, "small_model": "smaller"}
    return settings.model_copy(update={"llm": settings.llm.model_copy(update=more)})


async def test_every_prompt_of_a_long_session_fits_into_the_context(service: Service, llm: Model) -> None:
    for number in range(12):
        await remember(service.client, f"Ada knows trail {number}. " + "It is long. " * 60)
    said = [f"I walked trail {number}. " + "It went up and down. " * 40 for number in range(30)]
    await talk(service, *said, "one message " * 1500)
    done = await end(service)
    assert done["status"] == "succeeded", done
    sizes = [
        sum(prompt_text.count(message["content"]) for message in seen.body["messages"]) + seen.body["max_tokens"]
        for seen in llm.server.seen
    ]
    assert len(sizes) > 5
    assert max(sizes) <= CONTEXT
    shown = [data["known_memories"] for data in llm.shown("Statements")]
    assert all(len(known) < 10 for known in shown)  # the last ones had no room
    assert any(shown)
    read = {line["seq"] for data in llm.shown("Statements") for line in data["conversation"]}
    assert read == set(range(1, 32))


def test_a_large_context_has_the_longest_stretch_and_a_small_one_a_shorter() -> None:
    names = prompts.CONVERSATION_PROMPTS
    assert prompts.chunk_tokens(100_000, names) == prompts.CHUNK_TOKENS
    assert prompts.LEAST_CHUNK_TOKENS <= prompts.chunk_tokens(3072, names) < 2000


def test_known_data_without_room_is_left_out_from_the_end() -> None:
    known = {"known_memories": ["a " * 100, "b " * 100], "profile": {"name": "Ada"}}
    assert prompts.fitting(known, 10_000) == known
    assert prompts.fitting(known, 150) == {"known_memories": ["a " * 100], "profile": {"name": "Ada"}}
    assert prompts.fitting(known, 0) == {"known_memories": [], "profile": {"name": "Ada"}}
