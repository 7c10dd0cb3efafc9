# mypy: ignore-errors
"""Run by test_anthropic.py, with anthropic: the tool beside the SDK's own, and a client that remembers."""

import asyncio
import json
import random
import sys
import tempfile
from typing import Any

import anthropic
from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaLocalFilesystemMemoryTool
from recalld_client import AsyncRecalld, Recalld
from recalld_client.anthropic import AsyncRecalldMemoryTool, RecalldMemoryTool, wrap_anthropic

URL, MODEL = sys.argv[1:]
NAMES = ("a.md", "b.md", "notes", "notes/c.md", "notes/deep/d.md", ".hidden", "a.md/x", "../b.md", "../../etc", "")
OLD = ("one", "tea", "e", "\n")
TEXTS = ("", "one", "one\ntwo\n", "tea\ntea", "\n\n", "é\r\nx", "the end\n")


def drawn(chosen: random.Random) -> dict[str, Any]:
    path, text = f"/memories/{chosen.choice(NAMES)}", chosen.choice(TEXTS)
    return chosen.choice(
        [
            {"command": "create", "path": path, "file_text": text},
            {"command": "create", "path": path, "file_text": "one\ntwo\nthree\nfour\n"},
            {"command": "view", "path": path},
            {"command": "view", "path": path, "view_range": [chosen.randint(0, 3), chosen.choice([-1, 1, 2, 9])]},
            {
                "command": "str_replace",
                "path": path,
                "old_str": chosen.choice(["one", "tea", "e", "\n"]),
                "new_str": text,
            },
            {"command": "insert", "path": path, "insert_line": chosen.randint(-1, 4), "insert_text": text},
            {"command": "rename", "old_path": path, "new_path": f"/memories/{chosen.choice(NAMES)}"},
            {"command": "delete", "path": path},
        ]
    )


def said(tool: Any, command: dict[str, Any]) -> str:
    """What the model reads, but for the sizes of folders, which are those of a disk there."""
    try:
        answer = str(tool.call(command))
    except ToolError as error:
        answer = f"refused: {error}"
    except OSError as error:  # a file in the place of a folder: the SDK does not say it in words
        answer = f"refused: {type(error).__name__}"
    lines = answer.split("\n")
    if lines[0].endswith("excluding hidden items:"):
        lines = [line.partition("\t")[2] if at == 1 or line.endswith("/") else line for at, line in enumerate(lines)]
    return "\n".join(lines)


def compared() -> int:
    same = 0
    for seed in range(40):
        chosen = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            theirs = BetaLocalFilesystemMemoryTool(folder)
            ours = RecalldMemoryTool(Recalld(URL).user(f"u{seed}", agent="claude"))
            for _ in range(40):
                command = drawn(chosen)
                if command["command"] == "delete" or command["command"] == "rename":
                    # an emptied folder stays on a disk, and is gone here
                    theirs_said, ours_said = said(theirs, command), said(ours, command)
                    swept(theirs.memory_root)
                else:
                    theirs_said, ours_said = said(theirs, command), said(ours, command)
                if "Error" in theirs_said.partition("\n")[0] and theirs_said.startswith("refused: "):
                    assert ours_said.startswith("refused: "), (seed, command, ours_said)
                else:
                    assert ours_said == theirs_said, (seed, command, theirs_said, ours_said)
                swept(theirs.memory_root)
                same += 1
    return same


def swept(root: Any) -> None:
    for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


async def asynchronous() -> str:
    tool = AsyncRecalldMemoryTool(AsyncRecalld(URL).user("async", agent="claude"))
    assert tool.to_dict() == {"type": "memory_20250818", "name": "memory"}
    await tool.call({"command": "create", "path": "/memories/a", "file_text": "x"})
    return str(await tool.call({"command": "view", "path": "/memories/a"}))


def runs_tools() -> list[Any]:
    """Claude (scripted) asks for its memory, and gets the tool's words."""
    tool = RecalldMemoryTool(Recalld(URL).user("runner", agent="claude"))
    client = anthropic.Anthropic(base_url=MODEL, api_key="none")
    runner = client.beta.messages.tool_runner(
        model="claude-sonnet-5-5", max_tokens=100, messages=[{"role": "user", "content": "TOOL"}], tools=[tool]
    )
    return [block.text for message in runner for block in message.content if block.type == "text"]


def remembers() -> list[Any]:
    me = Recalld(URL).user("chatty", agent="claude")
    me.add("Ada lives in Boston.")
    talk, events = me.session(), list[Any]()
    plain = anthropic.Anthropic(base_url=MODEL, api_key="none")
    client = wrap_anthropic(plain, memory=talk, on_event=lambda event: events.append(event.kind))
    asked: Any = {"model": "claude-sonnet-5-5", "max_tokens": 100}
    client.messages.create(**asked, messages=[{"role": "user", "content": "Where do I live?"}])
    stream = client.messages.create(
        **asked, stream=True, messages=[{"role": "user", "content": [{"type": "text", "text": "STREAM please"}]}]
    )
    assert [event.type for event in stream][-1] == "message_stop"
    try:
        client.messages.stream(**asked, messages=[])
    except TypeError as error:
        events.append(str(error))
    return [events, [(one["role"], one["content"]) for one in talk.messages()]]


print(json.dumps([compared(), asyncio.run(asynchronous()), runs_tools(), remembers()]))
