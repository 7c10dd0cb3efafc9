#!/usr/bin/env python3
"""Hook of Claude Code and Cursor: what is remembered comes into a session, and what is said is remembered.

The agent starts this file for each event and writes the event's JSON to its standard input. It needs Python 3.9 and
nothing else. It never stops the agent: it always exits with 0, and says on standard error what failed.

| Claude Code      | Cursor             | what it does                                               |
|------------------|--------------------|------------------------------------------------------------|
| SessionStart     | sessionStart       | gives the agent a context: preferences, decisions, last work |
| UserPromptSubmit | beforeSubmitPrompt | appends what the user said                                 |
| Stop             | afterAgentResponse | appends what the agent answered                            |
| SessionEnd       | sessionEnd         | ends the session, so that Recalld learns from it           |

Environment: RECALLD_URL (http://127.0.0.1:8000), RECALLD_KEY, RECALLD_USER (the login name), RECALLD_AGENT (the name of
the project's folder), RECALLD_BUDGET (1500 tokens), RECALLD_HOOK_SECONDS (5, for each request).
"""

from __future__ import annotations  # for Python 3.9

import getpass
import http.client
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import PurePath
from typing import Any

Json = dict[str, Any]
TEXT_LIMIT = 32_000  # characters of a message
QUERY = "Work on {project}: preferences, conventions, decisions, open problems, what was done last"


class Refused(Exception):
    """The service answered with an error. `code` is its stable word."""

    def __init__(self, status: int, problem: Json) -> None:
        self.code = str(problem.get("code", ""))
        super().__init__(f"{status} {self.code}: {problem.get('detail', 'no detail')}")


def number(name: str, default: int) -> int:
    """A setting that is a whole number above 0. Raises ValueError, which names it."""
    given = os.environ.get(name) or str(default)
    if not given.isdecimal() or int(given) == 0:
        raise ValueError(f"{name} must be a whole number above 0, not {given!r}")
    return int(given)


def call(method: str, path: str, body: Json | None = None, key: str | None = None) -> Json:
    """One request of the API. `key` is its idempotency key. Raises Refused, or OSError when no answer comes."""
    base = os.environ.get("RECALLD_URL") or "http://127.0.0.1:8000"
    if not base.startswith(("http://", "https://")):
        raise ValueError(f"RECALLD_URL must begin with http:// or https://, not {base!r}")
    headers = {"content-type": "application/json"}
    if os.environ.get("RECALLD_KEY"):
        headers["authorization"] = f"Bearer {os.environ['RECALLD_KEY']}"
    if key:
        headers["idempotency-key"] = key[:255]
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base.rstrip("/") + path, data, headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=number("RECALLD_HOOK_SECONDS", 5)) as answer:  # noqa: S310
            read: Json = json.loads(answer.read() or b"{}")
            return read
    except urllib.error.HTTPError as error:
        try:
            problem = json.loads(error.read())
        except ValueError:
            problem = {}
        raise Refused(error.code, problem) from error
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"cannot reach Recalld at {base}: {getattr(error, 'reason', error)}") from error


class Conversation:
    """The session that an event belongs to."""

    def __init__(self, event: Json) -> None:
        # Cursor's events name the conversation, Claude Code's and Cursor's first and last one the session
        self.session = str(event.get("conversation_id") or event.get("session_id") or "").replace("/", "-")
        if not self.session:
            raise ValueError("the event names neither session_id nor conversation_id")
        folders = [*(event.get("workspace_roots") or []), event.get("cwd"), os.environ.get("CLAUDE_PROJECT_DIR")]
        project = next((PurePath(str(folder)).name for folder in folders if folder), "")
        self.project = project or "project"
        agent = os.environ.get("RECALLD_AGENT") or self.project
        self.owner = {"agent_id": agent, "user_id": os.environ.get("RECALLD_USER") or getpass.getuser()}
        self.path = f"/v1/sessions/{urllib.parse.quote(self.session, safe='')}"

    def context(self) -> str:
        """What is remembered for this project and user; empty when nothing is."""
        asked: Json = {"session_id": self.session, "query": QUERY.format(project=self.project)}
        asked["token_budget"] = number("RECALLD_BUDGET", 1500)
        found = call("POST", "/v1/context", {**self.owner, **asked})
        return str(found["text"]) if any(section["items"] for section in found["sections"]) else ""

    def append(self, role: str, text: str, turn: str | None) -> None:
        """`turn`: id of the exchange, where the agent gives one; the same event again is stored once."""
        if not text.strip():
            return
        body = {**self.owner, "messages": [{"role": role, "content": text[:TEXT_LIMIT]}]}
        key = f"hook-{turn}-{role}" if turn else None
        try:
            call("POST", f"{self.path}/messages", body, key)
        except Refused as refused:
            if refused.code != "session_ended":  # a resumed session goes on
                raise
            call("POST", f"{self.path}/reopen")
            call("POST", f"{self.path}/messages", body, key)

    def end(self) -> None:
        try:
            call("POST", f"{self.path}/end")
        except Refused as refused:
            if refused.code not in ("not_found", "session_ended"):  # nothing was said, or it has ended
                raise


def handle(event: Json) -> Json:
    """What the agent gets as the answer to an event."""
    name = str(event.get("hook_event_name", ""))
    conversation = Conversation(event)
    turn = event.get("generation_id")
    if name in ("SessionStart", "sessionStart"):
        text = conversation.context()
        if name == "sessionStart":
            return {"additional_context": text} if text else {}
        return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}} if text else {}
    if name in ("UserPromptSubmit", "beforeSubmitPrompt"):
        conversation.append("user", str(event.get("prompt") or ""), turn)
    elif name == "Stop":
        conversation.append("assistant", str(event.get("last_assistant_message") or ""), turn)
    elif name == "afterAgentResponse":
        conversation.append("assistant", str(event.get("text") or ""), None)  # several may belong to one exchange
    elif name in ("SessionEnd", "sessionEnd"):
        conversation.end()
    return {}


def main() -> None:
    answer: Json = {}
    try:
        event = json.load(sys.stdin)
        if not isinstance(event, dict):
            raise ValueError("the event is no JSON object")  # noqa: TRY004
        answer = handle(event)
    except (OSError, Refused, ValueError, KeyError) as error:
        sys.stderr.write(f"recalld hook: {error}\n")
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
