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

    python3 recalld_hook.py install claude-code   # into ~/.claude/settings.json, beside what is there; or cursor
    python3 recalld_hook.py remove claude-code    # takes out what `install` put in, and nothing else

Both take another file of settings as a second argument, such as .claude/settings.json of a project.

Environment: RECALLD_URL (http://127.0.0.1:8000), RECALLD_KEY, RECALLD_USER (the login name), RECALLD_AGENT (the name of
the project's folder with a sum of its path: shop-1f8a62c0), RECALLD_BUDGET (1500 tokens), RECALLD_HOOK_SECONDS (5, for
each request).
"""

from __future__ import annotations  # for Python 3.9

import getpass
import hashlib
import http.client
import itertools
import json
import os
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path, PurePath
from typing import Any

Json = dict[str, Any]
TEXT_LIMIT = 32_000  # characters of a message
FIRST_LINES = 50  # of a transcript that are read for its first uuid
MOST_FORKS = 200
QUERY = "Work on {project}: preferences, conventions, decisions, open problems, what was done last"


class Refused(Exception):
    """The service answered with an error. `code` is its stable word."""

    def __init__(self, status: int, problem: Json) -> None:
        self.code = str(problem.get("code", ""))
        super().__init__(f"{status} {self.code}: {problem.get('detail', 'no detail')}")


class SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirect on one host only, and none from https to http: the key and what was said are for that host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        same = (old.scheme, old.netloc) == (new.scheme, new.netloc)
        if not same and (old.hostname != new.hostname or new.scheme != "https"):
            raise OSError(f"it redirects to {new.scheme}://{new.hostname}, which is not followed; correct RECALLD_URL")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def number(name: str, default: int) -> int:
    """A setting that is a whole number above 0. Raises ValueError, which names it."""
    given = os.environ.get(name) or str(default)
    if not given.isdecimal() or int(given) == 0:
        raise ValueError(f"{name} must be a whole number above 0, not {given!r}")
    return int(given)


def call(method: str, path: str, body: Json | None = None, key: str | None = None) -> Json:
    """One request of the API. `key` is its idempotency key. Raises Refused, or OSError when no answer comes."""
    base = os.environ.get("RECALLD_URL") or "http://127.0.0.1:8000"
    shown = base.rpartition("@")[2].partition("?")[0]  # before and behind may be secrets
    if not base.startswith(("http://", "https://")):
        raise ValueError(f"RECALLD_URL must begin with http:// or https://, not {shown!r}")
    if "@" in urllib.parse.urlsplit(base).netloc:
        raise ValueError("RECALLD_URL must hold no user and password: the key is RECALLD_KEY")
    headers = {"content-type": "application/json"}
    if os.environ.get("RECALLD_KEY"):
        headers["authorization"] = f"Bearer {os.environ['RECALLD_KEY']}"
    if key:
        headers["idempotency-key"] = key[:255]
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base.rstrip("/") + path, data, headers, method=method)  # noqa: S310
    try:
        opener = urllib.request.build_opener(SameHost)
        with opener.open(request, timeout=number("RECALLD_HOOK_SECONDS", 5)) as answer:
            read: Json = json.loads(answer.read() or b"{}")
            return read
    except urllib.error.HTTPError as error:
        try:
            problem = json.loads(error.read())
        except ValueError:
            problem = {}
        raise Refused(error.code, problem) from error
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"cannot reach Recalld at {shown}: {getattr(error, 'reason', error)}") from error


def agent_of(folder: str) -> str:
    """The agent of a project: /src/shop and /old/shop have one name and are two projects."""
    name = PurePath(folder).name or "project"
    return f"{name}-{hashlib.sha256(os.path.realpath(folder).encode()).hexdigest()[:8]}" if folder else name


def first_uuid(transcript: Path) -> str | None:
    """The id of the first line of a transcript that has one. Lines of other kinds stand before it."""
    try:
        with transcript.open(encoding="utf-8") as lines:
            for line in itertools.islice(lines, FIRST_LINES):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("uuid"):
                    return str(entry["uuid"])
    except (OSError, ValueError):
        pass  # it is not there, or no transcript
    return None


class Conversation:
    """The session that an event belongs to."""

    def __init__(self, event: Json) -> None:
        # Cursor's events name the conversation, Claude Code's and Cursor's first and last one the session
        self.session = str(event.get("conversation_id") or event.get("session_id") or "").replace("/", "-")
        if not self.session:
            raise ValueError("the event names neither session_id nor conversation_id")
        folders = [*(event.get("workspace_roots") or []), event.get("cwd"), os.environ.get("CLAUDE_PROJECT_DIR")]
        folder = next((str(folder) for folder in folders if folder), "")
        self.project = PurePath(folder).name or "project"
        agent = os.environ.get("RECALLD_AGENT") or agent_of(folder)
        self.owner = {"agent_id": agent, "user_id": os.environ.get("RECALLD_USER") or getpass.getuser()}
        self.path = f"/v1/sessions/{urllib.parse.quote(self.session, safe='')}"
        # `claude --resume` and `--fork-session` begin with the turns of the session that the event names
        resumed = event.get("source") in ("resume", "fork")
        self.in_hand = self.in_transcript(Path(str(event.get("transcript_path") or ""))) if resumed else []

    def in_transcript(self, transcript: Path) -> list[str]:
        """The sessions whose turns the agent has before it: this one, and those that share the beginning of its
        transcript. A fork begins with copies of all lines, with their uuids."""
        begins = first_uuid(transcript)
        forks = [file.stem for file in transcript.parent.glob("*.jsonl") if begins and first_uuid(file) == begins]
        return [self.session, *(session for session in forks if session != self.session)][:MOST_FORKS]

    def context(self) -> str:
        """What is remembered for this project and user; empty when nothing is. A session that goes on gets none of its
        own turns again."""
        asked: Json = {"session_id": self.session, "query": QUERY.format(project=self.project)}
        asked["token_budget"] = number("RECALLD_BUDGET", 1500)
        if self.in_hand:
            asked["exclude"] = ["messages", "summary"]
            asked["metadata"] = {"NOT": {"session": {"in": self.in_hand}}}
        found = call("POST", "/v1/context", {**self.owner, **asked})
        return str(found["text"]) if any(section["items"] for section in found["sections"]) else ""

    def append(self, role: str, text: str, turn: str | None) -> None:
        """`turn`: id of the exchange, where the agent gives one; the same event again is stored once."""
        if not text.strip():
            return
        message = {"role": role, "content": text[:TEXT_LIMIT], "metadata": {"session": self.session}}
        body = {**self.owner, "messages": [message]}
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


COMMAND = "python3 ~/.recalld/recalld_hook.py"
HOOKS: Json = {
    "claude-code": {
        "hooks": {
            event: [{"hooks": [{"type": "command", "command": COMMAND, "timeout": 10}]}]
            for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd")
        }
    },
    "cursor": {
        "version": 1,
        "hooks": {
            event: [{"command": COMMAND}]
            for event in ("sessionStart", "beforeSubmitPrompt", "afterAgentResponse", "sessionEnd")
        },
    },
}
"""What `install` adds to the settings of an agent."""
FILES = {"claude-code": "~/.claude/settings.json", "cursor": "~/.cursor/hooks.json"}


def installed(settings: Json, agent: str) -> Json:
    """The settings with the hook behind what is there. Installing again adds nothing."""
    ours = HOOKS[agent]
    kept = removed(settings)
    hooks = {**kept.get("hooks", {})}
    for event, entries in ours["hooks"].items():
        hooks[event] = [*hooks.get(event, []), *entries]
    return {**{name: value for name, value in ours.items() if name not in kept}, **kept, "hooks": hooks}


def removed(settings: Json) -> Json:
    """The settings without the hook. All else stays as it is: other hooks, also those in one entry with ours."""
    hooks: Json = {}
    for event, entries in settings.get("hooks", {}).items():
        kept = [entry for entry in map(without_ours, entries) if entry is not None]
        if kept or not entries:
            hooks[event] = kept
    if hooks or settings.get("hooks") == {}:
        return {name: hooks if name == "hooks" else value for name, value in settings.items()}
    return {name: value for name, value in settings.items() if name != "hooks"}


def without_ours(entry: Json) -> Json | None:
    """An entry of an event without our command; None if it held nothing else."""
    if "hooks" not in entry:
        return None if is_ours(entry) else entry
    kept = [hook for hook in entry["hooks"] if not is_ours(hook)]
    return {**entry, "hooks": kept} if kept or not entry["hooks"] else None


def is_ours(hook: Json) -> bool:
    return "recalld_hook.py" in str(hook.get("command", ""))


def change_settings(action: str, agent: str, file: str | None) -> str:
    """Installs or removes the hook. Returns what was done. Raises ValueError and changes nothing if the file is not
    what such settings are; OSError if it cannot be read or written."""
    path = Path(os.path.realpath(Path(file or FILES[agent]).expanduser()))  # a link to a file stays a link
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    try:
        settings = json.loads(text or "{}")
        after = installed(settings, agent) if action == "install" else removed(settings)
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is no JSON of settings, so nothing was changed: {error}") from error
    if action == "install":
        own = Path("~/.recalld/recalld_hook.py").expanduser()
        if not own.exists() or not own.samefile(__file__):
            write(own, Path(__file__).read_text(encoding="utf-8"))
    if after == settings:
        return f"{path} is as it was."
    if action == "remove" and after in ({}, {"version": 1}):
        path.unlink()
        return f"{path} held nothing else and was removed."
    write(path, json.dumps(after, indent=2, ensure_ascii=False) + "\n")
    return f"{path}: the hook was {'added' if action == 'install' else 'removed'}, and all else is as it was."


def write(path: Path, text: str) -> None:
    """Replaces a file in one step, so that a full disk leaves the old one whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    made, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    part = Path(name)
    try:
        with os.fdopen(made, "w", encoding="utf-8") as file:
            file.write(text)
        part.chmod(mode)
        part.replace(path)
    except BaseException:
        part.unlink()
        raise


def manage(arguments: list[str]) -> int:
    """`install` and `remove`. Returns the exit code."""
    if not 2 <= len(arguments) <= 3 or arguments[0] not in ("install", "remove") or arguments[1] not in FILES:
        sys.stderr.write("usage: recalld_hook.py install|remove claude-code|cursor [FILE]\n")
        return 2
    try:
        sys.stdout.write(change_settings(arguments[0], arguments[1], *(arguments[2:] or [None])) + "\n")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"recalld hook: {error}\n")
        return 1
    return 0


def main() -> None:
    if sys.argv[1:]:
        sys.exit(manage(sys.argv[1:]))
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
