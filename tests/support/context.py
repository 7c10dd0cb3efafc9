"""Short words for what the tests of contexts do over HTTP, and what must be true of every context."""

from itertools import takewhile
from typing import Any

import httpx

from app.context import rendering
from app.context.sources import SOURCES
from app.core import prompt_text
from tests.support.memories import OWNER, Json
from tests.support.reader import UNSURE, Entry, delimiters, read

FRAME = prompt_text.count(rendering.OPENING) + prompt_text.count(rendering.CLOSING)
TITLES: dict[str, str] = {one.section: one.title for one in SOURCES}
"""In the order in which a prompt shows them."""


async def ask(api: httpx.AsyncClient, query: str = "Where does Ada live?", **fields: Any) -> Json:
    """A context of the partition (a, u), unless `fields` say otherwise; it keeps what it promises."""
    answered = await api.post("/v1/context", json={**OWNER, "query": query, **fields})
    assert answered.status_code == 200, answered.text
    body: Json = answered.json()
    check(body, as_messages=fields.get("format") == "messages")
    return body


def check(body: Json, *, as_messages: bool = False) -> None:
    """The manifest is the text, and every token is counted."""
    sections, items = body["sections"], [one for section in body["sections"] for one in section["items"]]
    entries = read(body["text"])
    assert delimiters(body["text"]) == (2 if entries else 0)
    shown = [one for one in sections if not (as_messages and one["name"] == "messages")]
    assert [(one.title, one.citation) for one in entries] == [
        (TITLES[section["name"]], one["citation"]) for section in shown for one in section["items"]
    ]
    assert [one["name"] for one in sections] == [name for name in TITLES if name in {one["name"] for one in sections}]
    assert all(section["items"] for section in sections)
    for section in sections:
        above = _above(body["text"], section["name"]) if section in shown else 0
        assert section["tokens"] == above + sum(one["tokens"] for one in section["items"])
    turns = sum(one["tokens"] for section in sections if section not in shown for one in section["items"])
    # what is remembered stands in the message of the query, or in one of its own
    is_apart = as_messages and entries and not body["messages"][-1]["content"].startswith(body["text"])
    around = rendering.MESSAGE_TOKENS if is_apart else 0
    assert body["tokens"] == prompt_text.count(body["text"]) + around + turns
    assert body["tokens"] == sum(one["tokens"] for one in sections) + (_frame(body) + around if entries else 0)
    assert body["tokens"] <= body["budget"]
    ids = [one["id"] for one in (*items, *body["dropped"])]
    assert len(ids) == len(set(ids))
    citations = [one["citation"] for one in items if one["citation"] is not None]
    assert len(citations) == len(set(citations))
    assert body["took_ms"]["total"] >= 0


def _above(text: str, name: str) -> int:
    """Tokens of a section's title and headings."""
    title = rendering.title(TITLES[name])
    lines = text[text.index(title) + len(title) :].splitlines()
    own = takewhile(lambda line: not line.startswith("## "), lines)
    return prompt_text.count(title) + sum(prompt_text.count(f"{line}\n") for line in own if line.startswith("### "))


def _frame(body: Json) -> int:
    return FRAME + (prompt_text.count(rendering.UNSURE) if is_unsure(body) else 0)


def is_unsure(body: Json) -> bool:
    return UNSURE in body["text"].splitlines()


def problem_free(body: Json) -> Json:
    assert body["errors"] == []
    return body


def names(body: Json) -> list[str]:
    return [section["name"] for section in body["sections"]]


def entries(body: Json, section: str) -> list[Entry]:
    return [one for one in read(body["text"]) if one.title == TITLES[section]]


def texts(body: Json, section: str) -> list[str]:
    return [one.text for one in entries(body, section)]


def headings(body: Json, section: str) -> list[str]:
    """Each once, in their order."""
    return list(dict.fromkeys(one.heading for one in entries(body, section) if one.heading is not None))


def items(body: Json, section: str) -> list[Json]:
    return [one for found in body["sections"] if found["name"] == section for one in found["items"]]


def dropped(body: Json) -> dict[str, str]:
    return {one["id"]: one["reason"] for one in body["dropped"]}


def warned(body: Json) -> list[str]:
    return [one["code"] for one in body["warnings"]]


def faults(body: Json) -> dict[str, str]:
    return {one["section"]: one["code"] for one in body["errors"]}
