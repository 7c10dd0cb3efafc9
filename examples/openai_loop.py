"""The plain loop: a context from Recalld, the user's words to Recalld, the model, its answer to Recalld.

The user's words are stored before the model is asked, so nothing is lost where it fails.
"""

import os
import sys
from typing import Any

from openai import OpenAI
from recalld_client import Recalld, UserSession

MODEL = os.environ.get("MODEL", "gpt-4.1-mini")


def turn(session: UserSession, model: OpenAI, text: str) -> str:
    """One question and its answer. Profile, facts, memories and the last turns come within 2,000 tokens."""
    system = "You are a helpful assistant."
    context = session.context(text, budget=2000, format="messages", system_prompt=system)
    session.append(text)
    messages: Any = context["messages"]
    said = model.chat.completions.create(model=MODEL, messages=messages)
    answer = said.choices[0].message.content or ""
    session.append(answer, role="assistant")
    return answer


if __name__ == "__main__":
    user, conversation = sys.argv[1:] if len(sys.argv) > 2 else ("me", None)
    with Recalld() as memory, OpenAI() as model:
        session = memory.user(user, agent="assistant").session(conversation)
        while text := input("> ").strip():
            print(turn(session, model, text))
        session.end()
