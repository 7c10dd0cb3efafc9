"""A page of the user's book, run as its reader runs it: in order, with a service of its own.

A block is a fence of `sh`, `python` or `js`. A fence of `json` or `text` behind it is what it prints. Comments say
the rest:

    <!-- not run: needs Atlas -->                    the next fence is not run
    <!-- tested: tests/clients/test_clients.py -->   it runs there
    <!-- not output -->                              the next `json` or `text` is no output
    <!-- new store -->                               here the page says that the service starts with an empty store
    <!-- fails -->                                   the next block ends with an error, as the text says
    <!-- typed: Hello | What do I drink? -->         what is typed at the prompts of the next block
    <!-- model: You drink tea. -->                   what a language model answers from here on
    <!-- learns: {"memories": {…}} -->               what it learns from here on (`tests/support/model.py`)

In an output `…` stands for anything, alone in a line for any lines, last in a list for any more items. Ids, scores and
times of this hour need not be equal. Of JSON, what is shown has to come; more may.
"""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.chat import completion
from tests.support.model import Model
from tests.support.scripted import Reply, scripted_server
from tests.support.server import RESERVE_BYTES, ROOT

LANGUAGES = ("sh", "python", "js")
SECONDS = 120
"""Of a block."""
ADDRESS, MODEL_ADDRESS = "127.0.0.1:8000", "http://127.0.0.1:11434/v1"
"""Of the service and of a language model, in the pages."""
_FENCE = re.compile(
    r"(?ms)^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^ *```$|<!-- (?P<remark>.*?) -->",
)
_SERVE = """#!/bin/sh
# As a reader ends the service with Ctrl+C and starts it again, with other settings perhaps.
book-stop
"$BOOK_PYTHON" -m app.cli serve --port "$BOOK_PORT" "$@" >> "$BOOK/service.log" 2>&1 &
echo $! > "$BOOK/service.pid"
for try in $(seq 600); do
    command curl -sf "http://127.0.0.1:$BOOK_PORT/readyz" > /dev/null && exit 0
    kill -0 "$(cat "$BOOK/service.pid")" || break
    sleep 0.05
done
tail -5 "$BOOK/service.log" >&2
exit 1
"""
_STOP = """#!/bin/sh
[ -f "$BOOK/service.pid" ] || exit 0
kill "$(cat "$BOOK/service.pid")"
while kill -0 "$(cat "$BOOK/service.pid")" 2>/dev/null; do sleep 0.05; done
rm "$BOOK/service.pid"
"""
_RECALLD = '#!/bin/sh\nexec "$BOOK_PYTHON" -m app.cli "$@"\n'
_PYTHON = """
import ast, asyncio, io, json, os, sys, traceback
url, scope, answers = sys.argv[1], {"__name__": "__main__"}, os.fdopen(os.dup(1), "w")
loop = asyncio.new_event_loop()
for line in sys.stdin:
    block = json.loads(line)
    os.environ |= {"RECALLD_URL": url} | block["environment"]
    sys.stdin, sys.stdout = io.StringIO(block["typed"]), io.StringIO()
    failed = False
    try:
        code = compile(block["text"], "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waiting = eval(code, scope)
        if waiting is not None:
            loop.run_until_complete(waiting)
    except BaseException:
        failed = True
        traceback.print_exc(file=sys.stdout)
    print(json.dumps({"failed": failed, "printed": sys.stdout.getvalue()}), file=answers, flush=True)
"""


@dataclass
class Block:
    line: int
    language: str
    text: str
    remarks: dict[str, str] = field(default_factory=dict)
    output: str | None = None


def blocks(page: str) -> Iterator[Block]:
    """Those that run, in order; a fence of which nothing is said is a ValueError."""
    remarks: dict[str, str] = {}
    last: Block | None = None
    for found in _FENCE.finditer(page):
        if found["remark"]:
            name, _, value = found["remark"].partition(":")
            remarks[name.strip()] = value.strip()
            continue
        language, line = found["language"], page.count("\n", 0, found.start()) + 1
        text = re.sub(f"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
        given, remarks = remarks, {}
        if language == "mermaid" or "not output" in given:
            continue
        if "tested" in given and not (ROOT / given["tested"].partition("::")[0]).exists():
            raise ValueError(f"line {line}: there is no {given['tested']}")
        if "not run" in given or "tested" in given:
            last = None
        elif language in LANGUAGES:
            last = Block(line, language, text, given)
            yield last
        elif language in ("json", "text") and last is not None and last.output is None:
            last.output = text
        else:
            raise ValueError(f"line {line}: {language or 'a fence'} neither runs nor is it the output of a block")


class Reader:
    """Runs the blocks of one page in one shell, and those of Python in one interpreter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said, self.model = "Noted.", Model()
        self._server = scripted_server(self._answer)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("RECALLD_")}
        self._environment |= {
            "HOME": str(folder),
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "clients" / "python"))),
            "RECALLD_DISK_RESERVE_BYTES": str(RESERVE_BYTES),
            "OPENAI_API_KEY": "none",
            "BOOK": str(folder),
            "BOOK_PORT": str(self.port),
            "BOOK_PYTHON": sys.executable,
        }
        for name in ("clients", "deploy", "docs", "examples", "integrations", "openapi"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "node_modules").mkdir()
        (folder / "node_modules" / "recalld-client").symlink_to(ROOT / "clients" / "typescript")
        programs = {
            "scripts/serve": _SERVE,
            "bin/book-stop": _STOP,
            "scripts/recalld": _RECALLD,
            "bin/recalld": _RECALLD,
        }
        for name, text in programs.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def __enter__(self) -> "Reader":
        self.model_url = self._server.__enter__().url
        self._environment["OPENAI_BASE_URL"] = self.model_url
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._python: subprocess.Popen[bytes] | None = None
        self._ask(
            self._shell,
            "set -E -o pipefail; trap 'echo \"failed: $BASH_COMMAND\" >> $BOOK/failures' ERR;"
            'curl() { command curl --fail-with-body "$@"; }; echo',
        )
        return self

    def _end_python(self) -> None:
        if self._python is not None:
            self._python.kill()
            self._python.communicate()
            self._python = None

    def __exit__(self, *_: object) -> None:
        self._end_python()
        os.killpg(self._shell.pid, signal.SIGKILL)  # the service is of its session
        self._shell.communicate()
        self._server.__exit__(None, None, None)

    def run(self, block: Block) -> tuple[str, str]:
        """What failed, and what it printed."""
        text = self._here(block.text)
        if "new store" in block.remarks:
            again = "" if "scripts/serve" in text else "scripts/serve;"
            self._ask(self._shell, f'book-stop; rm -rf "$BOOK/.recalld"; unset ${{!RECALLD_@}}; {again} echo')
            self._end_python()
        if "model" in block.remarks:
            self.said = block.remarks["model"]
        if "learns" in block.remarks:
            self.model.says |= json.loads(block.remarks["learns"])
        typed = "".join(f"{line.strip()}\n" for line in block.remarks.get("typed", "").split("|")) + "\n"
        if block.language == "python":
            return self._run_python(text, typed)
        if block.language == "js":
            (self.folder / "block.mjs").write_text(text)
            text = f"RECALLD_URL=http://127.0.0.1:{self.port} node block.mjs"
        (self.folder / "block.sh").write_text(text)
        (self.folder / "typed").write_text(typed)
        (self.folder / "failures").write_text("")
        self._ask(self._shell, ". $BOOK/block.sh > $BOOK/printed 2>&1 < $BOOK/typed; echo")
        printed = (self.folder / "printed").read_text()
        failures = (self.folder / "failures").read_text()
        return failures, self._there(printed)

    def _run_python(self, text: str, typed: str) -> tuple[str, str]:
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-c", _PYTHON, f"http://127.0.0.1:{self.port}"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        self._ask(self._shell, "env -0 > $BOOK/exported; echo")
        lines = (self.folder / "exported").read_text().split("\0")
        exported = dict(line.split("=", 1) for line in lines if line.startswith("RECALLD_"))
        sent = {"text": text, "typed": typed, "environment": exported}
        came = json.loads(self._ask(self._python, json.dumps(sent)))
        return "failed: Python" if came["failed"] else "", self._there(came["printed"])

    def _ask(self, process: "subprocess.Popen[bytes]", line: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], SECONDS)[0]:
            raise TimeoutError(f"a block took more than {SECONDS} s")
        return process.stdout.readline().decode()

    def _here(self, text: str) -> str:
        return text.replace(ADDRESS, f"127.0.0.1:{self.port}").replace(MODEL_ADDRESS, self.model_url)

    def _there(self, text: str) -> str:
        return text.replace(f"127.0.0.1:{self.port}", ADDRESS).replace(self.model_url, MODEL_ADDRESS)

    def _answer(self, reply: Reply, asked: dict[str, Any]) -> bytes:
        if "response_format" in asked:
            return self.model.answer(reply, asked)
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return json.dumps(json.loads(completion(self.said)) | {"model": "m", "created": 0, "usage": usage}).encode()


def faults(page: str, folder: Path) -> list[str]:
    """What a reader of the page would stumble over, block by block."""
    found = list[str]()
    todo = list(blocks(page))
    if not todo:
        return found
    with Reader(folder) as reader:
        if "scripts/serve" not in todo[0].text:
            reader.run(Block(0, "sh", "scripts/serve"))
        for block in todo:
            failures, printed = reader.run(block)
            expected = "fails" in block.remarks or re.search(r'"status": ?[45]\d\d', block.output or "") is not None
            if failures and not expected:
                found.append(f"line {block.line} failed:\n{printed[-3000:]}{failures}")
            elif block.output is not None and (differs := difference(block.output, printed)):
                found.append(f"line {block.line}: {differs}\nprinted:\n{printed[-6000:]}")
    return found


# --- What is shown, and what came -------------------------------------------------------------------------------------

_NEAR = timedelta(hours=1)
_MEASURED = re.compile(r"_(ms|seconds|bytes)$|^took$|^etag$|request_id")
_LIKE = {  # what is shown: what may come in its place
    r"…": r".*?",
    r"\b[a-z]+_[0-9a-f]{8,}\w*\b": r"[a-z]+_\w+",
    r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b": r"[0-9a-f-]{36}",
    r"\brk_\w+": r"rk_\w+",
    r"\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+\d\d:\d\d)": r"[\dT:.+Z-]+",
    r"\b\d{4}-\d\d-\d\d\b": r"\d{4}-\d\d-\d\d",
    r"\b\d\d:\d\d(?::\d\d)?\b": r"\d\d:\d\d(?::\d\d)?",
    r"\d*\.\d+": r"\d*\.\d+",
    r"[\d,]+(?= ?(?:ms|s|MB|kB|bytes)\b)": r"[\d,]+",
    r"\s+": r"\s+",
}
_TOKENS = re.compile("|".join(f"({pattern})" for pattern in _LIKE))


def difference(output: str, printed: str) -> str | None:
    """The first place where what came is not as the page shows."""
    shown, came = _values(output), _values(printed)
    if shown is not None:
        if came is None:
            return "JSON is shown, and something else came"
        return _differs(shown, came, "") if len(shown) == len(came) else f"{len(shown)} are shown, {len(came)} came"
    return _lines_differ([line for line in output.splitlines() if line.strip()], printed.splitlines())


def _values(text: str) -> list[Any] | None:
    """The JSON values, one behind the other; None if something else is between them. `…` without quotes is a text."""
    text = re.sub(r'"(?:\\.|[^"\\])*"|…', lambda found: '"…"' if found[0] == "…" else found[0], text)
    rest, values = re.sub(r',?\s*"…"\s*(?=\})', "", text).strip(), list[Any]()
    while rest:
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            return None
        if not isinstance(value, dict | list):
            return None
        values.append(value)
        rest = rest[end:].strip()
    return values


def _differs(shown: Any, came: Any, place: str) -> str | None:
    if isinstance(shown, dict) and isinstance(came, dict):
        pairs = [(f"{place}/{name}", value, came.get(name, "nothing")) for name, value in shown.items()]
    elif isinstance(shown, list) and isinstance(came, list):
        more = shown[-1:] == ["…"]
        shown = shown[:-1] if more else shown
        if len(came) < len(shown) or (len(came) > len(shown) and not more):
            return f"{place}: {len(shown)} items are shown, {len(came)} came"
        pairs = [(f"{place}/{at}", one, other) for at, (one, other) in enumerate(zip(shown, came, strict=False))]
    else:
        same = _MEASURED.search(place.rpartition("/")[2]) or _same(shown, came)
        return None if same else f"{place}: {shown!r} is shown, {came!r} came"
    return next((differs for where, one, other in pairs if (differs := _differs(one, other, where))), None)


def _same(shown: Any, came: Any) -> bool:
    if isinstance(shown, float) or isinstance(came, float):
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (shown, came))
        return numbers and abs(shown - came) <= max(0.03, 0.05 * abs(shown))
    if isinstance(shown, str) and isinstance(came, str) and shown != came:
        return (_is_near(shown) is not None and _is_near(came) is True) or _like(shown, came)
    return bool(shown == came)


def _is_near(text: str) -> bool | None:
    """Whether it is a time of this hour; None if it is no time."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when.tzinfo is not None and abs(when - datetime.now(UTC)) < _NEAR


def _like(shown: str, came: str) -> bool:
    if _is_near(shown) is not None:  # a time that the caller gave
        return False
    return re.fullmatch(_pattern(shown.strip()), came.strip(), re.DOTALL) is not None


def _pattern(text: str) -> str:
    made, at, likes = "", 0, list(_LIKE.values())
    for token in _TOKENS.finditer(text):
        made += re.escape(text[at : token.start()]) + likes[(token.lastindex or 1) - 1]
        at = token.end()
    return made + re.escape(text[at:])


def _lines_differ(shown: Sequence[str], came: Sequence[str]) -> str | None:
    came = [line for line in came if line.strip()]
    at, skips = 0, False
    for line in shown:
        if line.strip() == "…":
            skips = True
            continue
        places = range(at, len(came)) if skips else range(at, min(at + 1, len(came)))
        place = next((place for place in places if _like(line, came[place])), None)
        if place is None:
            return f"this is shown and did not come: {line}"
        at, skips = place + 1, False
    return f"this came and is not shown: {came[at]}" if at < len(came) and not skips else None
