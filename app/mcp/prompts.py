"""The MCP prompts: what a user of a host can pick, and the text that the model then reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from app.core.identifiers import identifier

MAX_ARGUMENT = 1000
"""The limit of characters of an argument."""


@dataclass(frozen=True, slots=True)
class PromptParameter:
    """An argument of a prompt."""

    name: str
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Prompted:
    """A prompt. `text` contains `$whose` and `$topic`, in whose places the arguments stand."""

    name: str
    title: str
    description: str
    text: Template


_USER = PromptParameter("user_id", "Whose memory.", required=True)
_TOPIC = PromptParameter("topic", "Only this.")

PROMPTS: Mapping[str, Prompted] = {
    prompt.name: prompt
    for prompt in (
        Prompted(
            "about_me",
            "What do you know about me?",
            "Shows what is remembered about you, and lets you correct it.",
            Template(
                "What do you know about me$topic?$whose\n"
                "Read get_profile, then list_memories, page by page while there is a next_cursor; ask find_facts for "
                "what changes over time. Tell me in plain words, by topic, what is remembered, since when, and what "
                "contradicts itself. Add nothing that is not there. Then ask me what is wrong or should go, and use "
                "update_memory, update_profile or forget only for what I name."
            ),
        ),
        Prompted(
            "remember_conversation",
            "Remember this conversation",
            "Stores what will matter later of this conversation.",
            Template(
                "Remember what will matter later of this conversation$topic.$whose\n"
                "For each lasting fact, preference, instruction, decision or lesson: recall first. If it is known, "
                "leave it; if it corrects a memory, use remember with supersedes; else use remember, one statement "
                "each, with names, dates and places spelt out. Name, home, occupation and interests go into "
                "update_profile. Leave out secrets and small talk. Then tell me in a short list what you stored."
            ),
        ),
    )
}


def parameters(user_id: str | None) -> tuple[PromptParameter, ...]:
    """Returns the arguments of each prompt. `user_id`: the user that the connection fixes, if it fixes one."""
    return (_TOPIC,) if user_id is not None else (_USER, _TOPIC)


def render(name: str, given: Mapping[str, str], user_id: str | None) -> str:
    """Returns the text of a prompt, for example of `about_me` with `{"topic": "my work"}`. Raises ValueError."""
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise ValueError(f"There is no prompt {name[:100]!r}. There are {' and '.join(PROMPTS)}.")
    known = [one.name for one in parameters(user_id)]
    for argument, value in given.items():
        if argument not in known:
            raise ValueError(f"/{argument[:100]}: is not an argument of {name}. It takes {' and '.join(known)}.")
        if len(value) > MAX_ARGUMENT:
            raise ValueError(f"/{argument}: must have at most {MAX_ARGUMENT} characters.")
    topic, whose = given.get("topic", "").strip(), ""
    if user_id is None:
        if "user_id" not in given:
            raise ValueError("/user_id: this connection fixes no user, so the prompt needs one.")
        try:
            whose = f" (user_id: {identifier(given['user_id'])})"
        except ValueError as error:
            raise ValueError(f"/user_id: {error}") from None
    return prompt.text.substitute(whose=whose, topic=f" that concerns: {topic}" if topic else "")
