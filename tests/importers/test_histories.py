"""Histories with other assistants come in as they were shown last; what nobody said stays out and is counted."""

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli._service import _Reached
from app.core.schemas import Json
from app.importers import histories
from app.importers.histories import entries_of, files_of, read_history, said_by_user
from app.importers.loader import (
    DefaultOwner,
    ImportRecord,
    ImportReport,
    ImportResult,
    SkippedEntry,
    Unreadable,
    bring,
    parsed,
)
from app.mcp.transport import ApiAnswer
from app.settings import SecretSettings, Settings
from tests.conftest import Starter
from tests.support.command import Run
from tests.support.processor_time import processor_time
from tests.support.server import serving

pytestmark = pytest.mark.anyio
ADA = DefaultOwner("helper", "ada", "2026-06-01T12:00:00.000Z")


# --- The shapes, as they are in November 2026 ------------------------------------------------------------------------


def node(identity: str, parent: str | None, role: str, text: str, tool: str | None = None, **more: Any) -> Json:
    content = more.pop("content", {"content_type": "text", "parts": [text]})
    author, at = {"role": role, "name": tool}, 1.78e9 + len(identity)
    message = {"id": identity, "author": author, "create_time": at}
    return {"id": identity, "parent": parent, "children": [], "message": {**message, "content": content, **more}}


CHATGPT: Json = {
    "conversation_id": "c1",
    "title": "Trip",
    "current_node": "n12345678",
    "mapping": {
        one["id"]: one
        for one in (
            {"id": "n", "parent": None, "message": None},
            node("n1", "n", "system", ""),
            node("n12", "n1", "user", "", content={"content_type": "user_editable_context", "user_profile": "I"}),
            node("n123", "n12", "user", "Where is it warm?"),
            node("n123x", "n123", "assistant", "In Oslo."),
            node("n1234", "n123", "assistant", "", content={"content_type": "thoughts", "thoughts": []}),
            node(
                "n12345", "n1234", "assistant", "", recipient="web.search",
                content={"content_type": "code", "text": "warm places"},
            ),
            node("n123456", "n12345", "tool", "Lisbon, 19 degrees", "web.search"),
            node("n1234567", "n123456", "assistant", "In Lisbon\ue200cite\ue202turn0\ue201.", recipient="all"),
            node("n12345678", "n1234567", "user", "Book it.", content={
                "content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}, "Book it."]}),
        )
    },
}  # fmt: skip


def claude_message(uuid: str, parent: str | None, sender: str, *blocks: Json, **more: Any) -> Json:
    return {
        "uuid": uuid, "sender": sender, "created_at": f"2026-05-01T10:00:{len(uuid):02}Z", "text": "flat",
        "content": list(blocks), "attachments": [], "files": [], "parent_message_uuid": parent, **more,
    }  # fmt: skip


def said(text: str) -> Json:
    return {"type": "text", "text": text}


CLAUDE: Json = {
    "uuid": "k1",
    "name": "Garden",
    "chat_messages": [
        claude_message("m", "00000000-0000-4000-8000-000000000000", "human", said("What blooms now?"),
                       attachments=[{"file_name": "plan.txt", "extracted_content": "roses"}]),
        claude_message("mx", "m", "assistant", said("Nothing.")),
        claude_message("mmm", "m", "assistant", {"type": "thinking", "thinking": "hm"}, said("Let me look."),
                       {"type": "tool_use", "name": "web_search", "input": {"query": "bloom"}, "id": None},
                       {"type": "tool_result", "name": "web_search", "content": [said("crocus")], "is_error": False},
                       said("Crocuses.")),
    ],
}  # fmt: skip
MEMORIES: Json = {
    "conversations_memory": "**Work context**\n\nAda is a gardener.\n\n**Personal context**\n\nLikes roses.",
    "project_memories": {"p1": "The garden of the school."},
    "account_uuid": "acc",
}


def line(uuid: str | None, parent: str | None, kind: str, content: Any = None, **more: Any) -> Json:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s1", "cwd": "/home/ada/shop",
        "timestamp": f"2026-05-01T10:00:{len(uuid or ''):02}.000Z", "message": message, **more,
    }  # fmt: skip


def use(name: str, identity: str, **given: Any) -> Json:
    return {"type": "tool_use", "id": identity, "name": name, "input": given}


def gave(identity: str, text: str, **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": identity, "content": text, **more}


ANSWER = {"id": "msg_1", "model": "claude-opus"}
CLAUDE_CODE: list[Json] = [
    {"type": "file-history-snapshot", "messageId": "a"},
    line("a", None, "user", "Fix the old test"),
    line("ax", "a", "assistant", [said("Which one?")], message={"id": "msg_0"}),
    line("ab", None, "user", "<command-name>/fix</command-name>\n<command-args></command-args>"),
    line("abc", "ab", "user", "Fix the new test\n\n<system-reminder>\nBe brief.\n</system-reminder>"),
    line("abca", "abc", "attachment", attachment={"type": "relevant_memories", "content": "Ada likes tea"}),
    line("abcb", "abca", "user", "Base directory for this skill: /x", isMeta=True),
    line("abcd", "abcb", "assistant", [{"type": "thinking", "thinking": "hm"}], message=ANSWER),
    line("abcde", "abcd", "assistant", [said("I look.")], message=ANSWER),
    line("abcdef", "abcde", "assistant", [use("Read", "t1", file="a.py")], message=ANSWER),
    line("abcdefg", "abcdef", "assistant", [use("Bash", "t2", command="pytest")], message=ANSWER),
    line("abcdefx", "abcdef", "user", [gave("t1", "def test(): ...")]),
    line("abcdefgh", "abcdefg", "user", [gave("t2", "1 failed", is_error=True)]),
    line("s1", None, "assistant", [said("A sub-agent speaks")], isSidechain=True),
    line("abcdefghi", None, "system", logicalParentUuid="abcdefgh", subtype="compact_boundary"),
    line("abcdefghij", "abcdefghi", "user", "This session is being continued …", isCompactSummary=True),
    line("abcdefghijk", "abcdefghij", "attachment", attachment={"type": "queued_command", "prompt": "Quickly please"}),
    line("abcdefghijkl", "abcdefghijk", "assistant", [said("It is fixed.")], message={"id": "msg_2"}),
]


def item(at: int, **payload: Any) -> Json:
    return {"timestamp": f"2026-05-01T10:00:{at:02}.000Z", "type": "response_item", "payload": payload}


def typed(at: int, *texts: str, role: str = "user", kinds: Iterable[str] | None = None, **more: Any) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    about = {} if kinds is None else {"internal_chat_message_metadata_passthrough": {"content_item_kinds": [*kinds]}}
    return item(
        at, type="message", role=role, content=[{"type": kind, "text": text} for text in texts], **about, **more
    )


CODEX: list[Json] = [
    {"type": "session_meta", "payload": {"id": "x1", "cwd": "/home/ada/shop", "source": "cli"}},
    typed(1, "<permissions instructions>ask</permissions instructions>", role="developer"),
    typed(2, "# AGENTS.md instructions for /home/ada\n\n<INSTRUCTIONS>\nUse tabs\n</INSTRUCTIONS>"),
    typed(3, "<environment_context>\n<cwd>/home</cwd>\n</environment_context>", "Recalled: Ada likes tea", "Add a test",
          kinds=["environments.environment_context", "hooks.additional_context", "user.text"], id="u1"),
    item(4, type="reasoning", summary=[], encrypted_content="x"),
    item(5, type="function_call", name="shell", arguments='{"command":["ls"]}', call_id="f1"),
    {"type": "event_msg", "payload": {"type": "item_completed", "item": {"id": "f1", "status": "completed"}}},
    item(6, type="function_call_output", call_id="f1", output="a.py"),
    typed(7, "Done.", role="assistant", id="a1"),
    {"timestamp": "2026-05-01T10:00:08Z", "type": "event_msg", "payload": {"type": "token_count"}},
    typed(9, "No, another", id="u2"),
    typed(10, "So?", role="assistant", id="a2"),
    {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}},
    typed(12, "Thanks", id="u3"),
]  # fmt: skip


# --- Helpers ---------------------------------------------------------------------------------------------------------


def jsonl(records: Iterable[Any]) -> str:
    return "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)


def read(system: str, path: Path) -> list[ImportResult]:
    return [result for _, results in read_history(system, path, ADA) for result in results]


def texts(results: Iterable[ImportResult], kind: str = "message") -> list[tuple[str, str]]:
    records = [one for one in results if isinstance(one, ImportRecord) and one.kind == kind]
    return [(str(one.body.get("role", "")), one.body["content"]) for one in records]


def calls(results: Iterable[ImportResult]) -> list[tuple[Any, ...]]:
    records = [one.body for one in results if isinstance(one, ImportRecord) and one.kind == "action"]
    return [(*(one["action"][name] for name in ("tool", "input", "output")), one.get("outcome")) for one in records]


def reasons(results: Iterable[ImportResult]) -> dict[str, int]:
    report = ImportReport()
    for one in results:
        if isinstance(one, SkippedEntry):
            report.leave(one.where, one.reason, is_memory=one.is_memory)
    shown = report.shown()
    return {one["reason"]: one["count"] for one in (*shown["left"], *shown["not_memory"])}


def sessions(results: Iterable[ImportResult]) -> set[str | None]:
    return {one.session["session_id"] for one in results if isinstance(one, ImportRecord) and one.session}


class Called:
    """The API as an importer calls it. `most`: POSTs, then the connection is lost."""

    def __init__(self, api: httpx.AsyncClient, most: int = 10**6) -> None:
        self._api, self._left = api, most

    async def post(self, path: str, body: Json) -> str | None:
        self._left -= 1
        if self._left < 0:
            raise ConnectionError
        answer = await self._api.post(path, json=body)
        return None if answer.is_success else str(answer.json()["detail"])

    async def get(self, path: str) -> Json | None:
        answer = await self._api.get(path)
        return answer.json() if answer.is_success else None


# --- What each gives -------------------------------------------------------------------------------------------------


def test_chatgpt_as_it_was_shown_last(tmp_path: Path) -> None:
    (tmp_path / "conversations-000.json").write_text(json.dumps([CHATGPT]))
    (tmp_path / "conversations-001.json").write_text(json.dumps([CHATGPT, {"id": "c2", "mapping": 7}]))
    (tmp_path / "user.json").write_text("{}")
    found = read("chatgpt", tmp_path)
    assert texts(found) == [("user", "Where is it warm?"), ("assistant", "In Lisbon."), ("user", "Book it.")]
    assert calls(found) == [("web.search", "warm places", "Lisbon, 19 degrees", None)]
    assert sessions(found) == {"chatgpt-c1"}
    assert reasons(found) == {
        histories.INJECTED: 2,
        histories.THOUGHT: 1,
        histories.BRANCH: 1,
        "the export has this conversation twice": 1,
        "it has no mapping of messages, or no id": 1,
        histories.OTHER_FILE: 1,
    }
    times = [one.body["timestamp"] for one in found if isinstance(one, ImportRecord)]
    assert times == sorted(times)
    assert times[0].startswith("2026-")


def test_claude_with_its_memories(tmp_path: Path) -> None:
    (tmp_path / "conversations.json").write_text(json.dumps([CLAUDE]))
    (tmp_path / "memories.json").write_text(json.dumps([MEMORIES]))
    (tmp_path / "projects.json").write_text("[]")
    found = read("claude", tmp_path)
    assert texts(found) == [("user", "What blooms now?"), ("assistant", "Let me look.\n\nCrocuses.")]
    assert calls(found) == [("web_search", {"query": "bloom"}, "crocus", "success")]
    assert [text for _, text in texts(found, "memory")] == [
        "**Work context**\n\nAda is a gardener.",
        "**Personal context**\n\nLikes roses.",
        "The garden of the school.",
    ]
    assert reasons(found) == {
        histories.THOUGHT: 1,
        histories.BRANCH: 1,
        "it is an attached file: send it as a document": 1,
        histories.OTHER_FILE: 1,
    }


def test_an_older_export_of_claude_has_no_branches(tmp_path: Path) -> None:
    messages = [{"uuid": "a", "sender": "human", "text": "Hi"}, {"uuid": "b", "sender": "assistant", "text": "Hello"}]
    (tmp_path / "c.json").write_text(json.dumps([{"uuid": "k2", "chat_messages": messages}]))
    assert texts(read("claude", tmp_path / "c.json")) == [("user", "Hi"), ("assistant", "Hello")]


def test_claude_code_is_read_along_the_last_branch(tmp_path: Path) -> None:
    (tmp_path / "s1.jsonl").write_text(jsonl([*CLAUDE_CODE[:2], "{damaged", *CLAUDE_CODE[2:]]))
    (tmp_path / "notes.md").write_text("# Notes")
    found = read("claude-code", tmp_path)
    assert texts(found) == [
        ("user", "Fix the new test"),
        ("assistant", "I look."),
        ("user", "Quickly please"),
        ("assistant", "It is fixed."),
    ]
    assert calls(found) == [
        ("Read", {"file": "a.py"}, "def test(): ...", "success"),
        ("Bash", {"command": "pytest"}, "1 failed", "failure"),
    ]
    assert reasons(found) == {
        histories.DAMAGED: 1,
        histories.INJECTED: 4,
        histories.BRANCH: 2,
        histories.OTHER_FILE: 1,
        histories.SUB_AGENT: 1,
        histories.NOTE: 1,
    }


def test_a_fork_of_claude_code_gives_what_is_new_in_it(tmp_path: Path) -> None:
    (tmp_path / "z.jsonl").write_text(jsonl(CLAUDE_CODE))
    source = {"sessionId": "z", "messageUuid": "x"}
    copied = [{**one, "sessionId": "f", "forkedFrom": source} for one in CLAUDE_CODE if one.get("uuid")]
    fork = [*copied, line("abcdefghijklm", "abcdefghijkl", "user", "And the other one?")]
    (tmp_path / "f.jsonl").write_text(jsonl(fork))  # is read first
    found = read("claude-code", tmp_path)
    assert texts(found).count(("assistant", "It is fixed.")) == 1
    of_fork = [one for one in found if isinstance(one, ImportRecord) and one.session
               and one.session["session_id"] == "f"]  # fmt: skip
    assert texts(of_fork) == [("user", "And the other one?")]
    assert texts(read("claude-code", tmp_path / "f.jsonl"))[-1] == ("user", "And the other one?")
    assert len(texts(read("claude-code", tmp_path / "f.jsonl"))) == 5


def test_a_fork_by_the_command_line_has_the_same_ids_and_begins_later(tmp_path: Path) -> None:
    begun = {"type": "queue-operation", "operation": "enqueue"}
    first = [{**begun, "timestamp": "2026-05-01T10:00:00.500Z"}, *CLAUDE_CODE]
    fork = [{**begun, "timestamp": "2026-05-02T08:00:00Z"}, *({**one, "sessionId": "f"} for one in CLAUDE_CODE)]
    (tmp_path / "z.jsonl").write_text(jsonl(first))
    alone = texts(read("claude-code", tmp_path))
    (tmp_path / "f.jsonl").write_text(jsonl([*fork, line("n", "abcdefghijkl", "user", "And the other one?")]))
    assert texts(read("claude-code", tmp_path)) == [*alone, ("user", "And the other one?")]


def test_codex_without_what_it_was_told(tmp_path: Path) -> None:
    file = tmp_path / "2026" / "05" / "rollout-2026-05-01T10-00-00-x1.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(jsonl(CODEX))
    found = read("codex", tmp_path)
    assert texts(found) == [("user", "Add a test"), ("assistant", "Done."), ("user", "Thanks")]
    assert calls(found) == [("shell", '{"command":["ls"]}', "a.py", "success")]
    assert sessions(found) == {"codex-x1"}
    assert reasons(found) == {
        histories.INJECTED: 2, histories.THOUGHT: 1, histories.BRANCH: 2, histories.NOTE: 2,
    }  # fmt: skip


def test_a_fork_and_a_sub_agent_of_codex(tmp_path: Path) -> None:
    meta = {"type": "session_meta", "payload": {"id": "x2", "forked_from_id": "x1"}}
    agent = {"type": "session_meta", "payload": {"id": "x3", "source": {"subagent": "review"}}}
    (tmp_path / "rollout-1.jsonl").write_text(jsonl(CODEX))
    (tmp_path / "rollout-2.jsonl").write_text(jsonl([meta, *CODEX, typed(20, "A new way", id="u4")]))
    (tmp_path / "rollout-3.jsonl").write_text(jsonl([agent, typed(1, "Review it")]))
    (tmp_path / "rollout-4.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    found = read("codex", tmp_path)
    assert texts(found) == [("user", "Add a test"), ("assistant", "Done."), ("user", "Thanks"), ("user", "A new way")]
    assert reasons(found)[histories.COPIED] == 4
    assert reasons(found)[histories.SUB_AGENT] == 1
    assert "it is compressed with zstd: unpack it first, with `zstd -d`" in reasons(found)


def gemini(identity: str, kind: str, content: Any, **more: Any) -> Json:
    return {
        "id": identity,
        "timestamp": f"2026-05-01T10:00:0{identity[1]}.000Z",
        "type": kind,
        "content": content,
        **more,
    }


def part(text: str, **more: Any) -> Json:
    return {"text": text, **more}


LISTED = {"functionResponse": {"name": "list_directory", "response": {"output": "a.py"}}}
LIST_FOLDER = {"name": "list_directory", "id": "t1", "args": {"path": "."}, "result": [LISTED], "status": "success"}
LOOKS = gemini("m3", "gemini", "", thoughts=[{"subject": "Looking"}])
GEMINI: list[Json] = [
    {"sessionId": "g1", "projectHash": "h", "startTime": "2026-05-01T10:00:00.000Z", "kind": "main"},
    {"$set": {"messages": [gemini("m1", "user", [part("<session_context>\nToday is Friday.\n</session_context>")])]}},
    gemini("m2", "user", [part("Look at @a.py"), part("\n--- Content from referenced files ---")],
           displayContent=[part("Look at @a.py")]),
    LOOKS,
    {**LOOKS, "toolCalls": [LIST_FOLDER]},
    gemini("m4", "user", [{"functionResponse": {"name": "list_directory"}}]),
    gemini("m5", "info", "Request cancelled."),
    gemini("m6", "gemini", "It is a test."),
    gemini("m7", "user", [part("Never mind")]),
    {"$rewindTo": "m7"},
]  # fmt: skip
RESUMED: list[Json] = [
    {"$set": {"messages": [
        gemini("m2", "user", [part("Look at @a.py")], displayContent=[part("Look at @a.py")]),
        gemini("m3", "gemini", [part("**Looking**", thought=True)], toolCalls=[LIST_FOLDER]),
        gemini("m6", "gemini", [part("**Thinking**", thought=True), part("It is a test.")]),
    ]}},
    gemini("m8", "user", [part("Thanks")]),
]  # fmt: skip


def test_gemini_cli_as_it_stands_in_the_end(tmp_path: Path) -> None:
    chats = tmp_path / "tmp" / "shop" / "chats"
    chats.mkdir(parents=True)
    (tmp_path / "projects.json").write_text("{}")
    (chats / "session-2026-05-01T10-00-g1.jsonl").write_text(jsonl(GEMINI))
    found = read("gemini-cli", tmp_path)
    told = [("user", "Look at @a.py"), ("assistant", "It is a test.")]
    assert texts(found) == told
    assert calls(found) == [("list_directory", {"path": "."}, "a.py", "success")]
    assert sessions(found) == {"gemini-cli-g1"}
    assert reasons(found) == {
        histories.INJECTED: 1, histories.THOUGHT: 1, histories.BRANCH: 1, histories.NOTE: 1, histories.OTHER_FILE: 1,
    }  # fmt: skip
    # a session that goes on rewrites what was said, and has a second file
    (chats / "session-2026-05-01T10-00-g1.jsonl").write_text(jsonl([*GEMINI, *RESUMED]))
    (chats / "session-2026-05-02T10-00-g1.jsonl").write_text(
        jsonl([{**GEMINI[0], "startTime": "2026-05-02"}, GEMINI[2]])
    )
    (chats / "session-2026-05-03T10-00-g2.jsonl").write_text(jsonl([{**GEMINI[0], "kind": "subagent"}, GEMINI[2]]))
    found = read("gemini-cli", tmp_path)
    assert texts(found) == [*told, ("user", "Thanks")]
    assert calls(found) == [("list_directory", {"path": "."}, "a.py", "success")]
    assert (reasons(found)[histories.COPIED], reasons(found)[histories.SUB_AGENT]) == (1, 1)


def event(number: int, kind: str, /, **data: Any) -> Json:
    return {"type": kind, "id": f"e{number}", "timestamp": f"2026-05-01T10:00:0{number}.000Z", "data": data}


COPILOT: list[Json] = [
    event(0, "session.start", sessionId="p1", context={"cwd": "/home/ada/shop"}),
    event(1, "user.message", content="Look at the folder", transformedContent="<now/>Look", messageId="u1"),
    event(2, "system.message", role="system", content="You are …"),
    event(3, "assistant.message", content="I look.", messageId="a1", toolRequests=[{"toolCallId": "t1"}]),
    event(4, "tool.execution_start", toolCallId="t1", toolName="bash", arguments={"command": "ls"}),
    event(5, "tool.execution_complete", toolCallId="t1", success=False, error={"message": "no shell"}),
    event(6, "assistant.message", content="", messageId="a2", toolRequests=[]),
    event(7, "user.message", content="Read the skill", source="skill-pdf", messageId="u2"),
    {**event(8, "assistant.message", content="I am another", messageId="a3"), "agentId": "x"},
    event(9, "user.message", content="Never mind", messageId="u3"),
    event(0, "session.snapshot_rewind", upToEventId="e9", eventsRemoved=1),
    event(0, "session.resume"),
]


def test_copilot_without_what_it_was_told(tmp_path: Path) -> None:
    (tmp_path / "p1").mkdir()
    (tmp_path / "p1" / "events.jsonl").write_text(jsonl(COPILOT))
    (tmp_path / "p1" / "workspace.yaml").write_text("id: p1")
    found = read("copilot", tmp_path)
    assert texts(found) == [("user", "Look at the folder"), ("assistant", "I look.")]
    assert calls(found) == [("bash", {"command": "ls"}, "no shell", "failure")]
    assert sessions(found) == {"copilot-p1"}
    assert reasons(found) == {
        histories.INJECTED: 2, histories.SUB_AGENT: 1, histories.BRANCH: 1, histories.OTHER_FILE: 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ("Fix it", "Fix it"),
        ("<environment_context>\n<cwd>/</cwd>\n</environment_context>\n\nFix it", "Fix it"),
        ("<command-name>/x</command-name>\n<command-args>a</command-args>", ""),
        ("Fix it\n<system-reminder>\nx\n</system-reminder>", "Fix it"),
        ("Why is <my-button>a</my-button> grey?", "Why is <my-button>a</my-button> grey?"),
        ("<environment_context> is what?", "<environment_context> is what?"),
        ("<b>bold</b> is not seen", "<b>bold</b> is not seen"),
    ],
)
def test_blocks_that_a_tool_puts_around_a_text_are_not_the_users(sent: str, text: str) -> None:
    assert said_by_user(sent) == text


# --- Files -----------------------------------------------------------------------------------------------------------


def zipped(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_an_archive_is_read_where_it_lies(tmp_path: Path) -> None:
    path = zipped(tmp_path / "export.zip", {"conversations-000.json": json.dumps([CHATGPT]), "../../evil.json": "[]"})
    found = read("chatgpt", path)
    assert len(texts(found)) == 3
    assert reasons(found)[histories.OTHER_FILE] == 1
    assert [one.name for one in tmp_path.iterdir()] == ["export.zip"]
    assert len(texts(read("chatgpt", tmp_path))) == 3  # the folder with the archive


def test_an_archive_that_unpacks_to_far_more_ends_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "INFLATED", 10)
    monkeypatch.setattr(histories, "CHUNK", 1_000)
    bomb = json.dumps([CHATGPT, {"x": " " * 3_000_000}])
    found = read("chatgpt", zipped(tmp_path / "bomb.zip", {"conversations.json": bomb}))
    assert "it unpacks to more than its archive can hold" in reasons(found)


def test_a_damaged_record_or_file_never_ends_it(tmp_path: Path) -> None:
    (tmp_path / "conversations-000.json").write_text('[{"id": 1, "mapping": {]}, ' + json.dumps(CHATGPT) + ", 7, []]")
    (tmp_path / "conversations-001.json").write_bytes(b"\xff\x00 not JSON")
    (tmp_path / "conversations-002.zip").write_bytes(b"PK\x03\x04 broken")
    second = {**CHATGPT, "conversation_id": "c9"}
    (tmp_path / "conversations-003.json").write_text(json.dumps([second])[:-40])
    (tmp_path / "conversations-004.json").write_text(json.dumps([{**CHATGPT, "conversation_id": "c10"}]))
    found = read("chatgpt", tmp_path)
    assert {"chatgpt-c10"} <= sessions(found)
    assert histories.DAMAGED in reasons(found)


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_entries_are_found_whatever_the_chunks(size: int) -> None:
    text = '\n[{"a": "]}\\"{"}, {"b": [1, {"c": "\\\\"}]}, "x]", 5,\n{}]'
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    assert [json.loads(one) for one in entries_of(chunks)] == [{"a": ']}"{'}, {"b": [1, {"c": "\\"}]}, {}]
    assert [*entries_of(['{"a": ', "[1]}"])] == ['{"a": [1]}']


def test_an_entry_without_end_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MOST_CHARACTERS", 10_000)

    def endless() -> Iterator[str]:
        yield '[{"a": "'
        while True:
            yield "x" * 1_000

    with pytest.raises(Unreadable):
        list(entries_of(endless()))


ODD: list[Any] = [None, 7, -1.5, True, "", "x", "\ud800", [], [7], {}, {"a": 7}, {"text": 7}, "[" * 500, 1e300, "2026"]


def with_odd(value: Any) -> Iterator[Any]:
    yield from ODD
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in [*parts]:
        for changed in with_odd(part):
            copied = value.copy()
            copied[name] = changed
            yield copied


@pytest.mark.parametrize(
    ("system", "whole", "lines"),
    [("chatgpt", CHATGPT, False), ("claude", CLAUDE, False), ("claude", MEMORIES, False),
     ("claude-code", CLAUDE_CODE[-8:], True), ("codex", CODEX, True), ("gemini-cli", GEMINI, True),
     ("copilot", COPILOT, True)],
)  # fmt: skip
def test_no_odd_value_ends_it(system: str, whole: Any, lines: bool) -> None:
    def opened(content: str) -> histories.HistoryFile:
        return histories.HistoryFile(
            "x.jsonl" if lines else "x.json", 1, lambda: io.BytesIO(content.encode(errors="replace"))
        )

    reader = histories._READERS[system]
    for changed in with_odd(whole):
        if lines and not isinstance(changed, list):
            continue
        file = opened(jsonl(changed) if lines else json.dumps([changed]))
        with suppress(Unreadable):
            list(reader(histories._Reading(system, ADA, file, [], set())))


@pytest.mark.parametrize(
    "parse",
    [
        lambda length: said_by_user("# AGENTS.md instructions" + "\t" * length),
        lambda length: parsed('"5E\\' * length + "x"),
        lambda length: histories._SECTION.split("\t\t\n" * length + "x"),
    ],
    ids=["a heading and tabs", "strings without ends", "empty lines"],
)
def test_an_odd_text_takes_time_in_proportion_to_its_length(parse: Callable[[int], Any]) -> None:
    def parse_it(length: int) -> None:
        with suppress(ValueError):
            parse(length)

    short, long = (processor_time(partial(parse_it, length)) for length in (1_000, 8_000))
    assert long < 30 * max(short, 0.002)


# --- All of it -------------------------------------------------------------------------------------------------------


async def stored(api: httpx.AsyncClient, session: str) -> tuple[list[str], int]:
    page = (await api.get(f"/v1/sessions/{session}/messages", params={"last": 1000})).json()["items"]
    actions = (await api.get("/v1/actions", params={"session_id": session})).json()["items"]
    return [one["content"] for one in page], len(actions)


async def test_it_arrives_goes_on_and_is_never_doubled(api: httpx.AsyncClient, tmp_path: Path) -> None:
    tmp_path = tmp_path / "history"
    tmp_path.mkdir()
    (tmp_path / "s1.jsonl").write_text(jsonl(CLAUDE_CODE))
    with pytest.raises(ConnectionError):
        await bring(read("claude-code", tmp_path), Called(api, most=2))  # the session and its actions
    report = await bring(read("claude-code", tmp_path), Called(api))
    assert (report.taken, report.there) == ({"message": 4}, {"action": 2})
    more = [line("abcdefghijklm", "abcdefghijkl", "user", "Thanks!"),
            line("abcdefghijklmn", "abcdefghijklm", "assistant",
                 [said("Gladly."), use("Bash", "t3", command="ls")])]  # fmt: skip
    (tmp_path / "s1.jsonl").write_text(jsonl([*CLAUDE_CODE, *more]))
    grown = await bring(read("claude-code", tmp_path), Called(api))
    assert (grown.taken, grown.there) == ({"message": 2, "action": 1}, {"message": 4, "action": 2})
    again = await bring(read("claude-code", tmp_path), Called(api))
    assert (+again.taken, again.there) == ({}, {"message": 6, "action": 3})
    assert await stored(api, "s1") == (
        ["Fix the new test", "I look.", "Quickly please", "It is fixed.", "Thanks!", "Gladly."],
        3,
    )
    session = (await api.get("/v1/sessions/s1")).json()
    assert session["metadata"] == {"cwd": "/home/ada/shop", "imported_from": "claude-code"}


async def test_what_was_refused_before_stays_out_and_the_rest_goes_on(
    start: Starter, settings: Settings, tmp_path: Path
) -> None:
    blocks = settings.model_copy(update={"secrets": SecretSettings(policy="block")})
    said_ = [("a", None, "Hello"), ("ab", "a", "Pay with 4242 4242 4242 4242"), ("abc", "ab", "Thanks")]
    lines = [line(uuid, parent, "user", text) for uuid, parent, text in said_]
    (tmp_path / "s1.jsonl").write_text(jsonl(lines))
    async with start(blocks) as service:
        first = await bring(read("claude-code", tmp_path / "s1.jsonl"), Called(service.client))
        (tmp_path / "s1.jsonl").write_text(jsonl([*lines, line("abcd", "abc", "user", "Bye")]))
        again = await bring(read("claude-code", tmp_path / "s1.jsonl"), Called(service.client))
        assert await stored(service.client, "s1") == (["Hello", "Thanks", "Bye"], 0)
    assert (first.taken, first.shown()["left"][0]["count"]) == ({"message": 2}, 1)
    assert (again.taken, again.there, again.shown()["left"][0]["count"]) == ({"message": 1}, {"message": 2}, 1)


async def test_long_texts_and_outputs_are_kept_short_and_known_again(api: httpx.AsyncClient, tmp_path: Path) -> None:
    tmp_path = tmp_path / "history"
    tmp_path.mkdir()
    long = [
        line("a", None, "user", "word " * 20_000),
        line("ab", "a", "assistant", [said("I look."), use("Bash", "t1", command="cat")]),
        line("abc", "ab", "user", [gave("t1", "line\n" * 50_000)]),
    ]
    (tmp_path / "s1.jsonl").write_text(jsonl(long))
    report = await bring(read("claude-code", tmp_path), Called(api))
    assert (report.taken, report.shown()["left"]) == ({"message": 2, "action": 1}, [])
    again = await bring(read("claude-code", tmp_path), Called(api))
    assert (+again.taken, again.there) == ({}, {"message": 2, "action": 1})


def test_the_command_reads_a_folder_twice_and_says_what_was_there(data: Path, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    zipped(folder / "export.zip", {"conversations-000.json": json.dumps([CHATGPT])})
    missing = run("import", "--from", "chatgpt", str(folder))
    assert missing.returncode == 1
    assert "--user" in missing.stderr
    planned = json.loads(run("import", "--from", "chatgpt", str(folder), "--user", "ada", "--dry-run", "--json").stdout)
    assert (planned["dry_run"], planned["taken"]) == (True, {"message": 3, "action": 1})
    assert not data.exists()
    done = json.loads(run("import", "--from", "chatgpt", str(folder), "--user", "ada", "--json").stdout)
    assert (done["taken"], done["left"]) == ({"message": 3, "action": 1}, [])
    again = json.loads(run("import", "--from", "chatgpt", str(folder), "--user", "ada", "--json").stdout)
    assert (again["taken"], again["there"]) == ({}, {"message": 3, "action": 1})
    assert again["agent"] == "chatgpt"
    assert "Taken: nothing (agent chatgpt)" in run("import", "--from", "chatgpt", str(folder), "--user", "ada").stdout
    other = run("import", "--from", "codex", str(folder), "--user", "ada")
    assert other.returncode == 1
    assert "holds no conversation of codex" in other.stderr


async def test_a_service_that_asks_to_wait_is_waited_for() -> None:
    answers = [ApiAnswer(429, {}, {"retry-after": "0"}), ApiAnswer(201, {"warnings": [{"kind": "card"}]})]

    async def api(method: str, path: str, body: Any = None, headers: Any = None) -> ApiAnswer:
        return answers.pop(0)

    service = _Reached(api)
    assert await service.post("/v1/memories", {}) is None
    assert (answers, service.found) == ([], {"card": 1})


def test_secrets_in_a_history_are_told_by_kind(data: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "s1.jsonl"
    file.write_text(jsonl([line("a", None, "user", "Pay with 4242 4242 4242 4242")]))
    done = run("import", "--from", "claude-code", str(file), "--user", "ada", "--json")
    assert json.loads(done.stdout)["secrets"] == {"card": 1}
    assert "4242 4242" not in done.stdout


def test_the_history_of_an_erased_user_stays_out(data: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([CHATGPT]))
    options = ("import", "--from", "chatgpt", str(file), "--user", "ada", "--json")
    assert json.loads(run(*options).stdout)["taken"] == {"message": 3, "action": 1}
    with serving(data) as server:
        assert server.client.get("/v1/sessions/chatgpt-c1").status_code == 200
        assert server.client.delete("/v1/users/ada").status_code == 200
        assert server.client.get("/v1/sessions/chatgpt-c1").status_code == 404
        assert server.stop() == 0
    refused = run(*options)
    told = json.loads(refused.stdout)
    assert (refused.returncode, told["erased"], told["taken"]) == (3, {"ada": 4}, {})
    assert json.loads(run(*options, "--restore-erased").stdout)["taken"] == {"message": 3, "action": 1}


def test_what_is_no_file_is_said(data: Path, run: Run, tmp_path: Path) -> None:
    refused = run("import", "--from", "codex", str(tmp_path / "none"), "--user", "ada")
    assert refused.returncode == 1
    assert "cannot be read" in refused.stderr
    assert list(files_of(tmp_path)) == []
