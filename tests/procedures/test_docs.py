"""The walk-through of docs/concepts/procedures.md, step by step: what it says is answered is answered."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "procedures.md"
BLOCK = re.compile(r"```(sh|json|text)\n(.*?)```", re.DOTALL)
CURL = re.compile(
    r"curl -s( -X (?P<method>\w+))? http://127\.0\.0\.1:8000(?P<path>\S+?)(\s.*?-d '(?P<body>.*?)')?$", re.DOTALL
)
TIMES = re.compile(r"for \w+ in \$\(seq (\d+)\); do (.*); done", re.DOTALL)


def steps() -> Iterator[tuple[int, str, str, Any, str | None, str]]:
    """(times, method, path, body, kind of the answer shown, the answer) of each command."""
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for at, (kind, text) in enumerate(blocks):
        if kind != "sh":
            continue
        repeated = TIMES.fullmatch(text.strip())
        call = CURL.fullmatch(repeated[2] if repeated else text.strip())
        assert call is not None, text
        body = None if call["body"] is None else json.loads(call["body"])
        method = call["method"] or ("GET" if body is None else "POST")
        shown = blocks[at + 1] if at + 1 < len(blocks) and blocks[at + 1][0] != "sh" else (None, "")
        yield int(repeated[1]) if repeated else 1, method, call["path"].strip('"'), body, *shown


def differences(shown: Any, answered: Any, place: str = "") -> Iterator[str]:
    """What the page shows is a part of the answer; ids differ."""
    if isinstance(shown, dict) and isinstance(answered, dict):
        for name, value in shown.items():
            yield from differences(value, answered.get(name), f"{place}/{name}")
    elif isinstance(shown, list) and isinstance(answered, list) and len(shown) == len(answered):
        for at, (one, other) in enumerate(zip(shown, answered, strict=True)):
            yield from differences(one, other, f"{place}/{at}")
    elif isinstance(shown, float) and isinstance(answered, float):
        if shown != pytest.approx(answered, rel=0.01):
            yield f"{place}: {shown} is {answered}"
    elif shown != answered and not str(shown).startswith("proc_"):
        yield f"{place}: {shown} is {answered}"


async def test_the_walk_through_is_true(api: httpx.AsyncClient) -> None:
    ids: list[str] = []
    seen = 0
    for times, method, template, body, kind, shown in steps():
        path = Template(template).safe_substitute(dict(zip(("API_WAY", "HAND_WAY"), ids, strict=False)))
        answers = [await api.request(method, path, json=body) for _ in range(times)]
        answered = answers[-1]
        assert answered.status_code < 300, answered.text
        if path == "/v1/procedures":
            ids.append(answered.json()["procedure_id"])
        if kind == "json":
            assert list(differences(json.loads(shown), answered.json())) == [], path
        elif kind == "text":
            assert re.sub(r"proc_\w+", "proc_…", answered.json()["text"]) == shown, path
        seen += kind is not None
    assert seen == 8
