"""Searches, lists and deletions by random filters on metadata, against a second evaluation of the same filters."""

import json
from random import Random
from typing import Any

import pytest

from app.settings import Settings
from tests.conftest import Starter
from tests.support.memories import OWNER, batch, found, listed

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
FIELDS = ("a", "b.c", "$d", "")
VALUES: tuple[Any, ...] = (0, 1, 1.0, 2.5, -3, True, False, None, "1", "", "tea", "Green tea", [], ["tea", 1], {"w": 1})
MISSING = object()


def value(random: Random) -> Any:
    return random.choice([*VALUES, {"w": random.choice(VALUES[:12]), "h": 2}])


def comparison(random: Random) -> Json:
    made: Json = {}
    for _ in range(random.choice([1, 1, 2])):
        name = random.choice(
            ["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "not_in", "contains", "icontains", "exists"]
        )
        if name in ("in", "nin", "not_in"):
            made[name] = [value(random) for _ in range(random.randint(1, 3))]
        elif name in ("gt", "gte", "lt", "lte"):
            made[name] = random.choice([0, 1, 2.5, -3, "", "1", "tea"])
        elif name == "icontains":
            made[name] = random.choice(["TEA", "", "gr"])
        else:
            made[name] = random.random() < 0.5 if name == "exists" else value(random)
    return made


def drawn(random: Random, depth: int = 3) -> Json:
    made: Json = {}
    for _ in range(random.choice([1, 1, 2])):
        kind = random.choice(["plain", "operators", "below", "AND", "OR", "NOT", "NOT"] if depth else ["plain"])
        if kind == "NOT" and random.random() < 0.5:
            made[kind] = drawn(random, depth - 1)
        elif kind in ("AND", "OR", "NOT"):
            made[kind] = [drawn(random, depth - 1) for _ in range(random.randint(1, 2))]
        elif kind == "below":
            made[random.choice(FIELDS)] = {"w": comparison(random)}
        else:
            made[random.choice(FIELDS)] = value(random) if kind == "plain" else comparison(random)
    return made


def equal(one: Any, other: Any) -> bool:
    """As JSON has it: 1 is 1.0, and neither is true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return bool(one == other)


def holds(name: str, stored: Any, wanted: Any) -> bool:
    if name == "exists":
        return bool((stored is not MISSING) == wanted)
    if name in ("ne", "nin", "not_in"):
        return not holds("eq" if name == "ne" else "in", stored, wanted)
    if stored is MISSING:
        return False
    if name in ("eq", "in"):
        return any(equal(stored, each) for each in (wanted if name == "in" else [wanted]))
    if name in ("contains", "icontains"):
        if isinstance(stored, list):
            folded = [each.lower() if name[0] == "i" and isinstance(each, str) else each for each in stored]
            return any(equal(each, wanted.lower() if name[0] == "i" else wanted) for each in folded)
        both = isinstance(stored, str) and isinstance(wanted, str)
        return both and (wanted in stored or (name[0] == "i" and wanted.lower() in stored.lower()))
    numbers = [isinstance(each, int | float) and not isinstance(each, bool) for each in (stored, wanted)]
    if not all(numbers) and not (isinstance(stored, str) and isinstance(wanted, str)):
        return False
    return bool({"gt": stored > wanted, "gte": stored >= wanted, "lt": stored < wanted, "lte": stored <= wanted}[name])


OPERATORS = {"eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "not_in", "contains", "icontains", "exists"}


def expected(wanted: Json, metadata: Json) -> bool:
    for name, value in wanted.items():
        if name in ("AND", "OR", "NOT"):
            parts = [expected(each, metadata) for each in ([value] if isinstance(value, dict) else value)]
            if not {"AND": all(parts), "OR": any(parts), "NOT": not any(parts)}[name]:
                return False
            continue
        stored = metadata.get(name, MISSING)
        if isinstance(value, dict) and isinstance(value.get("w"), dict) and set(value["w"]) <= OPERATORS:
            stored, asked = stored.get("w", MISSING) if isinstance(stored, dict) else MISSING, value["w"]
        else:
            asked = value
        comparisons = asked if isinstance(asked, dict) and set(asked) <= OPERATORS else {"eq": asked}
        if not all(holds(each, stored, right) for each, right in comparisons.items()):
            return False
    return True


async def test_random_filters_on_random_metadata(settings: Settings, start: Starter) -> None:
    random = Random(7)
    memories = {
        f"green tea {at}": {name: value(random) for name in FIELDS if random.random() < 0.6} for at in range(60)
    }
    async with start(settings) as service:
        api = service.client
        await batch(api, *({"content": content, "metadata": metadata} for content, metadata in memories.items()))
        sizes = set[int]()
        for _ in range(100):
            wanted = drawn(random)
            right = sorted(content for content, metadata in memories.items() if expected(wanted, metadata))
            sizes.add(len(right))
            asked: Json = {"metadata": wanted, "record_access": False}
            assert sorted(await found(api, "green tea", top_k=100, **asked)) == right, wanted
            assert set(await found(api, "green tea", top_k=5, **asked)) <= set(right), wanted
            assert len(await found(api, "green tea", top_k=5, **asked)) == min(5, len(right)), wanted
            params = {"metadata": json.dumps(wanted), "limit": 100}
            assert sorted(await listed(api, user_id="u", **params)) == right, wanted
        assert len(sizes) > 15, "filters of all kinds of sizes"
        wanted, right = {"a": {"exists": True}}, [content for content in memories if "a" in memories[content]]
        gone = await api.delete("/v1/memories", params={**OWNER, "metadata": json.dumps(wanted)})
        assert gone.json() == {"deleted": len(right)}
        assert sorted(await listed(api, user_id="u", limit=100)) == sorted(set(memories) - set(right))
