"""Histories that people have with other assistants: what was said, what tools did, and when, session by session.

    conversations-000.json   ChatGPT's or Claude's export    → sessions `chatgpt-…`, `claude-…`
    2b1c….jsonl              a session of Claude Code        → session `2b1c…`, as the hook has it
    rollout-….jsonl          a session of Codex              → session `codex-…`
    session-….jsonl          a session of Gemini CLI         → session `gemini-cli-…`
    …/events.jsonl           a session of Copilot CLI        → session `copilot-…`

A conversation is read as it was shown last: of an answer that was asked for anew, the newest. Files are streams, and a
zip archive is read where it lies: nothing is unpacked. What is damaged, or nobody said, is left out and counted.
"""

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeAlias

from app.core.clock import rfc3339
from app.core.schemas import Json
from app.importers import loader

MOST_CHARACTERS = 64 << 20
"""Of one conversation or line: a longer one is left out."""
MOST_BYTES = 16 << 30
"""Of one file of a zip archive, and no more than `INFLATED` times what it has in there: JSON has about ten."""
INFLATED = 1_000
CHUNK = 1 << 20
LONG = 16_000
"""Characters of what a tool was given, and of what it gave: of more the beginning and the end are kept."""
INJECTED = "the tool put it in: instructions, recalled context, a summary, a notice"
THOUGHT = "it is what the model thought, and nobody said it"
COPIED = "a fork copied it from a session that is here, too"
DAMAGED = "it is damaged: no JSON, or of another shape"
TOO_LONG = f"it has more than {MOST_CHARACTERS >> 20} million characters"
NOTE = "it is a note of the tool"
SUB_AGENT = "a sub-agent was told it, or did it"
BRANCH = "it is on a branch that was not shown last"
OTHER_FILE = "the file holds no conversations"

HistoryPart: TypeAlias = tuple[int, list[loader.ImportResult]]
"""How many bytes were read since the part before, and what a conversation gave."""


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file, or one in an archive, with its size in bytes. `most`: what is read of it at the most."""

    name: str
    size: int
    opened: Callable[[], IO[bytes]]
    most: int = MOST_BYTES

    @property
    def stem(self) -> str:
        """The name without folders and endings."""
        return PurePosixPath(self.name).name.partition(".")[0]

    def texts(self) -> Iterator[str]:
        """Yields the text of the file in chunks. Raises OSError, Unreadable or zipfile.BadZipFile."""
        if self.name.endswith(".zst"):
            raise loader.Unreadable("it is compressed with zstd: unpack it first, with `zstd -d`")
        with self.opened() as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace") as text:
            left = self.most
            while chunk := text.read(CHUNK):
                left -= len(chunk)
                if left < 0:
                    raise loader.Unreadable("it unpacks to more than its archive can hold")
                yield chunk

    def begun(self) -> str:
        """Returns the first time in the file: a fork that copies lines has one of its own before them."""
        try:
            time_of = _TIME.search(next(self.texts(), ""))
        except (loader.Unreadable, OSError, RuntimeError, zipfile.BadZipFile, NotImplementedError):
            return "~"
        return time_of[1] if time_of else "~"


_TIME = re.compile(r'"timestamp":\s*"([^"]{1,40})"')


def files_of(path: Path, name: str = "") -> Iterator[HistoryFile]:
    """Yields the files of a folder, with those of the archives in it, of an archive, or one file, ordered by name."""
    name = name or path.name
    if path.is_dir():
        for inner in sorted(path.rglob("*")):
            if inner.is_file():
                yield from files_of(inner, inner.relative_to(path).as_posix())
    elif path.suffix == ".zip" and zipfile.is_zipfile(path):
        archive = zipfile.ZipFile(path)  # closed with the last of its files
        for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
            if not entry.is_dir():
                most = min(MOST_BYTES, INFLATED * max(entry.compress_size, CHUNK // INFLATED))
                yield HistoryFile(f"{name}/{entry.filename}", entry.file_size, partial(archive.open, entry), most)
    else:
        yield HistoryFile(name, path.stat().st_size, lambda: path.open("rb"))


def read_history(system: str, path: Path, owner: loader.DefaultOwner) -> Iterator[HistoryPart]:
    """Yields what each conversation gave. Raises OSError if the path cannot be read at all."""
    files, seen, read = [*files_of(path)], set[str](), _READERS[system]
    names = [file.stem for file in files]
    if read is not _export:  # what was copied stands in two files, and is taken from the one that was begun first
        files.sort(key=HistoryFile.begun)
    for file in files:
        rest = file.size
        try:
            for size, results in read(_Reading(system, owner, file, names, seen)):
                rest -= size
                yield size, results
        except loader.Unreadable as error:
            yield 0, [loader.SkippedEntry(file.name, str(error), error.is_memory)]
        except (OSError, RuntimeError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            yield 0, [loader.SkippedEntry(file.name, f"it cannot be read: {type(error).__name__}")]
        yield max(rest, 0), []


@dataclass(frozen=True, slots=True)
class _Reading:
    """One file on its way. `names`: the stems of all files; `seen`: ids of what the files before gave."""

    system: str
    owner: loader.DefaultOwner
    file: HistoryFile
    names: list[str]
    seen: set[str]

    def conversation(self, identity: Any, about: Json) -> "_Conversation":
        return _Conversation(self.system, self.owner, self.owner.id_of(f"{self.system}-{identity}"), about)


@dataclass(slots=True)
class _Conversation:
    """The records of a conversation in the order in which they were shown. Their times never go back."""

    system: str
    owner: loader.DefaultOwner
    session_id: str | None
    about: Json
    results: list[loader.ImportResult] = field(default_factory=list)
    now: str | None = None

    def said(self, role: str, text: str, at: Any, identity: Any, where: str) -> None:
        """Takes what somebody said."""
        spoken: loader.SpokenMessage = {"role": role, "content": text, "timestamp": self._time(at)}
        spoken["metadata"] = self._source(identity)
        try:
            self.results.append(loader.message(where, self.owner.of(), self.session_id, spoken, self._about()))
        except loader.Unreadable as error:
            self.left(where, str(error), is_memory=error.is_memory)

    def called(
        self, tool: Any, given: Any, output: Any, at: Any, identity: Any, where: str, failed: Any = None
    ) -> None:
        """Takes what a tool was given and gave. `failed`: None where nobody says."""
        session: loader.ImportedSession = {**self.owner.of(), "session_id": self.session_id, "metadata": self._about()}
        body: Json = {**session, "metadata": self._source(identity), "timestamp": self._time(at)}
        body["action_type"] = "tool_call"
        body["action"] = {"tool": str(tool or "tool")[:128], "input": _short(given), "output": _short(output)}
        if failed is not None:
            body["outcome"] = "failure" if failed else "success"
        self.results.append(loader.ImportRecord("action", where, body, session))

    def _about(self) -> Json:
        return {**self.about, "imported_from": self.system}

    def _source(self, identity: Any) -> Json:
        return {"imported_from": {"system": self.system, "id": str(identity)}}

    def left(self, where: str, reason: str, *, is_memory: bool = False) -> None:
        """Counts what is left out."""
        self.results.append(loader.SkippedEntry(where, reason, is_memory))

    def _time(self, at: Any) -> str | None:
        try:
            said = rfc3339(datetime.fromtimestamp(at, UTC)) if isinstance(at, int | float) else loader.time(at)
        except (loader.Unreadable, ValueError, OverflowError, OSError):
            said = None
        self.now = max(filter(None, (said, self.now)), default=None)
        return self.now


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= LONG:
        return value
    return f"{text[: LONG // 2]}\n[… {len(text) - LONG} characters left out …]\n{text[-LONG // 2 :]}"


def _texts(content: Any, *kinds: str) -> str:
    """Returns the text of a content: a text, or parts of these types, as `{"type": "text", "text": "Hi"}`."""
    if isinstance(content, str):
        return content
    parts = [part for part in loader.listed(content) if isinstance(part, dict)]
    return "\n\n".join(str(part["text"]) for part in parts if part.get("type") in kinds and part.get("text"))


_BLOCK = re.compile(
    r"\s*(?:# AGENTS\.md instructions[^\n<]*+\s*+)?<([a-z]+(?:[-_][a-z]+)+|[A-Z]{4,}|skill)[^<>\n]{0,200}>"
)
_REMINDER = "<system-reminder>"


def said_by_user(text: str) -> str:
    """Returns what a user wrote of a text that a coding agent sent as the user's: it puts blocks in front, and notes
    behind it. `<environment_context>…</environment_context>\\n\\nFix the test` → `Fix the test`."""
    start, end = 0, len(text)
    while (block := _BLOCK.match(text, start)) and (close := text.find(f"</{block[1]}>", block.end())) >= 0:
        start = close + len(block[1]) + 3
    while text[:end].rstrip().endswith("</system-reminder>") and (note := text.rfind(_REMINDER, start, end)) >= 0:
        end = note
    return text[start:end].strip()


# --- Exports of ChatGPT and Claude: lists of conversations ----------------------------------------------------------

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]|"', re.DOTALL)


def entries_of(chunks: Iterable[str]) -> Iterator[str]:
    """Yields the text of each object in a JSON list, or of the one object that there is, as the chunks arrive.
    `[{"a": 1}, {"b": [2]}]` has two. Raises Unreadable for one that is too long."""
    text, at, depth, start, outer = "", 0, 0, -1, 0
    for chunk in chunks:
        cut = start if start >= 0 else at
        text, at, start = text[cut:] + chunk, at - cut, min(start, 0)
        if len(text) > MOST_CHARACTERS:
            raise loader.Unreadable(TOO_LONG)
        while token := _TOKEN.search(text, at):
            if token[0] == '"':  # goes on in the next chunk
                break
            at = token.end()
            if token[0] in "[{":
                outer = outer if depth else int(token[0] == "[")
                start = token.start() if depth == outer else start
                depth += 1
            elif token[0] in "]}" and depth:
                depth -= 1
                if depth == outer and start >= 0:
                    yield text[start:at]
                    start = -1
        at = token.start() if token else len(text)
    if start >= 0:  # cut off
        yield text[start:]


def _export(reading: _Reading) -> Iterator[HistoryPart]:
    """Yields the conversations of a file of an export, and Claude's memories."""
    name = PurePosixPath(reading.file.name)
    is_memories = reading.system == "claude" and (name.name.startswith("memories") or name.parent.name == "memories")
    is_part = len(reading.names) > 1 and not (name.name.startswith("conversations") or is_memories)
    if is_part or name.suffix != ".json":
        raise loader.NoMemory(OTHER_FILE)
    convert = _of_chatgpt if reading.system == "chatgpt" else _of_claude
    number = -1
    for number, text in enumerate(entries_of(reading.file.texts())):
        where = f"{reading.file.name}/{number}"
        try:
            results = convert(reading, _dict(loader.parsed(text)), where)
        except loader.Unreadable as error:
            results = [loader.SkippedEntry(where, str(error))]
        except (TypeError, ValueError, AttributeError, RecursionError):  # no JSON, or another shape
            results = [loader.SkippedEntry(where, DAMAGED)]
        yield len(text), results
    if number < 0:
        raise loader.NoMemory(OTHER_FILE)


def _path(nodes: dict[str, Json], leaf: Any, parent: str) -> list[str]:
    """Returns the ids from the first node to `leaf`: what was shown last."""
    path = dict[str, None]()
    while isinstance(leaf, str) and leaf in nodes and leaf not in path:
        path[leaf] = None
        leaf = nodes[leaf].get(parent)
    return [*path][::-1]


_CITED = re.compile("\ue200[^\ue201]{0,4000}\ue201")
"""A citation in ChatGPT's texts, which its pages show as a number."""


def _chatgpt_text(spoken: Json) -> str:
    content = _dict(spoken.get("content"))
    parts = [part if isinstance(part, str) else _dict(part).get("text") for part in loader.listed(content.get("parts"))]
    text = "\n\n".join(part for part in parts if isinstance(part, str) and part)
    return _CITED.sub("", text or str(content.get("text") or content.get("result") or ""))


def _of_chatgpt(reading: _Reading, entry: Json, where: str) -> list[loader.ImportResult]:
    # A conversation: {"id": "c1", "title": "Tea", "current_node": "n2", "mapping": {"n2": {"parent": "n1", "message":
    # its author {"role": "user"}, recipient "all", create_time 1.7e9, content {"content_type": "text", "parts": ["Hi"]}
    mapping, identity = entry.get("mapping"), entry.get("conversation_id") or entry.get("id")
    if not isinstance(mapping, dict) or not identity:
        raise loader.Unreadable("it has no mapping of messages, or no id")
    if f"chatgpt-{identity}" in reading.seen:
        return [loader.SkippedEntry(where, "the export has this conversation twice", is_memory=False)]
    reading.seen.add(f"chatgpt-{identity}")
    nodes = {name: node for name, node in mapping.items() if isinstance(node, dict)}
    leaf = entry.get("current_node")
    if leaf not in nodes:
        times = {name: _dict(node.get("message")).get("create_time") for name, node in nodes.items()}
        leaf = max(times, key=lambda name: float(times[name] or 0), default=None)
    talk = reading.conversation(identity, {"title": str(entry.get("title") or "")[:256]})
    path = _path(nodes, leaf, "parent")
    spoken = [_dict(nodes[name].get("message")) for name in path]
    roles = [_dict(one.get("author")).get("role") for one in spoken]
    for number, (name, one, role) in enumerate(zip(path, spoken, roles, strict=True)):
        content, to, place = _dict(one.get("content")), one.get("recipient") or "all", f"{where}/{name}"
        kind, text, at = content.get("content_type"), _chatgpt_text(one), one.get("create_time")
        hidden = _dict(one.get("metadata")).get("is_visually_hidden_from_conversation")
        if role == "assistant" and to != "all":  # a call, and behind it what it gave
            answer = _chatgpt_text(spoken[number + 1]) if roles[number + 1 : number + 2] == ["tool"] else None
            talk.called(to, text, answer, at, name, place)
        elif role == "tool":
            if roles[number - 1] != "assistant" or (spoken[number - 1].get("recipient") or "all") == "all":
                talk.called(_dict(one.get("author")).get("name"), None, text, at, name, place)
        elif kind in ("thoughts", "reasoning_recap") or one.get("channel") == "analysis":
            talk.left(place, THOUGHT)
        elif hidden or kind in ("user_editable_context", "model_editable_context") or role == "system":
            talk.left(place, INJECTED)
        elif role in ("user", "assistant"):
            talk.said(role, text, at, name, place)
    for name in sorted(nodes.keys() - path):
        talk.left(f"{where}/{name}", BRANCH)
    return talk.results


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _of_claude(reading: _Reading, entry: Json, where: str) -> list[loader.ImportResult]:
    # {"uuid": "c1", "name": "Tea", "chat_messages": [{"uuid": "m1", "sender": "human", "created_at": "2026-…",
    #  "content": [{"type": "text", "text": "Hi"}], "parent_message_uuid": "…"}]}
    if "conversations_memory" in entry or "project_memories" in entry:
        return [*_claude_memories(reading, entry, where)]
    messages, identity = entry.get("chat_messages"), entry.get("uuid")
    if not isinstance(messages, list) or not identity:
        raise loader.Unreadable("it has no messages, or no id")
    nodes = {str(one.get("uuid") or number): one for number, one in enumerate(messages) if isinstance(one, dict)}
    path = [*nodes]
    if any(one.get("parent_message_uuid") for one in nodes.values()):
        latest = max(nodes, key=lambda name: str(nodes[name].get("created_at") or ""), default=None)
        leaf = entry.get("current_leaf_message_uuid")
        path = _path(nodes, leaf if leaf in nodes else latest, "parent_message_uuid")
    talk = reading.conversation(identity, {"title": str(entry.get("name") or "")[:256]})
    for name in path:
        spoken, place = nodes[name], f"{where}/chat_messages/{name}"
        blocks = [block for block in loader.listed(spoken.get("content")) if isinstance(block, dict)]
        role, at = {"human": "user"}.get(spoken.get("sender"), spoken.get("sender")), spoken.get("created_at")  # type: ignore[arg-type]
        text = _texts(blocks, "text") or ("" if blocks else str(spoken.get("text") or ""))
        if text:
            talk.said(str(role), text, at, name, place)
        given = [block for block in blocks if block.get("type") == "tool_use"]
        gave = [block for block in blocks if block.get("type") == "tool_result"]
        for number, use in enumerate(given):
            by_id = (one for one in gave if one.get("tool_use_id") and one.get("tool_use_id") == use.get("id"))
            result = next(by_id, gave[number] if number < len(gave) and "tool_use_id" not in gave[number] else {})
            output, failed = _texts(result.get("content"), "text"), result.get("is_error") if result else None
            started = use.get("start_timestamp") or at
            talk.called(use.get("name"), use.get("input"), output, started, f"{name}/{number}", place, failed)
        if any(block.get("type") == "thinking" for block in blocks):
            talk.left(place, THOUGHT)
        for part in (*loader.listed(spoken.get("attachments")), *loader.listed(spoken.get("files"))):
            talk.left(f"{place}/{_dict(part).get('file_name')}", "it is an attached file: send it as a document")
    for name in sorted(nodes.keys() - path):
        talk.left(f"{where}/{name}", BRANCH)
    return talk.results


_SECTION = re.compile(r"\n[^\S\n]*+\n(?=\*\*|#)")


def _claude_memories(reading: _Reading, entry: Json, where: str) -> Iterator[loader.ImportResult]:
    """Yields what Claude remembers, one memory for each section (`**Work context**`)."""
    texts = {"memory": entry.get("conversations_memory"), **_dict(entry.get("project_memories"))}
    for name, text in texts.items():
        for number, section in enumerate(_SECTION.split(text) if isinstance(text, str) else ()):
            record = {"id": f"{entry.get('account_uuid') or 'account'}:{name}:{number}"}
            whose = {**reading.owner.of(), "agent_id": None}  # what is known of a person, every agent may know
            tags = [] if name == "memory" else ["project"]
            if section.strip():
                yield loader.memory("claude", f"{where}/{name}/{number}", record, section.strip(), **whose, tags=tags)


# --- Sessions of coding agents: one JSON object a line ----------------------------------------------------------------


def _lines(reading: _Reading, talk: _Conversation) -> Iterator[tuple[str, Json]]:
    """Yields the objects of a file with their places, and counts in `talk` the lines that hold none."""
    if not reading.file.name.endswith((".jsonl", ".jsonl.zst")):
        raise loader.NoMemory(OTHER_FILE)
    text, number = "", 0
    for chunk in (*reading.file.texts(), "\n"):
        *lines, text = (text + chunk).split("\n")
        for line in lines:
            number += 1
            place = f"{reading.file.name}:{number}"
            try:
                record = loader.parsed(line) if line.strip() else None
            except (ValueError, RecursionError):
                talk.left(place, DAMAGED, is_memory=True)
                continue
            if isinstance(record, dict):
                yield place, record
        if len(text) > MOST_CHARACTERS:
            text = ""
            talk.left(f"{reading.file.name}:{number + 1}", TOO_LONG, is_memory=True)


def _claude_code(reading: _Reading) -> Iterator[HistoryPart]:
    """Yields a session. One answer is several lines with one message id; a fork copies lines with their uuids."""
    # A line: {"type": "user", "uuid": "b", "parentUuid": "a", "timestamp": "2026-…",
    #  "message": {"role": "user", "content": "Hi"}}
    talk = reading.conversation(reading.file.stem, {})
    talk.session_id = reading.owner.id_of(reading.file.stem)  # as the hook for coding agents calls it
    nodes, answers, outputs = dict[str, Json](), dict[str, list[Json]](), dict[str, Json]()
    last, before = None, None
    for place, record in _lines(reading, talk):
        uuid, kind, spoken = record.get("uuid"), record.get("type"), _dict(record.get("message"))
        if record.get("isSidechain") or not isinstance(uuid, str):
            talk.left(place, SUB_AGENT if record.get("isSidechain") else NOTE)
            continue
        copied = _dict(record.get("forkedFrom")).get("sessionId") in reading.names or uuid in reading.seen
        parent = record.get("parentUuid") or record.get("logicalParentUuid")
        # what it follows may have been in another file, or was not written
        parent = before if parent is not None and str(parent) not in nodes else parent
        nodes[uuid] = {**record, "parent": parent, "place": place, "copied": copied}
        before = uuid
        if kind in ("user", "assistant"):
            last = uuid
            for block in loader.listed(spoken.get("content")):
                if _dict(block).get("type") == "tool_result":
                    outputs[str(block.get("tool_use_id"))] = block
            if kind == "assistant":
                answers.setdefault(str(spoken.get("id") or uuid), []).append(nodes[uuid])
                talk.about.setdefault("cwd", record.get("cwd"))
    reading.seen.update(uuid for uuid, node in nodes.items() if not node["copied"])
    for uuid in (path := _path(nodes, last, "parent")):
        record = nodes[uuid]
        spoken, place, at, kind = _dict(record.get("message")), record["place"], record.get("timestamp"), record["type"]
        attached = _dict(record.get("attachment"))
        if record["copied"]:
            talk.left(place, COPIED)
        elif kind == "user" and not (record.get("isMeta") or record.get("isCompactSummary")):
            sent = _texts(spoken.get("content"), "text")
            if text := said_by_user(sent):
                talk.said("user", text, at, uuid, place)
            elif sent:
                talk.left(place, INJECTED)
        elif attached.get("type") == "queued_command" and isinstance(attached.get("prompt"), str):
            talk.said("user", said_by_user(attached["prompt"]), at, uuid, place)
        elif kind == "assistant":
            lines = answers.pop(str(spoken.get("id") or uuid), [])
            if record.get("isApiErrorMessage") or spoken.get("model") == "<synthetic>":
                talk.left(place, "it is a notice of the tool, and no answer")
                continue
            blocks = [
                _dict(block) for line in lines for block in loader.listed(_dict(line.get("message")).get("content"))
            ]
            if text := _texts(blocks, "text"):
                talk.said("assistant", text, at, spoken.get("id") or uuid, place)
            for use in (block for block in blocks if block.get("type") == "tool_use"):
                result = outputs.get(str(use.get("id")), {})
                output, failed = _texts(result.get("content"), "text"), bool(result.get("is_error")) if result else None
                talk.called(use.get("name"), use.get("input"), output, at, use.get("id"), place, failed)
        elif kind in ("user", "attachment"):
            talk.left(place, INJECTED)
    on_path = {*path, *(str(_dict(nodes[uuid].get("message")).get("id", uuid)) for uuid in path)}
    for uuid, node in nodes.items():
        spoken = _dict(node.get("message"))
        if uuid not in on_path and str(spoken.get("id")) not in on_path and _texts(spoken.get("content"), "text"):
            talk.left(node["place"], BRANCH)
    yield reading.file.size, talk.results


_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call")


def _codex(reading: _Reading) -> Iterator[HistoryPart]:
    """Yields a session. A resumed run is appended to its first day's file; a fork begins with what it copied."""
    # {"timestamp": "2026-…", "type": "response_item", "payload": {"type": "message", "role": "user",
    # and then "content": [{"type": "input_text", "text": "Hi"}], and of which kinds it is (`_typed`)
    talk = reading.conversation(reading.file.stem, {})
    meta, shown, outputs = dict[str, Any](), list[tuple[str, str, Any, Json]](), dict[str, Any]()
    statuses = dict[str, Any]()
    for place, record in _lines(reading, talk):
        payload = _dict(record.get("payload", record))
        kind = record.get("type") if "payload" in record else "response_item"
        if kind == "session_meta" or (not meta and "id" in record and "type" not in record):
            meta = meta or payload  # a fork has that of its parent behind its own
        elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
            turns = [number for number, entry in enumerate(shown) if entry[0] == "user"]
            number = payload.get("num_turns")
            undone = turns[-number if isinstance(number, int) and number > 0 else -1 :][:1]
            for entry in shown[undone[0] :] if undone else ():
                talk.left(entry[1], BRANCH)
            del shown[undone[0] if undone else len(shown) :]
        elif kind != "response_item":
            talk.left(place, NOTE)
            done = _dict(payload.get("item"))  # {"type": "CommandExecution", "id": "call_1", "status": "completed"}
            statuses[str(done.get("id"))] = done.get("status")
        elif str(payload.get("type")).endswith("_output"):
            outputs[str(payload.get("call_id"))] = payload.get("output")
        elif payload.get("type") in _CALLS:
            shown.append(("call", place, record.get("timestamp"), payload))
        elif payload.get("type") != "message":
            talk.left(place, THOUGHT if payload.get("type") == "reasoning" else NOTE)
        elif payload.get("role") == "assistant":
            text = _texts(payload.get("content"), "output_text", "text")
            shown.append(("assistant", place, record.get("timestamp"), {**payload, "text": text}))
        elif payload.get("role") == "user" and (text := _typed(payload)):
            shown.append(("user", place, record.get("timestamp"), {**payload, "text": text}))
        else:
            talk.left(place, INJECTED)
    if "subagent" in (str(meta.get("thread_source")), *_dict(meta.get("source"))):
        raise loader.NoMemory(SUB_AGENT)
    identity, parent = str(meta.get("id") or reading.file.stem), meta.get("forked_from_id")
    talk.session_id, talk.about["cwd"] = reading.owner.id_of(f"codex-{identity}"), meta.get("cwd")
    copies = True  # until something is new
    for number, (kind, place, at, payload) in enumerate(shown):
        name = str(payload.get("id") or payload.get("call_id") or f"{identity}:{number}")
        mark = str(payload.get("id") or payload.get("call_id") or (kind, payload.get("text")))
        reading.seen.add(f"{identity}/{mark}")
        copies = copies and f"{parent}/{mark}" in reading.seen
        if copies:
            talk.left(place, COPIED)
        elif kind == "call":
            tool = payload.get("name") or str(payload["type"]).removesuffix("_call")
            given = payload.get("arguments") or payload.get("input") or payload.get("action")
            output, status = outputs.get(str(payload.get("call_id"))), statuses.get(str(payload.get("call_id")))
            output = _texts(output, "input_text", "text") if isinstance(output, list) else output
            talk.called(tool, given, output, at, name, place, None if status is None else status != "completed")
        else:
            talk.said(kind, payload["text"], at, name, place)
    yield reading.file.size, talk.results


def _typed(payload: Json) -> str:
    """Returns what a user typed of a message: newer versions say of which kind each part is, `user.text`."""
    parts = loader.listed(payload.get("content"))
    kinds = _dict(payload.get("internal_chat_message_metadata_passthrough")).get("content_item_kinds")
    if isinstance(kinds, list) and len(kinds) == len(parts):
        parts = [
            part
            for part, kind in zip(parts, kinds, strict=True)
            if str(kind).startswith("user.") or kind in ("", "unknown")
        ]
    texts = (said_by_user(_texts([part], "input_text", "text")) for part in parts)
    return "\n\n".join(filter(None, texts))


def _gemini_cli(reading: _Reading) -> Iterator[HistoryPart]:
    """Yields a session. A line has a message as it stands by then, so the last one with its id counts; a session that
    goes on has a second file, too, with the same id."""
    # {"id": "m1", "timestamp": "2026-…", "type": "user", "content": [{"text": "Hi"}], "displayContent": […]}
    # {"$set": {"messages": [all that there are]}}, {"$rewindTo": "m1"}: it and what follows was taken back
    talk = reading.conversation(reading.file.stem, {})
    meta, messages = dict[str, Any](), dict[str, tuple[str, Json]]()
    for place, record in _lines(reading, talk):
        changes = _dict(record.get("$set"))
        if "projectHash" in record:
            meta = meta or record
        elif isinstance(changes.get("messages"), list):
            messages = {str(one["id"]): (place, one) for one in changes["messages"] if _dict(one).get("id")}
        elif "$rewindTo" in record:
            names = [*messages]
            first = str(record["$rewindTo"])
            for name in names[names.index(first) if first in messages else 0 :]:
                talk.left(messages.pop(name)[0], BRANCH)
        elif record.get("id"):
            messages[str(record["id"])] = (place, record)
    if not meta:
        raise loader.NoMemory(OTHER_FILE)
    if meta.get("kind") == "subagent":
        raise loader.NoMemory(SUB_AGENT)
    talk.session_id = reading.owner.id_of(f"gemini-cli-{meta.get('sessionId')}")
    for name, (place, spoken) in messages.items():
        at, kind, content = spoken.get("timestamp"), spoken.get("type"), spoken.get("displayContent")
        parts = map(_dict, loader.listed(spoken.get("content") if content is None else content))
        # a resumed session has its thoughts among the parts, marked as such
        text = "\n\n".join(str(part["text"]) for part in parts if part.get("text") and not part.get("thought"))
        text = spoken["content"] if isinstance(spoken.get("content"), str) else text
        if kind not in ("user", "gemini"):
            talk.left(place, NOTE)
            continue
        if f"{talk.session_id}/{name}" in reading.seen:
            talk.left(place, COPIED)
            continue
        reading.seen.add(f"{talk.session_id}/{name}")
        if spoken.get("thoughts"):
            talk.left(place, THOUGHT)
        if said := said_by_user(text) if kind == "user" else text:
            talk.said("user" if kind == "user" else "assistant", said, at, name, place)
        elif text:
            talk.left(place, INJECTED)
        for call in map(_dict, loader.listed(spoken.get("toolCalls"))):
            gave = [
                _dict(_dict(one).get("functionResponse")).get("response") for one in loader.listed(call.get("result"))
            ]
            output = next((_dict(one).get("output", _dict(one).get("error", one)) for one in gave if one), None)
            began, failed = call.get("timestamp") or at, call.get("status") not in (None, "success")
            talk.called(call.get("name"), call.get("args"), output, began, call.get("id"), place, failed)
    yield reading.file.size, talk.results


def _copilot(reading: _Reading) -> Iterator[HistoryPart]:
    """Yields a session. A run that is resumed is appended to the same file."""
    # A line: {"type": "user.message", "id": "e1", "timestamp": "2026-…", "data": {"content": "Hi", "messageId": "m1"}}
    talk = reading.conversation(reading.file.stem, {})
    meta, events, ended = dict[str, Any](), dict[str, tuple[str, Json]](), dict[str, Json]()
    for place, record in _lines(reading, talk):
        data, kind = _dict(record.get("data")), record.get("type")
        if kind == "session.start":
            meta = meta or data
        elif kind == "session.snapshot_rewind" and (first := str(data.get("upToEventId"))) in events:
            names = [*events]
            undone = {str(name) for name in loader.listed(data.get("eventIds")) or names[names.index(first) :]}
            for name in filter(undone.__contains__, names):
                talk.left(events.pop(name)[0], BRANCH)
        else:
            events[str(record.get("id"))] = (place, record)
            if kind == "tool.execution_complete":
                ended[str(data.get("toolCallId"))] = data
    if not meta:
        raise loader.NoMemory(OTHER_FILE)
    talk.session_id = reading.owner.id_of(f"copilot-{meta.get('sessionId')}")
    talk.about["cwd"] = _dict(meta.get("context")).get("cwd")
    for name, (place, record) in events.items():
        data, kind, at = _dict(record.get("data")), record.get("type"), record.get("timestamp")
        text = data.get("content") if isinstance(data.get("content"), str) else ""
        if record.get("agentId") or data.get("parentToolCallId"):
            talk.left(place, SUB_AGENT)
        elif kind == "user.message" and (data.get("source") or data.get("isAutopilotContinuation")):
            talk.left(place, INJECTED)
        elif kind in ("user.message", "assistant.message") and text:
            talk.said(str(kind).removesuffix(".message"), text, at, data.get("messageId") or name, place)
        elif kind == "tool.execution_start":
            end = ended.get(str(data.get("toolCallId")), {})
            output = _dict(end.get("result")).get("content") or _dict(end.get("error")).get("message")
            failed = not end.get("success") if end else None
            talk.called(data.get("toolName"), data.get("arguments"), output, at, data.get("toolCallId"), place, failed)
        elif kind == "system.message":
            talk.left(place, INJECTED)
    yield reading.file.size, talk.results


_READERS = {
    "chatgpt": _export,
    "claude": _export,
    "claude-code": _claude_code,
    "codex": _codex,
    "gemini-cli": _gemini_cli,
    "copilot": _copilot,
}
