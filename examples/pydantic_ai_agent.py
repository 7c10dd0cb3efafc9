"""A PydanticAI agent that knows its user and its own experience at each run, and learns from each conversation.

The system prompt is dynamic: Recalld composes the agent's experience, the user's profile and memories. After the
conversation its messages go to a session; ending that has Recalld's own language model draw from them what will matter.
"""

import asyncio
import os
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel

AGENT = "task-assistant"


@dataclass
class Conversation:
    memory: httpx.AsyncClient
    user_id: str
    session_id: str
    messages: list[dict[str, str]] = field(default_factory=list)


assistant = Agent(
    deps_type=Conversation,
    system_prompt="You are a task assistant. Use what you know about the user and what you have learned.",
)


@assistant.system_prompt(dynamic=True)
async def experience(ctx: RunContext[Conversation]) -> str:
    asked = {"user_id": ctx.deps.user_id, "max_tokens": 1500}
    found = await ctx.deps.memory.get(f"/v1/agents/{AGENT}/experience-prompt", params=asked)
    return str(found.raise_for_status().json()["text"])


@assistant.tool
async def recall(ctx: RunContext[Conversation], question: str) -> list[str]:
    """Search what was said in earlier conversations."""
    asked = {"query": question, "agent_id": AGENT, "user_id": ctx.deps.user_id, "top_k": 5}
    found = await ctx.deps.memory.post("/v1/memories/search", json=asked)
    return [item["memory"]["content"] for item in found.raise_for_status().json()["items"]]


async def ask(talk: Conversation, text: str, model: OpenAIChatModel, history: Any = None) -> Any:
    """A run; its answer is `.output`, and its `.all_messages()` the history of the next one."""
    result = await assistant.run(text, deps=talk, model=model, message_history=history)
    talk.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": result.output}]
    return result


async def learn(talk: Conversation) -> str:
    """Hands the conversation over and ends it; the id of the operation that learns from it."""
    path = f"/v1/sessions/{talk.session_id}"
    owner = {"agent_id": AGENT, "user_id": talk.user_id, "memorize": "extract"}
    (await talk.memory.post("/v1/sessions", json={"session_id": talk.session_id, **owner})).raise_for_status()
    said = {"messages": talk.messages}
    (await talk.memory.post(f"{path}/messages", json=said)).raise_for_status()
    return str((await talk.memory.post(f"{path}/end")).raise_for_status().json()["operation_id"])


async def main(url: str, user_id: str, *texts: str) -> None:
    model = OpenAIChatModel(os.environ.get("MODEL", "gpt-4.1-mini"))
    headers = {"Authorization": f"Bearer {os.environ['RECALLD_KEY']}"} if os.environ.get("RECALLD_KEY") else {}
    async with httpx.AsyncClient(base_url=url, headers=headers) as memory:
        await memory.post("/v1/agents", json={"agent_id": AGENT, "name": AGENT})  # 409 where it is there
        talk, history = Conversation(memory, user_id, uuid.uuid4().hex), None
        for text in texts:
            result = await ask(talk, text, model, history)
            history = result.all_messages()
            print(result.output)
        await learn(talk)


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("RECALLD_URL", "http://127.0.0.1:8000"), "me", "What do you know of me?"))
