"""The prompts that a host offers its user."""

import re

import pytest

from app.core import prompt_text
from app.mcp.server import PROMPTS, render
from app.mcp.tools import CORE, TOOLS
from tests.mcp.conftest import Connect

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_prompt_is_a_message_of_the_user(connect: Connect, mode: str) -> None:
    async with connect("?agent_id=a&user_id=u", mode=mode) as client:
        listed = {one.name: one for one in (await client.list_prompts()).prompts}
        assert {name: one.title for name, one in listed.items()} == {
            "about_me": "What do you know about me?",
            "remember_conversation": "Remember this conversation",
        }
        assert [one.name for one in listed["about_me"].arguments or []] == ["topic"]
        (message,) = (await client.get_prompt("about_me", {"topic": "my work"})).messages
        assert message.role == "user"
        text: str = message.content.text  # type: ignore[union-attr]
        assert text.startswith("What do you know about me that concerns: my work?\n")
        (message,) = (await client.get_prompt("remember_conversation")).messages
        assert "user_id" not in message.content.text  # type: ignore[union-attr]


async def test_a_connection_without_a_user_asks_for_one(connect: Connect) -> None:
    async with connect() as client:
        (about, _) = (await client.list_prompts()).prompts
        assert [(one.name, one.required) for one in about.arguments or []] == [("user_id", True), ("topic", False)]
        (message,) = (await client.get_prompt("about_me", {"user_id": "ada"})).messages
        assert "(user_id: ada)" in message.content.text  # type: ignore[union-attr]
        for name, given, said in (
            ("about_me", {}, "/user_id"),
            ("about_me", {"user_id": "a/b"}, "/user_id: must be"),
            ("about_me", {"user_id": "ada", "topics": "x"}, "/topics: is not an argument"),
            ("about_me", {"user_id": "ada", "topic": "x" * 1001}, "at most 1000"),
            ("nothing", {}, "about_me and remember_conversation"),
        ):
            with pytest.raises(Exception, match=re.escape(said)):
                await client.get_prompt(name, given)


def test_prompts_name_tools_that_exist_and_are_short() -> None:
    words = {"top_k"}
    for name in PROMPTS:
        text = render(name, {}, "u")
        assert set(re.findall(r"[a-z]+_[a-z]+", text)) - words <= set(TOOLS)
        assert prompt_text.count(text) <= 130


def test_prompts_can_be_followed_with_the_core_alone() -> None:
    """A tool of the rest is named only as one that the model may have."""
    for name in PROMPTS:
        for part in re.split(r"[.;,\n]", render(name, {}, "u")):
            others = set(re.findall(r"\w+", part)) & (set(TOOLS) - set(CORE))
            assert not others or "if you have" in part.lower(), part
