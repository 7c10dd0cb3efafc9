"""A LangGraph agent that decides itself what to look up and what to keep, as tools on a long-term store."""

import json
import os
import uuid
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph_store_recalld import RecalldStore
from openai import OpenAI
from recalld_client import Recalld, wrap_openai

MODEL = os.environ.get("MODEL", "gpt-4.1-mini")


class State(TypedDict):
    messages: Annotated[list[Any], lambda old, new: old + new]


class Context(TypedDict):
    user_id: str
    model: OpenAI


def _tool(name: str, description: str, argument: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    _tool("search_memory", "Search what was kept in earlier conversations.", "query"),
    _tool("save_memory", "Keep one statement that will matter later.", "content"),
]


def think(state: State, runtime: Runtime[Context]) -> State:
    said = runtime.context["model"].chat.completions.create(model=MODEL, messages=state["messages"], tools=TOOLS)  # type: ignore[call-overload]
    return {"messages": [said.choices[0].message.model_dump(exclude_none=True)]}


def act(state: State, runtime: Runtime[Context]) -> State:
    assert runtime.store is not None
    calls = state["messages"][-1]["tool_calls"]
    results = [_done(call["function"], runtime.store, (runtime.context["user_id"], "memories")) for call in calls]
    answers = zip(calls, results, strict=True)
    return {"messages": [{"role": "tool", "tool_call_id": c["id"], "content": r} for c, r in answers]}


def _done(call: Any, store: BaseStore, namespace: tuple[str, ...]) -> str:
    asked = json.loads(call["arguments"])
    if call["name"] == "search_memory":
        return json.dumps([item.value["content"] for item in store.search(namespace, query=asked["query"], limit=5)])
    store.put(namespace, uuid.uuid4().hex, {"content": asked["content"]})
    return "Kept."


def graph(store: BaseStore) -> Any:
    made = StateGraph(State, context_schema=Context)
    made.add_node("think", think)
    made.add_node("act", act)
    made.add_edge(START, "think")
    made.add_conditional_edges("think", lambda state: "act" if state["messages"][-1].get("tool_calls") else END)
    made.add_edge("act", "think")
    return made.compile(store=store)


if __name__ == "__main__":
    with Recalld() as memory, OpenAI() as client:
        session = memory.user("me", agent="langgraph").session()
        # Each turn is stored before the model is asked. budget=0: the agent decides what is recalled.
        model = wrap_openai(client, memory=session, budget=0)
        agent = graph(RecalldStore(memory, agent="langgraph"))
        while text := input("> ").strip():
            state = {"messages": [{"role": "user", "content": text}]}
            print(agent.invoke(state, context={"user_id": "me", "model": model})["messages"][-1]["content"])
        session.end()
