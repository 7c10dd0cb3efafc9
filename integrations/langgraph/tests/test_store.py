"""What LangGraph promises of a store: the cases that its own stores are tested with, against a running service.

Runs where langgraph is installed: RECALLD_URL names the service. tests/integrations/test_frameworks.py runs it.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from langgraph_store_recalld import RecalldStore
from recalld_client import AsyncRecalld, Recalld

URL = os.environ.get("RECALLD_URL", "")
pytestmark = pytest.mark.skipif(not URL, reason="RECALLD_URL names no service")

Value = dict[str, Any]


@pytest.fixture(scope="module")
def memory() -> Iterator[Recalld]:
    with Recalld(URL) as made:
        yield made


@pytest.fixture
def make(memory: Recalld) -> Callable[..., RecalldStore]:
    """Stores of an agent of the test's own."""
    agent = uuid4().hex
    return lambda **options: RecalldStore(memory, agent=agent, **options)


@pytest.fixture
def store(make: Callable[..., RecalldStore]) -> RecalldStore:
    return make()


@pytest.fixture
async def later() -> AsyncIterator[RecalldStore]:
    async with AsyncRecalld(URL) as memory:
        yield RecalldStore(async_memory=memory, agent=uuid4().hex)


def keys(items: Any) -> list[str]:
    return [one.key for one in items]


def test_a_batch_answers_in_the_order_of_its_operations(store: RecalldStore) -> None:
    store.put(("test", "foo"), "key1", {"data": "value1"})
    store.put(("test", "bar"), "key2", {"data": "value2"})
    got, put, searched, spaces, missing = store.batch(
        [
            GetOp(("test", "foo"), "key1"),
            PutOp(("test", "bar"), "key2", {"data": "changed"}),
            SearchOp(("test",), filter={"data": "value1"}, limit=10),
            ListNamespacesOp(limit=10),
            GetOp(("test",), "key3"),
        ]
    )
    assert isinstance(got, Item)
    assert (got.value, got.key, got.namespace) == ({"data": "value1"}, "key1", ("test", "foo"))
    assert put is None
    assert keys(searched) == ["key1"]
    assert spaces == [("test", "bar"), ("test", "foo")]
    assert missing is None
    changed = store.get(("test", "bar"), "key2")
    assert changed is not None
    assert changed.value == {"data": "changed"}


def test_reads_see_what_was_there_before_and_the_last_write_counts(store: RecalldStore) -> None:
    space = ("ada", "memories")
    puts = [PutOp(space, "k", {"n": n}) for n in range(3)]
    assert (
        store.batch([*puts, GetOp(space, "k"), PutOp(space, "gone", {"n": 1}), PutOp(space, "gone", None)])
        == [None] * 6
    )
    kept = store.get(space, "k")
    assert kept is not None
    assert kept.value == {"n": 2}
    assert store.get(space, "gone") is None


def test_put_get_change_delete(store: RecalldStore) -> None:
    space, value = ("test", "documents"), {"title": "One", "content": "Hello", "a.b": {"$c": [None, True, 1.5]}, "": 0}
    store.put(space, "doc", value)
    made = store.get(space, "doc")
    assert made is not None
    assert (made.value, made.created_at.tzinfo is not None) == (value, True)
    store.put(space, "doc", {"title": "Two"})
    changed = store.get(space, "doc")
    assert changed is not None
    assert changed.value == {"title": "Two"}
    assert changed.created_at == made.created_at
    assert changed.updated_at >= made.updated_at
    assert store.get(("test", "others"), "doc") is None
    store.delete(space, "doc")
    store.delete(space, "never there")
    assert store.get(space, "doc") is None


@pytest.mark.parametrize(
    "space",
    [("ключ", "x y/ü"), ("u",), ("u", *("deep",) * 20), ("u", "long" * 200), ("u", "a%2Fb", "*")],
)
@pytest.mark.parametrize("key", ["k", "k/2", "ключ", "long" * 200])
def test_labels_and_keys_of_any_kind(store: RecalldStore, space: tuple[str, ...], key: str) -> None:
    store.put(space, key, {"content": "x"})
    (one,) = store.search(space)
    assert (one.namespace, one.key) == (space, key)
    assert space in store.list_namespaces()
    got = store.get(space, key)
    assert got is not None
    assert got.key == key


def test_namespaces_that_langgraph_refuses(store: RecalldStore) -> None:
    for refused in ((), ("a.b",), ("langgraph",), ("a", "")):
        with pytest.raises(InvalidNamespaceError):
            store.put(refused, "k", {})


SPACES = [
    (kind, what, who) for kind in ("test", "prod") for what in ("documents", "images") for who in ("public", "private")
]


def test_list_namespaces(store: RecalldStore) -> None:
    for space in SPACES:
        store.put(space, "dummy", {"content": "dummy"})
    assert store.list_namespaces() == sorted(SPACES)
    assert len(store.list_namespaces(prefix=("test",))) == 4
    assert len(store.list_namespaces(prefix=("*", "images"))) == 4
    assert len(store.list_namespaces(suffix=("public",))) == 4
    assert len(store.list_namespaces(suffix=("images", "*"))) == 4
    assert store.list_namespaces(prefix=("test",), suffix=("images", "public")) == [("test", "images", "public")]
    assert store.list_namespaces(max_depth=1) == [("prod",), ("test",)]
    assert store.list_namespaces(limit=3, offset=2) == sorted(SPACES)[2:5]
    conditions = (MatchCondition("prefix", ("prod",)), MatchCondition("suffix", ("private",)))
    (both,) = store.batch([ListNamespacesOp(match_conditions=conditions, limit=10)])
    assert both == [("prod", "documents", "private"), ("prod", "images", "private")]


ITEMS: dict[str, Value] = {
    "a": {"kind": "report", "score": 3, "nested": {"x": 1, "y": 2}, "tags": ["one", "two"], "text": "first"},
    "b": {"kind": "report", "score": 4.5, "nested": {"x": 2}, "tags": ["one"], "text": "second"},
    "c": {"kind": "note", "score": 10, "nested": {"x": 3}, "text": "third", "day": "2026-05-01"},
    "d": {"kind": "note", "text": "fourth", "day": "2026-06-01"},
}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"kind": "report"}, "ab"),
        ({"kind": {"$eq": "note"}}, "cd"),
        ({"kind": {"$ne": "note"}}, "ab"),
        ({"score": {"$gt": 4.5}}, "c"),
        ({"score": {"$gte": 4.5}}, "bc"),
        ({"score": {"$lt": 4.5}}, "a"),
        ({"score": {"$lte": 4.5}}, "ab"),
        ({"score": {"$gt": 3, "$lt": 10}}, "b"),
        ({"day": {"$gte": "2026-05-15"}}, "d"),
        ({"score": {"$gte": 4.5}, "kind": "report"}, "b"),
        ({"nested": {"x": 1}}, "a"),
        ({"nested": {"x": {"$gte": 2}}}, "bc"),
        ({"tags": ["one", "two"]}, "a"),
        ({"missing": None}, "abcd"),
        ({"missing": 1}, ""),
        ({}, "abcd"),
    ],
)
@pytest.mark.parametrize("query", [None, "the second one"])
def test_filters(store: RecalldStore, condition: Value, expected: str, query: str | None) -> None:
    for key, value in ITEMS.items():
        store.put(("u", "docs"), key, value)
    assert sorted(keys(store.search(("u", "docs"), filter=condition, query=query))) == list(expected)


def test_an_unknown_operator_is_an_error_and_not_an_empty_answer(store: RecalldStore) -> None:
    with pytest.raises(ValueError, match=r"filter\['score'\]: unknown operator \$in; known are \$eq"):
        store.search(("u",), filter={"score": {"$in": [1]}})


def test_a_long_text_comes_back_whole(store: RecalldStore) -> None:
    value = {"content": "Ada drinks tea. " + "🦊 x\n" * 40_000, "encoding": "utf-8"}
    store.put(("u", "files"), "/a.md", value)
    store.put(("u", "files"), "/b.md", {"content": "It rains."})
    kept = store.get(("u", "files"), "/a.md")
    assert kept is not None
    assert kept.value == value
    assert store.search(("u", "files"), query="What does Ada drink?", filter={"encoding": "utf-8"})[0].value == value
    store.put(("u", "files"), "/a.md", {"content": "short"})
    assert store.search(("u", "files"), filter={"content": "short"})[0].value == {"content": "short"}


def test_pages_have_each_item_once_also_over_a_hundred(store: RecalldStore) -> None:
    space = ("u", "many")
    store.batch([PutOp(space, f"{n:03}", {"content": f"Thing number {n}", "n": n}) for n in range(230)])
    assert len(store.search(space, limit=500)) == 230
    for query in (None, "thing number 7"):
        pages = [keys(store.search(space, limit=90, offset=offset, query=query)) for offset in (0, 90, 180, 270)]
        assert [len(page) for page in pages] == [90, 90, 50, 0]
        assert sorted(key for page in pages for key in page) == [f"{n:03}" for n in range(230)]
    assert len(store.search(space, filter={"n": {"$gte": 100}}, limit=500, query="thing")) == 130


def test_a_query_ranks_by_meaning_within_its_namespace(store: RecalldStore) -> None:
    for user, text in (("ada", "She grows tomatoes"), ("ada", "He repairs clocks"), ("bob", "They sell vegetables")):
        store.put((user, "m"), text[:4], {"content": text, "kind": "note"})
    best, other = store.search(("ada", "m"), query="vegetables from the garden")
    assert (best.key, best.namespace) == ("She ", ("ada", "m"))
    assert best.score is not None
    assert other.score is not None
    assert best.score > other.score
    assert store.search(("ada", "m"), query="vegetables", filter={"kind": "other"}) == []
    assert store.search(("ada", "m", "work"), query="vegetables") == []
    everyone = store.search((), query="vegetables from the garden")
    assert sorted(keys(everyone)) == ["He r", "She ", "They"]
    assert everyone[-1].key == "He r"


def test_equal_texts_under_two_keys_are_two_items(store: RecalldStore) -> None:
    for key in ("one", "two"):
        store.put(("u", "m"), key, {"content": "Ada drinks tea"})
    both = store.search(("u", "m"), query="What does Ada drink?")
    assert sorted(keys(both)) == ["one", "two"]
    assert both[0].score == both[1].score


def test_what_is_not_indexed_is_not_found_by_its_words(store: RecalldStore) -> None:
    store.put(("u", "m"), "secret", {"content": "Ada drinks tea"}, index=False)
    store.put(("u", "m"), "open", {"content": "Clocks tick"})
    first, second = store.search(("u", "m"), query="What does Ada drink?")
    assert (first.key, second.key, second.score) == ("open", "secret", None)
    got = store.get(("u", "m"), "secret")
    assert got is not None
    assert got.value == {"content": "Ada drinks tea"}


def test_paths_that_are_indexed(make: Callable[..., RecalldStore]) -> None:
    store = make(fields=["facts[*].text"])
    store.put(("u", "m"), "tea", {"content": "irrelevant", "facts": [{"text": "Ada drinks tea"}, {"text": "It rains"}]})
    store.put(("u", "m"), "clock", {"content": "Ada drinks tea", "facts": [{"text": "The clock ticks"}]})
    store.put(("u", "m"), "own", {"title": "Whales sing", "facts": []}, index=["title"])
    assert keys(store.search(("u", "m"), query="What does Ada drink?"))[0] == "tea"
    assert keys(store.search(("u", "m"), query="whale song"))[0] == "own"


@pytest.mark.parametrize(
    ("label", "space"),
    [
        (0, ("ada", "memories")),
        (1, ("memories", "ada")),
        (-1, ("a", "b", "ada")),
        (lambda space: space[1], ("x", "ada")),
    ],
)
def test_the_label_of_the_user_is_a_setting(
    make: Callable[..., RecalldStore], memory: Recalld, label: Any, space: tuple[str, ...]
) -> None:
    store = make(user_label=label)
    store.put(space, "k", {"content": "Ada drinks tea"})
    (kept,) = memory.user("ada", agent=store._layout.agent_id).memories()
    assert kept["content"] == "Ada drinks tea"
    assert keys(store.search(space, query="tea")) == ["k"]
    assert keys(store.search(space[:1], query="tea")) == ["k"]
    assert store.list_namespaces() == [space]


def test_without_a_user_items_are_the_agents(make: Callable[..., RecalldStore], memory: Recalld) -> None:
    store = make(user_label=None)
    store.put(("docs",), "k", {"content": "The office is closed on Sunday"})
    assert keys(store.search(("docs",), query="opening hours")) == ["k"]
    assert list(memory.user("docs", agent=store._layout.agent_id).memories()) == []


def test_agents_and_users_are_apart(make: Callable[..., RecalldStore], memory: Recalld) -> None:
    mine, other = make(), RecalldStore(memory, agent=uuid4().hex)
    mine.put(("ada", "m"), "k", {"content": "Ada drinks tea"})
    for query in (None, "tea"):
        assert other.search(("ada", "m"), query=query) == []
        assert mine.search(("bob", "m"), query=query) == []
    assert other.get(("ada", "m"), "k") is None


def test_items_live_as_long_as_they_are_put_for(make: Callable[..., RecalldStore], memory: Recalld) -> None:
    store = make(ttl={"default_ttl": 60, "refresh_on_read": True})
    space = ("u", "m")

    def minutes(key: str) -> float | None:
        for one in memory.user("u", agent=store._layout.agent_id).memories():
            if one["metadata"]["key"] == key:
                until = one["expires_at"]
                now = datetime.now(UTC)
                return None if until is None else (datetime.fromisoformat(until) - now) / timedelta(minutes=1)
        return -1

    store.put(space, "default", {"n": 1})
    store.put(space, "short", {"n": 2}, ttl=10)
    store.put(space, "ever", {"n": 3}, ttl=None)
    for key, expected in (("default", 60), ("short", 10)):
        left = minutes(key)
        assert left is not None
        assert expected - 5 < left <= expected
    assert minutes("ever") is None
    store._now = lambda: datetime.now(UTC) + timedelta(hours=1)  # as if it were read an hour later
    store.get(space, "short", refresh_ttl=False)
    before = minutes("short")
    assert before is not None
    assert before <= 10
    store.get(space, "short")
    store.search(space, filter={"n": 1})
    for key, expected in (("short", 70), ("default", 120)):
        left = minutes(key)
        assert left is not None
        assert expected - 5 < left <= expected
    store.put(space, "short", {"n": 2}, ttl=None)
    assert minutes("short") is None
    store._now = lambda: datetime.now(UTC) - timedelta(hours=1)
    store.put(space, "past", {"n": 1}, ttl=1)
    assert store.get(space, "past") is None, "its time was over before it came"


def test_it_does_what_langgraphs_own_store_does(store: RecalldStore) -> None:
    def shown(found: Any) -> Any:
        if isinstance(found, list):
            return sorted((shown(one) for one in found), key=str)
        return found if found is None or isinstance(found, tuple) else (found.namespace, found.key, str(found.value))

    def exercised(one: Any) -> list[Any]:
        ada, bob, deep, own = ("m", "ada"), ("m", "bob"), ("m", "ada", "work", "x y/ü"), ("shared",)
        seen: list[Any] = [one.search(("m",)), one.list_namespaces()]
        for space in (ada, bob, deep, own):
            for key in ("k", "k/2", "ключ"):
                one.put(space, key, {"content": "tea", "n": 1, "kind": key})
            seen += [one.get(space, "k"), one.get(space, "nothing")]
        one.put(ada, "k", {"content": "coffee", "n": 2, "kind": "k"})
        one.delete(ada, "k/2")
        for prefix in (ada, bob, deep, own, ("m",), ("m", "ada", "work"), ("ma",), ()):
            for condition in (
                None,
                {"kind": "k"},
                {"n": 2},
                {"n": {"$gte": 1}},
                {"n": {"$gt": 1}, "kind": {"$ne": "x"}},
            ):
                seen.append(one.search(prefix, filter=condition, limit=50))
        seen += [one.search(bob, offset=9), one.list_namespaces(), one.list_namespaces(prefix=("*", "bob"))]
        return [shown(answer) for answer in seen]

    for ours, theirs in zip(exercised(store), exercised(InMemoryStore()), strict=True):
        assert ours == theirs


@pytest.mark.anyio
async def test_async(later: RecalldStore) -> None:
    await later.aput(("ada", "m"), "tea", {"content": "Ada drinks tea", "n": 1})
    await later.aput(("ada", "m"), "clock", {"content": "The clock ticks", "n": 2})
    got = await later.aget(("ada", "m"), "tea")
    assert got is not None
    assert got.value["n"] == 1
    assert keys(await later.asearch(("ada",), query="What does Ada drink?"))[0] == "tea"
    assert keys(await later.asearch((), filter={"n": {"$gt": 1}})) == ["clock"]
    assert await later.alist_namespaces(max_depth=1) == [("ada",)]
    await later.adelete(("ada", "m"), "tea")
    assert await later.aget(("ada", "m"), "tea") is None
    with pytest.raises(ValueError, match="unknown operator"):
        await later.asearch(("ada",), filter={"n": {"$near": 1}})


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
