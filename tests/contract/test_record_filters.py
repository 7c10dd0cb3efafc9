"""Searches, lists and deletions by random filters on the fields of every kind of record, against a second evaluation of
the same filters over what answers show."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import httpx
import pytest

from app.settings import JobSettings, Settings
from tests.conftest import Starter

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
TIMES = [f"2026-0{month}-01T00:00:00.000Z" for month in range(1, 6)]
OWNER: Json = {"user_id": "u", "agent_id": "a"}
Values = dict[str, list[Any]]
"""The values that fields of a kind have, by name. Lists have items of these."""

VALUES: dict[str, Values] = {
    "memories": {
        "memory_type": ["fact", "preference", "issue"],
        "key": [None, "k1", "k2"],
        "tags": [[], ["x"], ["x", "y"]],
        "pinned": [True, False],
        "trust": [0.25, 0.5, 1.0],
        "event_at": [None, *TIMES],
        "origin": ["api"],
    },
    "facts": {
        "subject": ["Ada Lovelace", "Bob"],
        "predicate": ["knows_of", "lives in"],
        "object": ["Rome", "4 euros"],
        "object_type": ["entity", "literal"],
        "trust": [0.5, 1.0],
        "valid_from": TIMES,
    },
    "actions": {
        "action_type": ["refund", "deploy"],
        "outcome": [None, "success", "failure"],
        "tags": [[], ["x"], ["x", "y"]],
        "entities": [[], ["Ann"], ["ann", "bob"]],
        "timestamp": TIMES,
        "session_id": [None, "s1", "s2"],
    },
    "tasks": {"session_id": [None, "s1", "s2"], "status": ["pending", "in_progress"]},
    "sessions": {"status": ["active"]},
}
NORMAL: dict[str, Callable[[str], str]] = {
    "subject": str.lower,
    "object": str.lower,
    "entities": str.lower,
    "predicate": lambda text: text.replace("_", " "),
}
"""Fields whose values are equal however they are written."""
ID = {"memories": "memory_id", "facts": "fact_id", "actions": "action_id", "tasks": "task_id", "sessions": "session_id"}
METADATA: list[Json] = [{}, {"n": 1}, {"n": 2, "t": "tea"}, {"t": "Tea", "deep": {"w": 3}}]


def record(kind: str, random: Random, number: int) -> Json:
    fields = {name: random.choice(values) for name, values in VALUES[kind].items() if name != "origin"}
    fields = {name: value for name, value in fields.items() if value is not None}
    fields |= {"metadata": random.choice(METADATA), **OWNER}
    if kind == "tasks":
        return {**fields, "goal": f"tea {number}"}
    if kind == "sessions":
        return {"session_id": f"s{number}", "metadata": fields["metadata"], **OWNER}
    if kind == "facts":
        return {**fields, "object": f"{fields['object']} {number}", "cardinality": "many"}
    key = {"key": f"{fields['key']}.{number}"} if "key" in fields else {}
    return {**fields, "content": f"green tea {number}", **key}


def drawn(kind: str, random: Random, depth: int = 2) -> Json:
    made: Json = {}
    for _ in range(random.choice([1, 1, 2])):
        shape = random.choice(["field", "field", "field", "metadata", "AND", "OR", "NOT"] if depth else ["field"])
        if shape in ("AND", "OR", "NOT"):
            made[shape] = [drawn(kind, random, depth - 1) for _ in range(random.randint(1, 2))]
        elif shape == "metadata":
            within: Json = random.choice([{"n": 1}, {"n": {"gte": 2}}, {"t": "*"}, {"t": {"icontains": "TEA"}}])
            made |= within if random.random() < 0.5 else {"metadata": within}
        else:
            name = random.choice([name for name in VALUES[kind] if name != "session_id" or kind != "sessions"])
            made[name] = comparison(VALUES[kind][name], random)
    return made


def comparison(values: list[Any], random: Random) -> Any:
    some = [item for value in values for item in (value if isinstance(value, list) else [value]) if item is not None]
    wanted, kind = random.choice(some), random.choice(["plain", "*", "eq", "ne", "in", "nin", "exists", "order", "has"])
    if kind == "plain":
        return random.choice([wanted, None])
    if kind == "order" and (isinstance(wanted, float) or wanted in TIMES):
        return {random.choice(["gt", "gte", "lt", "lte"]): wanted}
    if kind == "has" and isinstance(wanted, str) and wanted not in TIMES:
        return {"icontains": wanted.upper()[1:] if not any(isinstance(value, list) for value in values) else wanted}
    if kind in ("in", "nin"):
        return {kind: random.sample(some, min(2, len(some)))}
    if kind in ("eq", "ne"):
        return {kind: random.choice([wanted, None])}
    return {"exists": random.random() < 0.5} if kind == "exists" else "*"


def at(shown: Json, name: str) -> Any:
    return shown["source"]["origin"] if name == "origin" else shown[name]


def holds(name: str, stored: Any, operator: str, wanted: Any) -> bool:
    normal: Callable[[str], str] = NORMAL.get(name, str)
    if operator == "exists":
        return bool((stored is not None) == wanted)
    if operator in ("ne", "nin"):
        return not holds(name, stored, {"ne": "eq", "nin": "in"}[operator], wanted)
    if operator == "eq" and wanted is None:
        return stored is None
    if stored is None:
        return False
    items = [
        normal(item) if isinstance(item, str) else item for item in (stored if isinstance(stored, list) else [stored])
    ]
    if operator in ("eq", "in"):
        every = wanted if operator == "in" else [wanted]
        return any((normal(each) if isinstance(each, str) else each) in items for each in every)
    if operator == "icontains":
        if isinstance(stored, list):
            return wanted.lower() in [item.lower() for item in items]
        return str(wanted).lower() in str(stored).lower()
    return bool(
        {"gt": stored > wanted, "gte": stored >= wanted, "lt": stored < wanted, "lte": stored <= wanted}[operator]
    )


def of_metadata(wanted: Json, metadata: Json) -> bool:
    ((name, value),) = wanted.items()
    if value == "*":
        return name in metadata
    if isinstance(value, dict):
        stored = metadata.get(name)
        return isinstance(stored, int) and stored >= 2 if "gte" in value else "tea" in str(stored).lower()
    return bool(metadata.get(name) == value)


def expected(wanted: Json, shown: Json) -> bool:
    for name, value in wanted.items():
        if name in ("AND", "OR", "NOT"):
            parts = [expected(part, shown) for part in value]
            right = {"AND": all(parts), "OR": any(parts), "NOT": not any(parts)}[name]
        elif name in ("n", "t"):
            right = of_metadata({name: value}, shown["metadata"])
        elif name == "metadata":
            right = of_metadata(value, shown["metadata"])
        else:
            asked = value if isinstance(value, dict) else {"exists": True} if value == "*" else {"eq": value}
            right = all(holds(name, at(shown, name), operator, each) for operator, each in asked.items())
        if not right:
            return False
    return True


async def stored(api: httpx.AsyncClient, kind: str, random: Random) -> list[Json]:
    for number in range(40):
        made = await api.post(f"/v1/{kind}", json=record(kind, random, number))
        assert made.status_code in (200, 201), made.text
    return await listed(api, kind, {})


async def listed(api: httpx.AsyncClient, kind: str, filters: Json) -> list[Json]:
    query: Json = {"limit": 100, "filters": json.dumps({**OWNER, **filters})}
    answer = await api.get(f"/v1/{kind}", params=query | ({"timeline": True} if kind == "facts" else {}))
    assert answer.status_code == 200, (filters, answer.text)
    items: list[Json] = answer.json()["items"]
    return items


async def found(api: httpx.AsyncClient, kind: str, filters: Json) -> set[str]:
    asked = {**filters, "AND": [*filters.get("AND", []), OWNER]}
    answer = await api.post(f"/v1/{kind}/search", json={"query": "green tea", "top_k": 100, "filters": asked})
    assert answer.status_code == 200, (filters, answer.text)
    return {hit[kind[:-1] if kind != "memories" else "memory"][ID[kind]] for hit in answer.json()["items"]}


@pytest.mark.parametrize("kind", VALUES)
async def test_random_filters_on_random_fields(settings: Settings, start: Starter, kind: str) -> None:
    random, name = Random(11), ID[kind]
    quiet = settings.model_copy(update={"jobs": JobSettings(enabled=False)})  # old actions would be rolled up meanwhile
    async with start(quiet) as service:
        api = service.client
        records = await stored(api, kind, random)
        assert len(records) == 40
        searched = kind in ("memories", "facts", "actions")
        searchable = await found(api, kind, {}) if searched else set()
        sizes = set[int]()
        for _ in range(100):
            wanted = drawn(kind, random)
            right = [record[name] for record in records if expected(wanted, record)]
            assert [record[name] for record in await listed(api, kind, wanted)] == right, wanted
            sizes.add(len(right))
            if searched:
                assert await found(api, kind, wanted) == searchable & {*right}, wanted
        assert len(sizes) > 5, "the filters tell records apart"
        if kind == "memories":
            for wanted in ({"trust": {"lt": 0.5}}, {"t": "*"}):
                gone = [record for record in records if expected(wanted, record)]
                query = {"filters": json.dumps({**wanted, "user_id": "u"})}
                assert (await api.delete("/v1/memories", params=query)).json() == {"deleted": len(gone)}
                records = [record for record in records if record not in gone]
            assert [record[name] for record in await listed(api, kind, {})] == [record[name] for record in records]
