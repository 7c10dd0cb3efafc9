"""Agents of LangGraph and the tools of langmem run on the store."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph_store_recalld import RecalldStore
from recalld_client import Recalld

URL = os.environ.get("RECALLD_URL", "")
pytestmark = [
    pytest.mark.skipif(not URL, reason="RECALLD_URL names no service"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

langmem = pytest.importorskip("langmem")
agents = pytest.importorskip("langchain.agents")


class ScriptedChat(GenericFakeChatModel):
    """Says what a test wrote down, tool calls included."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def call(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": uuid4().hex}])


@pytest.fixture(scope="module")
def memory() -> Iterator[Recalld]:
    with Recalld(URL) as made:
        yield made


SPACE = ("memories", "{langgraph_user_id}")


def ask(store: RecalldStore, user: str, *said: AIMessage) -> list[Any]:
    """The messages of one run of the agent, for one user."""
    tools = [langmem.create_manage_memory_tool(SPACE), langmem.create_search_memory_tool(SPACE)]
    agent = agents.create_agent(ScriptedChat(messages=iter(said)), tools=tools, store=store)
    config = {"configurable": {"langgraph_user_id": user}}
    messages: list[Any] = agent.invoke({"messages": [("user", "Hello")]}, config)["messages"]
    return messages


def test_langmems_tools_keep_change_and_find_memories_of_their_user(memory: Recalld) -> None:
    store = RecalldStore(memory, agent=uuid4().hex, user_label=1)
    made = AIMessage("Kept.")
    ask(store, "ada", call("manage_memory", content="Ada plays the cello", action="create"), made)
    ask(store, "bob", call("manage_memory", content="Bob plays the drums", action="create"), made)
    (kept,) = store.search(("memories", "ada"))
    assert kept.value["content"] == "Ada plays the cello"
    answer = ask(store, "ada", call("search_memory", query="Which instrument?"), AIMessage("The cello."))
    (shown,) = [message.content for message in answer if isinstance(message, ToolMessage)]
    assert "Ada plays the cello" in shown
    assert "drums" not in shown
    change = call("manage_memory", content="Ada plays the viola", action="update", id=kept.key)
    ask(store, "ada", change, AIMessage("Changed."))
    assert [one.value["content"] for one in store.search(("memories", "ada"))] == ["Ada plays the viola"]
    ask(store, "ada", call("manage_memory", action="delete", id=kept.key), AIMessage("Deleted."))
    assert store.search(("memories", "ada")) == []
    assert len(store.search(("memories", "bob"))) == 1
