"""How much of each prompt of a long session a model's cache has already, in the default layout and in `cached`.

    scripts/benchmark prompt_cache                    # a session of 100 turns of the user
    scripts/benchmark prompt_cache --budget 1000 4000 --turns 50

Lives of `benchmarks/data/lives` are lived by one user: the first in sessions that have ended, the others in one
session. Before each turn of the user a context is asked for, and a prompt made of it: 1,500 tokens of tools and system
prompt, then `messages` of the answer. `cached` is the share of the tokens of all prompts after the first that a cache
has: those of the beginning that is equal, from byte one, to the prompt before, if there are 1,024 at least, in steps of
128. `moved` counts the prompts whose turns begin elsewhere than those of the prompt before.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from app.core import prompt_text
from benchmarks.evaluation.service import Api, connection
from benchmarks.harness import Row, Section
from benchmarks.lives import LIVES

HEAD_TOKENS, LEAST_CACHED, STEP = 1500, 1024, 128
TARGET, JUDGED = 0.75, 2000
PAST, PRESENT = "isbel_birsay", ("roydene_thermopolis", "sibtain_lahore", "rosalind_jersey")
OWNER = {"agent_id": "companion", "user_id": "user"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the model reads it, and the parts of the context in it."""

    text: str
    stable: int
    volatile: int

    @property
    def tokens(self) -> int:
        return prompt_text.count(self.text)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=100, help="turns of the user; default 100")
    parser.add_argument("--budget", type=int, nargs="+", default=[1000, 2000, 4000], help="tokens of each context")


def run(options: argparse.Namespace) -> Iterator[Section]:
    found: dict[tuple[int, str], list[Prompt]] = {}
    with connection(None, None) as client:
        api = Api(client)
        _know(api)
        for turn, said in enumerate(_session(options.turns)):
            if said["role"] == "user":
                for budget in options.budget:
                    for layout in ("default", "cached"):
                        found.setdefault((budget, layout), []).append(_prompt(api, said["text"], budget, layout))
            body = {**OWNER, "messages": [{"role": said["role"], "content": said["text"]}]}
            api.send("POST", "/v1/sessions/long/messages", body)
            if turn % 50 == 0:  # what is learned while one talks
                api.send("PATCH", "/v1/users/user/profile", {"interests": [f"interest number {turn}"]})
    rows = [_row(budget, layout, prompts) for (budget, layout), prompts in found.items()]
    judged = [row["cached"] for row in rows if row["layout"] == "cached" and row["budget"] <= JUDGED]
    met, notes = all(share >= TARGET for share in judged), [f"Target: {TARGET} with `cached`, to {JUDGED:,} tokens."]
    yield Section(f"a session of {options.turns} turns", rows, met, notes)


def _know(api: Api) -> None:
    """A user of whom something of each kind is known."""
    for turn in _turns(PAST):
        body = {**OWNER, "messages": [{"role": turn["role"], "content": turn["text"]}]}
        api.send("POST", f"/v1/sessions/past-{turn['session']}/messages", body)
    for session in sorted({turn["session"] for turn in _turns(PAST)}):
        api.send("PATCH", f"/v1/sessions/past-{session}", {"summary": f"Session {session}: plans for the week."})
        api.send("POST", f"/v1/sessions/past-{session}/end", {})
    rules = ("Answer in two sentences at most.", "Never call before nine.", "Prices are in pounds.")
    for rule in rules:
        api.send("POST", "/v1/memories", {**OWNER, "content": rule, "memory_type": "instruction"})
    profile = {"name": "Isbel", "home": "Birsay", "occupation": "teacher", "interests": ["sea swimming", "wool"]}
    api.send("PATCH", "/v1/users/user/profile", profile)
    for subject, predicate, value in (("Rex", "has_breed", "collie"), ("Ada", "works_at", "the harbour")):
        fact = {**OWNER, "subject": subject, "predicate": predicate, "object": value, "cardinality": "one"}
        api.send("POST", "/v1/facts", fact)
    api.send("POST", "/v1/agents", {"agent_id": OWNER["agent_id"], "name": "companion"})
    lessons = {"known_pitfalls": ["Never book a ferry without asking."], "heuristics": ["Check the tide tables first."]}
    api.send("PATCH", f"/v1/agents/{OWNER['agent_id']}/experience", lessons)


def _turns(life: str) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = json.loads((LIVES / "test" / f"{life}.json").read_text(encoding="utf-8"))["turns"]
    return turns


def _session(most: int) -> list[dict[str, Any]]:
    turns = [turn for life in PRESENT for turn in _turns(life)]
    users = [at for at, turn in enumerate(turns) if turn["role"] == "user"]
    return turns[: users[most]] if most < len(users) else turns


def _prompt(api: Api, query: str, budget: int, layout: str) -> Prompt:
    asked = {**OWNER, "session_id": "long", "query": query, "token_budget": budget, "layout": layout}
    answer = api.send("POST", "/v1/context", {**asked, "format": "messages"})
    text = _head() + "".join(f"<{each['role']}>{each['content']}\n" for each in answer["messages"])
    parts = (answer.get(name, {"tokens": 0})["tokens"] for name in ("stable", "volatile"))
    return Prompt(text, *parts)


def _head() -> str:
    """Tools and system prompt."""
    lines = (
        f"Tool {at}: looks up record {at} of the harbour office, by its name or its number.\n" for at in range(999)
    )
    text = "".join(lines)
    return prompt_text.truncate(text, HEAD_TOKENS)


def _row(budget: int, layout: str, prompts: Sequence[Prompt]) -> Row:
    cached = total = moved = 0
    for before, prompt in pairwise(prompts):
        equal = _common(before.text, prompt.text)
        cached += _hit(prompt_text.count(equal))
        total += prompt.tokens
        moved += layout == "cached" and not equal.startswith(_beginning(before))
    return {
        "budget": budget,
        "layout": layout,
        "prompts": len(prompts),
        "cached": round(cached / total, 3),
        "tokens": round(sum(prompt.tokens for prompt in prompts) / len(prompts)),
        "stable": round(sum(prompt.stable for prompt in prompts) / len(prompts)),
        "volatile": round(sum(prompt.volatile for prompt in prompts) / len(prompts)),
        "moved": moved,
    }


def _common(one: str, other: str) -> str:
    """The beginning that two prompts share."""
    least = min(len(one), len(other))
    return one[: next((at for at in range(least) if one[at] != other[at]), least)]


def _hit(tokens: int) -> int:
    return tokens - (tokens - LEAST_CACHED) % STEP if tokens >= LEAST_CACHED else 0


def _beginning(prompt: Prompt) -> str:
    """The prompt up to its last message before what changes."""
    return prompt.text[: prompt.text.rindex("<recalld_context>")] if "<recalld_context>" in prompt.text else prompt.text
