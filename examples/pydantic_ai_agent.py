"""A PydanticAI agent that knows its user and its own experience at each run, and learns from each conversation.

The system prompt is dynamic: Recalld composes the agent's experience, the user's profile and memories. What is said
goes to a session, the user's words before the model is asked; ending that has Recalld's own language model draw from
it what will matter.
"""

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from recalld_client import AsyncRecalld, AsyncUserMemory, AsyncUserSession, Problem

AGENT = "task-assistant"


@dataclass
class Conversation:
    me: AsyncUserMemory
    session: AsyncUserSession


assistant = Agent(
    deps_type=Conversation,
    system_prompt="You are a task assistant. Use what you know about the user and what you have learned.",
)


@assistant.system_prompt(dynamic=True)
async def experience(ctx: RunContext[Conversation]) -> str:
    me = ctx.deps.me
    return (await me.client.get_experience_prompt(AGENT, user_id=me.user_id, max_tokens=1500))["text"]


@assistant.tool
async def recall(ctx: RunContext[Conversation], question: str) -> list[str]:
    """Search what was said in earlier conversations."""
    return [hit["memory"]["content"] for hit in await ctx.deps.me.search(question, limit=5)]


async def ask(talk: Conversation, text: str, model: OpenAIChatModel, history: Any = None) -> Any:
    """A run; its answer is `.output`, and its `.all_messages()` the history of the next one."""
    await talk.session.append(text, memorize="extract")
    result = await assistant.run(text, deps=talk, model=model, message_history=history)
    await talk.session.append(result.output, role="assistant")
    return result


async def main(user_id: str, *texts: str) -> None:
    model = OpenAIChatModel(os.environ.get("MODEL", "gpt-4.1-mini"))
    async with AsyncRecalld() as memory:
        try:
            await memory.create_agent({"agent_id": AGENT, "name": AGENT})
        except Problem as problem:
            if problem.code != "already_exists":
                raise
        me = memory.user(user_id, agent=AGENT)
        talk, history = Conversation(me, me.session()), None
        for text in texts:
            result = await ask(talk, text, model, history)
            history = result.all_messages()
            print(result.output)
        await talk.session.end()


if __name__ == "__main__":
    asyncio.run(main("me", "What do you know of me?"))
