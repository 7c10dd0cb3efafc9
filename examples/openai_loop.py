"""The plain loop: ask Recalld for the next prompt, ask the model, tell Recalld what was said."""

import os
import sys
import uuid
from typing import Any

import httpx
from openai import OpenAI

AGENT, MODEL = "assistant", os.environ.get("MODEL", "gpt-4.1-mini")


def recalld() -> httpx.Client:
    key = os.environ.get("RECALLD_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=os.environ.get("RECALLD_URL", "http://127.0.0.1:8000"), headers=headers)


def post(memory: httpx.Client, path: str, **body: Any) -> Any:
    answer = memory.post(path, json=body)
    answer.raise_for_status()
    return answer.json()


def turn(memory: httpx.Client, model: OpenAI, user_id: str, session_id: str, text: str) -> str:
    """One question and its answer. Profile, facts, memories and the last turns come within 2,000 tokens."""
    context = post(
        memory,
        "/v1/context",
        query=text,
        agent_id=AGENT,
        user_id=user_id,
        session_id=session_id,
        format="messages",
        token_budget=2000,
        system_prompt="You are a helpful assistant.",
    )
    said = model.chat.completions.create(model=MODEL, messages=context["messages"])
    answer = said.choices[0].message.content or ""
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
    owner = {"agent_id": AGENT, "user_id": user_id}
    post(memory, f"/v1/sessions/{session_id}/messages", **owner, messages=messages)
    return answer


if __name__ == "__main__":
    user, session = sys.argv[1:] if len(sys.argv) > 2 else ("me", uuid.uuid4().hex)
    with recalld() as memory, OpenAI() as model:
        while text := input("> ").strip():
            print(turn(memory, model, user, session, text))
        post(memory, f"/v1/sessions/{session}/end")
