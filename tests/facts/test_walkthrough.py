"""The commands of docs/concepts/facts.md, run: what the page shows is what comes."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.core.clock import parse_rfc3339
from tests.conftest import Service

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "facts.md"
STEP = re.compile(r"^### (\d{4}-\d\d-\d\d)$|```sh\n(.*?)```\n\n```json\n(.*?)```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"fact_\d")


class Named:
    """The page's `fact_1`, … stand for ids, each for one."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def real(self, text: str) -> str:
        return NAME.sub(lambda found: self.ids[found[0]], text)

    def shows(self, shown: Any, came: Any) -> bool:
        """Whether all that is shown came so; of lists, every item."""
        if isinstance(shown, dict):
            return isinstance(came, dict) and all(
                name in came and self.shows(shown[name], came[name]) for name in shown
            )
        if isinstance(shown, list):
            return isinstance(came, list) and len(shown) == len(came) and all(map(self.shows, shown, came))
        if isinstance(shown, str) and NAME.fullmatch(shown):
            return self.ids.setdefault(shown, came) == came and list(self.ids.values()).count(came) == 1
        return bool(shown == came)


def answers(text: str) -> Iterator[Any]:
    while text.strip():
        value, end = json.JSONDecoder().raw_decode(text.strip())
        yield value
        text = text.strip()[end:]


async def test_the_page_shows_what_comes(service: Service) -> None:
    named, steps = Named(), list(STEP.finditer(PAGE.read_text()))
    assert len(steps) == 3 + 11
    for step in steps:
        if step[1]:
            service.clock.time = parse_rfc3339(f"{step[1]}T12:00:00Z")
            continue
        commands = [line for line in step[2].split("curl ") if line]
        for command, shown in zip(commands, answers(step[3]), strict=True):
            words = shlex.split(command)
            url = urlsplit(named.real(next(word for word in words if word.startswith("http"))))
            path = f"{url.path}?{url.query}" if url.query else url.path
            if "-d" in words:
                body = named.real(words[words.index("-d") + 1])
                came = await service.client.post(path, content=body, headers={"content-type": "application/json"})
            else:
                came = await service.client.get(path)
            assert came.status_code in (200, 201), came.text
            assert named.shows(shown, came.json()), (command, came.json())
