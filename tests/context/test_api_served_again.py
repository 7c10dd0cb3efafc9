"""A prompt that we served comes back in a message: none of it is learned, and nothing of the user's is lost."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.embedding.onnx import OnnxModel
from app.settings import Settings
from tests.conftest import Service
from tests.support.context import ask
from tests.support.memories import Json, remember, shared_service
from tests.support.reshaping import AFTER, BEFORE, CONTENTS, SECRET, SHAPES, Shape
from tests.support.sessions import append, memories, messages, said

pytestmark = pytest.mark.anyio

ANOTHER: Json = {"agent_id": "a", "user_id": "v"}
"""Whose messages hold what was served for user u."""


async def served_prompts(api: httpx.AsyncClient) -> list[str]:
    """A context, and an experience prompt with both of its blocks."""
    await api.post("/v1/agents", json={"agent_id": "a", "name": "Films"})
    lessons = {"heuristics": [*CONTENTS], "procedural_knowledge": CONTENTS[3]}
    assert (await api.patch("/v1/agents/a/experience", json=lessons)).is_success
    await api.patch("/v1/users/u/profile", json={"name": f"Ada of {SECRET}"})
    for content in CONTENTS:
        await remember(api, content)
    context = (await ask(api, f"What of {SECRET}?"))["text"]
    experience = (await api.get("/v1/agents/a/experience-prompt", params={"user_id": "u"})).json()["text"]
    assert min(text.count(SECRET) for text in (context, experience)) >= len(CONTENTS)
    return [context, experience]


@pytest.fixture(scope="module")
async def shared(
    shared_settings: Settings, model: OnnxModel, anyio_backend: str
) -> AsyncIterator[tuple[httpx.AsyncClient, list[str]]]:
    async with shared_service(shared_settings, model) as made:
        yield made.client, await served_prompts(made.client)


def kept(message: str) -> list[str]:
    """The user's own words in it."""
    return [words for words in (BEFORE, AFTER) if words in message]


@pytest.mark.parametrize("name", SHAPES)
async def test_in_no_shape_is_it_learned(shared: tuple[httpx.AsyncClient, list[str]], name: str) -> None:
    api, served = shared
    for number, text in enumerate(served):
        session, message = f"{name} {number}", SHAPES[name](text)
        await append(api, said(message), session=session.replace("/", " "), **ANOTHER)
        (learned,) = await memories(api, session_id=session.replace("/", " "))
        assert SECRET not in learned["content"]
        assert [words for words in kept(message) if words not in learned["content"]] == []
        (as_is,) = await messages(api, session.replace("/", " "))
        assert as_is["content"] == message  # the conversation is kept as it was


async def test_a_prompt_shows_it_once(shared: tuple[httpx.AsyncClient, list[str]]) -> None:
    api, (context, _) = shared
    for name in ("quoted", "as a string of JSON", "without its tags"):
        await append(api, said(SHAPES[name](context)), session=f"shown {name}", memorize="none", **ANOTHER)
        asked = await ask(api, "And now?", session_id=f"shown {name}", exclude=["memories", "experience"], **ANOTHER)
        assert SECRET not in asked["text"]
        assert AFTER in asked["text"]


async def test_a_tools_word_that_was_served_as_data_is_not_learned(service: Service) -> None:
    """The format `messages` fences what neither user nor assistant said."""
    api = service.client
    result = f"It is {SECRET}\nand\n\n{SECRET} again\n## {SECRET}"
    await append(api, [{"role": "tool", "tool_call_id": "c", "content": result}])
    turns = (await ask(api, "Where?", session_id="s", format="messages"))["messages"]
    (fenced,) = [one["content"] for one in turns if SECRET in one["content"]]
    for number, name in enumerate(("as it was", "quoted", "without its end", "as a string of JSON", "in a code fence")):
        message = SHAPES[name](fenced)
        await append(api, said(message), session=f"next{number}")
        (learned,) = await memories(api, session_id=f"next{number}")
        assert SECRET not in learned["content"], message
        assert [words for words in kept(message) if words not in learned["content"]] == []


PLAIN = (
    "Does <recalld_context> need an end like </recalld_context>?",
    "My template:\n```jinja\n<recalld_context>\n{{ memories }}\n</recalld_context>\n```\nIs it right?",
    "## Memories\n- [1] Lisbon in spring\n- [2] Rome in May\n\n## Profile\n- [3] it is me",
    "> ## Memories\n> - [1] quoted from my diary\n\nWhat do you think?",
    "heuristics: be kind\nprocedural_knowledge: how I bake",
    '{"context": "<recalld_context>", "note": "a tag of yours"}',
    "I saw &lt;recalld_context&gt; and \\u003crecalld_context\\u003e in my log.",
)


@pytest.mark.parametrize("text", PLAIN)
async def test_what_a_user_writes_of_it_is_learned_to_the_letter(
    shared: tuple[httpx.AsyncClient, list[str]], text: str
) -> None:
    session = f"plain {PLAIN.index(text)}"
    await append(shared[0], said(text), session=session, **ANOTHER)
    assert [one["content"] for one in await memories(shared[0], session_id=session)] == [text]


def test_there_are_shapes_enough() -> None:
    shapes: list[Shape] = [*SHAPES.values()]
    assert len(shapes) >= 40
