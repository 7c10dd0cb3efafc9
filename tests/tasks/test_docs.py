"""The example of docs/concepts/tasks.md is what the service answers."""

import json
import re
from pathlib import Path

import httpx
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "tasks.md"

pytestmark = pytest.mark.anyio


async def test_the_example_of_the_page_is_what_is_answered(api: httpx.AsyncClient) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (body,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (text,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    (budget,) = re.findall(r"With `max_tokens=(\d+)`", page)
    assert (await api.post("/v1/tasks", json=json.loads(body))).status_code == 201
    shown = await api.get("/v1/tasks/billing/working-memory", params={"max_tokens": budget})
    assert shown.json()["text"] == text
