"""Lets a service learn from conversations, collects what it derived, and asks for the prompt of a new session."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx

from benchmarks.learned.judging import Derived, unquoted
from benchmarks.learned.meter import Json
from benchmarks.learned.sets import TURN, Conversation, PromptCheck, says

OVER = ("succeeded", "partial", "failed")
NEXT_DAY = timedelta(days=1)
BUDGET = 2000
"""The tokens of a prompt."""
POLL_SECONDS = 0.05
EMBEDDED_SECONDS = 60
"""How long the vectors of what was stored are waited for."""


@dataclass(slots=True)
class Outcome:
    """What became of one conversation."""

    status: str
    seconds: float
    derived: list[Derived]
    dropped: Counter[str]
    needs: int = 0
    needs_met: int = 0
    forbidden: int = 0
    forbidden_said: int = 0
    faults: list[str] = field(default_factory=list)


class Learner:
    """The calls of the API, for one conversation at a time."""

    def __init__(self, client: httpx.Client, deadline: float) -> None:
        """`deadline` is how long the end of a session is waited for, in seconds."""
        self._client, self._deadline = client, deadline

    def learn(self, talk: Conversation) -> Outcome:
        """Stores a conversation as a session, ends it and waits. Then asks the prompt checks.

        The agent is registered, so that lessons are learned, too. Each conversation has its own, so that what the model
        is shown does not depend on the conversations before.
        """
        owner = {"agent_id": f"agent-of-{talk.id}", "user_id": talk.user_id}
        self._send("POST", "/v1/agents", {"agent_id": owner["agent_id"], "name": f"Learning from {talk.id}"})
        messages = [
            {**message, "timestamp": (talk.started_at + TURN * at).isoformat()}
            for at, message in enumerate(talk.messages)
        ]
        self._send("POST", f"/v1/sessions/{talk.id}/messages", {**owner, "messages": messages})
        started = time.monotonic()
        operation = self._send("POST", f"/v1/sessions/{talk.id}/end", None)
        while operation["status"] not in OVER and time.monotonic() - started < self._deadline:
            time.sleep(POLL_SECONDS)
            operation = self._send("GET", f"/v1/operations/{operation['operation_id']}")
        parts = (operation["result"] or {}).get("parts") or {}
        derived = list(self._derived(talk, owner))
        outcome = Outcome(operation["status"], time.monotonic() - started, derived, _dropped(parts))
        self._embedded(owner)
        for check in talk.prompt_checks:
            self._check(talk, check, owner, outcome)
        if operation["status"] not in OVER:  # ends the job, so that the next conversation is not kept waiting
            self._send("DELETE", f"/v1/sessions/{talk.id}")
        return outcome

    def lessons(self, talk: Conversation) -> list[Derived]:
        """Returns the lessons that the agent has learned from a conversation."""
        experience = self._send("GET", f"/v1/agents/agent-of-{talk.id}/experience")
        lists = [lessons for lessons in experience.values() if isinstance(lessons, list)]
        return [Derived("experience", one["text"]) for lessons in lists for one in lessons if isinstance(one, dict)]

    # --- What was derived ---------------------------------------------------------------------------------------------

    def _derived(self, talk: Conversation, owner: Json) -> Iterator[Derived]:
        for memory in self._list("/v1/memories", owner):
            if memory["memory_type"] not in ("message", "summary"):
                condition = f" ({memory['context']})" if memory["context"] else ""
                yield Derived("memory", memory["content"] + condition, memory["source"].get("quote"))
        for fact in self._list("/v1/facts", {"user_id": talk.user_id, "timeline": "true"}):  # of any agent and time
            subject = "user" if fact["subject"] == "@user" else fact["subject"]
            text = f"{subject} {fact['predicate'].replace('_', ' ')} {fact['object']}"
            yield Derived("fact", text, fact["source"].get("quote"), str(fact["object"]))
        yield from self._profile(talk.user_id)
        summary = self._send("GET", f"/v1/sessions/{talk.id}")["summary"]
        if summary:
            yield Derived("summary", summary)

    def _profile(self, user_id: str) -> Iterator[Derived]:
        answer = self._client.get(f"/v1/users/{user_id}/profile")
        if answer.status_code == 404:
            return
        profile = answer.raise_for_status().json()
        for name in ("name", "age", "home", "occupation"):
            if profile[name] is not None:
                yield Derived("profile", f"{name} {profile[name]}", value=str(profile[name]))
        for name in ("interests", "conversation_preferences"):
            for value in profile[name]:
                yield Derived("profile", f"{name.replace('_', ' ')} {value}", value=value)
        for name, value in profile["preferences"].items():
            yield Derived("profile", f"preference {name} {value}", value=str(value))

    # --- The next session's prompt ------------------------------------------------------------------------------------

    def _check(self, talk: Conversation, check: PromptCheck, owner: Json, outcome: Outcome) -> None:
        body = {
            **owner,
            "query": check.query,
            "session_id": f"{talk.id}-next",
            "token_budget": BUDGET,
            "now": (talk.ended_at + NEXT_DAY).isoformat(),
        }
        text = self._send("POST", "/v1/context", body)["text"]
        told = [unquoted(line, talk) for line in text.splitlines()]
        for words in check.needs:
            outcome.needs += 1
            if any(says(text, (word,)) for word in words):
                outcome.needs_met += 1
            else:
                outcome.faults.append(f"{talk.id}: the prompt for {check.query!r} lacks {' or '.join(words)}")
        for one in check.forbids:
            outcome.forbidden += 1
            if line := next((line for line in told if one.met_by(line)), None):
                outcome.forbidden_said += 1
                outcome.faults.append(f"{talk.id}: the prompt for {check.query!r} says {' '.join(one.words)}: {line}")

    def _embedded(self, owner: Json) -> None:
        deadline = time.monotonic() + EMBEDDED_SECONDS
        while time.monotonic() < deadline:
            if all(memory["embedding"]["status"] != "pending" for memory in self._list("/v1/memories", owner)):
                return
            time.sleep(POLL_SECONDS)

    # --- Calls --------------------------------------------------------------------------------------------------------

    def _list(self, path: str, owner: Json) -> Iterator[Json]:
        cursor = None
        while True:
            params = {**owner, "limit": "100", **({"cursor": cursor} if cursor else {})}
            page = self._client.get(path, params=params).raise_for_status().json()
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _send(self, method: str, path: str, body: Json | None = None) -> Any:
        answer = self._client.request(method, path, json=body)
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:500]}")
        return answer.json() if answer.content else None


def _dropped(parts: Json) -> Counter[str]:
    """Returns what was dropped by reason, and the failed parts."""
    found: Counter[str] = Counter()
    for part in parts.values():
        for reason, count in (part.get("dropped") or {}).items():
            found[reason] += count
        if part["status"] == "failed":
            found["part failed"] += 1
    return found


def derived_by_part(outcomes: Sequence[Outcome]) -> Counter[str]:
    """Returns how many records were derived, by part."""
    return Counter(one.part for outcome in outcomes for one in outcome.derived)
