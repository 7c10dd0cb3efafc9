"""The commands under "What is due" in docs/concepts/memories.md, run: what the page shows is what comes."""

import json
import re
import shlex
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.core.clock import parse_rfc3339
from tests.conftest import Service
from tests.support.server import ROOT

pytestmark = pytest.mark.anyio

STEP = re.compile(r"```sh\n(.*?)```\n\n```json\n(.*?)```", re.DOTALL)


def shows(shown: Any, came: Any) -> bool:
    """Whether all that is shown came so; of lists, every item."""
    if isinstance(shown, dict):
        return all(name in came and shows(value, came[name]) for name, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(came) and all(map(shows, shown, came))
    return bool(shown == came)


async def test_the_page_shows_what_comes(service: Service) -> None:
    service.clock.time = parse_rfc3339("2026-12-02T10:00:00Z")
    page = (ROOT / "docs" / "concepts" / "memories.md").read_text(encoding="utf-8")
    section = page.partition("## What is due")[2].partition("\n## ")[0]
    ids: dict[str, str] = {}
    steps = STEP.findall(section)
    assert len(steps) == 2
    for commands, answers in steps:
        rest = answers
        for command in commands.split("curl ")[1:]:
            shown, end = json.JSONDecoder().raw_decode(rest.strip())
            rest = rest.strip()[end:]
            words = shlex.split(command)
            url = urlsplit(next(word for word in words if word.startswith("http")))
            path = f"{url.path}?{url.query}"
            for name, real in ids.items():
                path = path.replace(name, real)
            body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
            method = words[words.index("-X") + 1] if "-X" in words else "GET" if body is None else "POST"
            came = await service.client.request(method, path, json=body)
            assert came.status_code in (200, 201), came.text
            if name := shown.get("memory_id"):
                ids[name] = came.json()["memory_id"]
            expected = json.dumps(shown)
            for name, real in ids.items():
                expected = expected.replace(name, real)
            assert shows(json.loads(expected), came.json()), (command, came.json())
