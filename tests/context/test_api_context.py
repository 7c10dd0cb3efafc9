"""What an agent gets before each model call."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from app.context import rendering
from app.core import prompt_text
from app.embedding.onnx import OnnxModel
from app.settings import Settings
from tests.conftest import Starter, TestParts
from tests.support.context import (
    FRAME,
    TITLES,
    ask,
    dropped,
    entries,
    headings,
    is_unsure,
    items,
    names,
    problem_free,
    texts,
    warned,
)
from tests.support.memories import OWNER, Json, batch, problem, remember, shared_service
from tests.support.profiles import register
from tests.support.sessions import append
from tests.support.tasks import begin, note

pytestmark = pytest.mark.anyio

HOMES = [f"Ada lived in house number {at} of Boston" for at in range(12)]
TALK = [f"Point {at}: the kitchen has {at} windows" for at in range(14)]
SHOWN = ["profile", "working", "messages", "memories", "facts", "episodes"]
"""Sections that have something in the shared service."""
ALWAYS = ("instructions", "profile", "working", "messages")
FRIENDS = [f"Friend {at}" for at in range(12)]
ACTIONS = [f"Looked up where Ada lives, try {at}" for at in range(7)]


@pytest.fixture(scope="module")
async def shared(shared_settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    """A service where every section has more than it may bring; none of these tests changes it."""
    async with shared_service(shared_settings, model) as made:
        api = made.client
        profile = {"name": "Ada", "age": 36, "interests": ["climbing", "tea"], "preferences": {"tone": {"a": ["b"]}}}
        assert (await api.put("/v1/users/u/profile", json=profile)).status_code == 200
        await batch(
            api, *({"content": home, "event_at": f"2026-05-{at + 1:02}T08:00:00Z"} for at, home in enumerate(HOMES))
        )
        known = {
            **OWNER,
            "subject": "Ada",
            "predicate": "knows",
            "cardinality": "many",
            "valid_from": "2026-01-01T00:00:00Z",
        }
        asserted = await api.post("/v1/facts/batch", json={"items": [{**known, "object": one} for one in FRIENDS]})
        assert asserted.status_code == 201
        acts = [{**OWNER, "action_type": "search", "outcome": "success", "content": content} for content in ACTIONS]
        assert (await api.post("/v1/actions/batch", json={"items": acts})).status_code == 201
        await append(api, [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(TALK)])
        await begin(api, session_id="s", goal="sell the house", plan=[{"action": "call the bank"}, {"action": "sign"}])
        await api.patch("/v1/tasks/t", json={"status": "in_progress"})
        await note(api, "the roof leaks", 0.5)
        await register(api, settings={"max_context_tokens": 1200})
        yield api


BIG: Json = {"session_id": "s", "token_budget": 4000, "fill": True}

# --- Sections ---------------------------------------------------------------------------------------------------------


async def test_each_section_reads_as_it_should(shared: httpx.AsyncClient) -> None:
    body = problem_free(await ask(shared, **BIG))
    assert names(body) == SHOWN
    assert set(texts(body, "profile")) == {
        "name: Ada",
        "age: 36",
        "interests: climbing",
        "interests: tea",
        'preferences: tone: {"a":["b"]}',
    }
    assert set(texts(body, "facts")) == {f"Ada knows {friend} (since 2026-01-01)" for friend in FRIENDS}
    memories = entries(body, "memories")
    assert {(one.heading, one.text) for one in memories} >= {
        (f"2026-05-{at + 1:02}", home) for at, home in enumerate(HOMES)
    }
    assert {text.partition(": ")[2] for text in texts(body, "episodes")} == set(ACTIONS)
    assert all(text.startswith("2026-06-01 search (success): ") for text in texts(body, "episodes"))
    assert any("sell the house" in text for text in texts(body, "working"))
    assert "note (0.5): the roof leaks" in texts(body, "working")
    roles = ("user", "assistant")
    assert texts(body, "messages") == [f"{roles[at % 2]}: {TALK[at]}" for at in range(4, 14)]


async def test_the_manifest_tells_what_each_is(shared: httpx.AsyncClient) -> None:
    body = await ask(shared, **BIG)
    kinds = {name: {one["type"] for one in items(body, name)} for name in SHOWN if name != "working"}
    assert kinds == {
        "profile": {"profile"},
        "facts": {"fact"},
        "memories": {"fact"},
        "episodes": {"action"},
        "messages": {"message"},
    }
    found = [one["score"] for name in names(body) if name not in ALWAYS for one in items(body, name)]
    assert all(isinstance(score, float) and score > 0 for score in found)
    assert {one["score"] for name in ALWAYS for one in items(body, name)} == {None}
    assert {one["id"].partition(":")[0] for one in items(body, "profile")} == {"profile"}
    prefixes = {"memories": "mem", "messages": "msg", "facts": "fact", "episodes": "act"}
    for name, prefix in prefixes.items():
        assert {one["id"].partition("_")[0] for one in items(body, name)} == {prefix}
    assert set(body["took_ms"]) == {*TITLES, "total"}


async def test_memories_are_read_in_the_order_of_time(shared: httpx.AsyncClient) -> None:
    body = await ask(shared, **BIG)
    assert headings(body, "memories") == sorted(headings(body, "memories"))
    assert len(headings(body, "memories")) >= len(HOMES)


@pytest.mark.parametrize("intent", ["general", "recall", "execute"])
@pytest.mark.parametrize("query", ["Where does Ada live?", "Sell the house of Ada!", "Ada likes her house.", "Ada"])
async def test_an_intent_shuts_nothing_out(shared: httpx.AsyncClient, intent: str, query: str) -> None:
    body = await ask(shared, query, intent=intent, **BIG)
    assert body["intent"] == intent
    assert set(names(body)) == set(SHOWN)
    assert len([text for text in texts(body, "memories") if text in HOMES]) == len(HOMES)


async def test_an_intent_that_is_not_given_follows_from_what_answers(shared: httpx.AsyncClient) -> None:
    assert (await ask(shared))["intent"] == "recall"
    assert (await ask(shared, intent="auto", task_id="t"))["intent"] == "execute"
    assert (await ask(shared, intent="general", task_id="t"))["intent"] == "general"
    assert (await ask(shared, user_id="nobody"))["intent"] == "general"


async def test_sections_are_excluded(shared: httpx.AsyncClient) -> None:
    less = await ask(shared, exclude=["messages", "episodes"], **BIG)
    assert names(less) == ["profile", "working", "memories", "facts"]
    assert "messages" not in less["took_ms"]  # nobody looked
    assert names(await ask(shared, include=["memories"], **BIG)) == SHOWN  # comes anyway
    nothing = await ask(shared, exclude=list(TITLES), **BIG)
    assert (nothing["text"], nothing["tokens"], nothing["sections"], nothing["dropped"]) == ("", 0, [], [])


@pytest.mark.parametrize("limit", [0, 1, 7, 100])
async def test_a_limit_is_a_sections_own(shared: httpx.AsyncClient, limit: int) -> None:
    body = await ask(shared, sections={"memories": {"limit": limit}}, **BIG)
    assert len(items(body, "memories")) <= limit
    if limit <= len(HOMES):
        assert len(items(body, "memories")) == limit
    else:
        assert {*HOMES} <= {*texts(body, "memories")}
    assert len(items(body, "messages")) == 10
    if limit == 0:
        assert "memories" not in names(body)
        assert "memories" not in body["took_ms"]  # nobody looked


@pytest.mark.parametrize(
    ("bounds", "most"), [({"share": 0.02}, 80), ({"tokens": 80}, 80), ({"tokens": 0}, 0), ({"share": 0.0}, 0)]
)
@pytest.mark.parametrize("section", ["memories", "messages", "profile"])
async def test_a_sections_tokens_are_bounded(shared: httpx.AsyncClient, section: str, bounds: Json, most: int) -> None:
    body = await ask(shared, sections={section: bounds}, **BIG)
    size = sum(one["tokens"] for one in body["sections"] if one["name"] == section)
    assert size <= most
    if most and section != "profile":  # which is shorter
        assert size > most - 50
    if section != "profile" or not most:
        assert "section_budget" in dropped(body).values()
    assert set(names(body)) >= set(SHOWN) - {section}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"include": ["memories", "nonsense"]}, "/include/1"),
        ({"exclude": ["nonsense"]}, "/exclude/0"),
        ({"sections": {"nonsense": {"limit": 1}}}, "/sections/nonsense"),
        ({"sections": {"memories": {"share": 0.5, "tokens": 9}}}, "/sections/memories"),
        ({"sections": {"memories": {"share": 1.5}}}, "/sections/memories/share"),
        ({"sections": {"memories": {"limit": 101}}}, "/sections/memories/limit"),
        ({"token_budget": 0}, "/token_budget"),
        ({"query": " \n"}, "/query"),
        ({"agent_id": None}, "/agent_id"),
        ({"intent": "remember"}, "/intent"),
        ({"format": "xml"}, "/format"),
        ({"memory_role": "assistant"}, "/memory_role"),
        ({"min_trust": 2}, "/min_trust"),
        ({"as_of": "yesterday"}, "/as_of"),
        ({"timezone": "Mars/Olympus"}, "/timezone"),
        ({"top_k": 5}, "/top_k"),
    ],
)
async def test_what_is_wrong_is_named(shared: httpx.AsyncClient, fields: Json, pointer: str) -> None:
    answered = await shared.post("/v1/context", json={**OWNER, "query": "x", **fields})
    problem(answered, 422, "invalid", pointer)


# --- Budget -----------------------------------------------------------------------------------------------------------


async def test_the_budget_of_the_agent_or_of_anybody(shared: httpx.AsyncClient) -> None:
    assert (await ask(shared))["budget"] == 300  # a quarter of what it was registered with
    assert (await ask(shared, agent_id="unknown"))["budget"] == 4000
    assert (await ask(shared, token_budget=77))["budget"] == 77


@pytest.mark.parametrize("as_format", ["markdown", "messages"])
async def test_no_budget_is_passed_by_a_token(shared: httpx.AsyncClient, as_format: str) -> None:
    """`ask` looks at each; a part that is left out for the budget has no room in what remains."""
    for budget in (1, 10, FRAME, FRAME + 9, 50, 75, 100, 150, 222, 300, 451, 700, 1000):
        body = await ask(shared, session_id="s", token_budget=budget, format=as_format)
        left_out = [one for one, reason in dropped(body).items() if reason == "budget"]
        assert left_out or budget > 700
        always = sum(section["tokens"] for section in body["sections"] if section["name"] in ALWAYS)
        assert always <= 0.6 * max(0, budget - FRAME)
        assert 0.4 * budget - (body["tokens"] - always) < 60 or not left_out


async def test_a_larger_budget_holds_all_that_a_smaller_one_does(shared: httpx.AsyncClient) -> None:
    before, compared = set[str](), 0
    for budget in range(100, 2000, 100):
        body = await ask(
            shared, exclude=["messages", "working", "profile"], token_budget=budget, citations="ids", fill=True
        )
        now = {one["id"] for section in body["sections"] for one in section["items"]}
        assert before <= now, budget
        compared += len(before)
        before = now
    assert compared > 100
    assert len(before) >= len(HOMES) + len(FRIENDS) + len(ACTIONS)


async def test_without_anything_else_the_budget_is_full_of_memories(api: httpx.AsyncClient) -> None:
    await batch(api, *({"content": f"Ada lived in house {at}, which is in Boston"} for at in range(150)))
    body = await ask(api, token_budget=1000, fill=True)
    assert body["tokens"] > 950
    assert set(dropped(body).values()) == {"budget"}
    large = await ask(api, token_budget=20_000, fill=True)
    assert len(items(large, "memories")) == 100
    assert set(dropped(large).values()) == {"limit"}


async def test_the_title_says_whose_rules_they_are(api: httpx.AsyncClient) -> None:
    await remember(api, "Never call before noon", pinned=True)
    assert "## Rules set by the user or the operator\n- [1] Never call before noon\n" in (await ask(api))["text"]


async def test_query_and_system_prompt_are_counted_beside_it(shared: httpx.AsyncClient) -> None:
    query, system = "Where does Ada live now? " * 40, "You are kind. " * 40
    body = await ask(shared, query, system_prompt=system, token_budget=50, format="messages")
    assert body["query_tokens"] == prompt_text.count(query)
    assert body["system_prompt_tokens"] == prompt_text.count(system)
    assert body["messages"][0] == {"role": "system", "content": system}
    assert body["messages"][-1] == {"role": "user", "content": query}


# --- Formats and citations --------------------------------------------------------------------------------------------


async def test_markdown_has_no_messages(shared: httpx.AsyncClient) -> None:
    body = await ask(shared, **BIG)
    assert body["messages"] == []
    assert body["text"].startswith(rendering.OPENING)


@pytest.mark.parametrize("role", ["user", "developer", "system"])
async def test_messages_are_ready_for_the_model(shared: httpx.AsyncClient, role: str) -> None:
    body = await ask(shared, format="messages", memory_role=role, system_prompt="Be kind.", **BIG)
    system, *turns, last = body["messages"]
    assert system == {"role": "system", "content": "Be kind."}
    query = "Where does Ada live?"
    if role == "user":
        assert last == {"role": "user", "content": body["text"] + query}, "so that a model's cache has all before it"
    else:
        assert last == {"role": "user", "content": query}
        assert turns.pop() == {"role": role, "content": body["text"]}
    assert turns == [{"role": ("user", "assistant")[at % 2], "content": TALK[at]} for at in range(4, 14)]
    assert "Recent messages" not in body["text"]
    assert [one["tokens"] for one in items(body, "messages")] == [
        prompt_text.count(TALK[at]) + 4 for at in range(4, 14)
    ]


async def test_messages_without_memory_or_prompt(shared: httpx.AsyncClient) -> None:
    no_block = await ask(shared, format="messages", exclude=[name for name in TITLES if name != "messages"], **BIG)
    assert no_block["text"] == ""
    assert len(no_block["messages"]) == 11
    assert no_block["tokens"] == sum(one["tokens"] for one in items(no_block, "messages"))
    alone = await ask(shared, format="messages", exclude=list(TITLES))
    assert alone["messages"] == [{"role": "user", "content": "Where does Ada live?"}]


async def test_numbers_are_shorter_than_ids(shared: httpx.AsyncClient) -> None:
    by_id = await ask(shared, citations="ids", **BIG)
    by_number = await ask(shared, **BIG)
    assert by_number["tokens"] < by_id["tokens"] - 300
    for name in TITLES:
        assert [one["id"] for one in items(by_number, name)] == [one["id"] for one in items(by_id, name)]
        assert texts(by_number, name) == texts(by_id, name)
        assert all(one["citation"] == one["id"] for one in items(by_id, name))
        assert all(one["citation"].isdecimal() for one in items(by_number, name))


async def test_entries_may_be_cited_by_nothing(shared: httpx.AsyncClient) -> None:
    by_number = await ask(shared, **BIG)
    bare = await ask(shared, citations="none", **BIG)
    assert "- [" not in bare["text"]
    assert {one["citation"] for section in bare["sections"] for one in section["items"]} == {None}
    assert bare["tokens"] < by_number["tokens"] - 100
    for name in TITLES:
        assert texts(bare, name) == texts(by_number, name)


async def test_the_same_again_is_the_same(shared: httpx.AsyncClient) -> None:
    one, other = [await ask(shared, now="2026-06-02T00:00:00Z", **BIG) for _ in range(2)]
    assert {**one, "took_ms": None} == {**other, "took_ms": None}


async def test_a_long_memory_goes_in_by_the_passage_that_answers(api: httpx.AsyncClient) -> None:
    filler = "The weather was as it often is in that part of the country. " * 100
    long = await remember(api, f"{filler}Ada lives in Boston, near the harbour. {filler}")
    short = await remember(api, "Ada likes tea")
    body = await ask(api, token_budget=300)
    assert {one["id"] for one in items(body, "memories")} == {long["memory_id"], short["memory_id"]}
    shown = next(text for text in texts(body, "memories") if "tea" not in text)
    assert "Ada lives in Boston, near the harbour." in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert prompt_text.count(shown) <= 120


async def test_a_long_action_or_procedure_does_not_shut_memories_out(api: httpx.AsyncClient) -> None:
    await remember(api, "Ada lives in Boston")
    act = {**OWNER, "action_type": "search", "content": "Where does Ada live? " * 300}
    assert (await api.post("/v1/actions", json=act)).status_code == 201
    way = {"name": "Where Ada lives", "trigger": "Where does Ada live?", "steps": ["Look where Ada lives. " * 20] * 9}
    assert (await api.post("/v1/procedures", json={**OWNER, **way})).status_code == 201
    assert texts(await ask(api, token_budget=300), "memories") == ["Ada lives in Boston"]


async def test_what_is_below_the_least_score_is_left_out(shared: httpx.AsyncClient) -> None:
    whole = await ask(shared, **BIG)
    scores = {one["id"]: one["score"] for s in whole["sections"] for one in s["items"] if one["score"] is not None}
    middle = sorted(scores.values())[len(scores) // 2]
    body = await ask(shared, min_score=middle, **BIG)
    assert {one["id"] for s in body["sections"] for one in s["items"] if one["score"] is not None} == {
        each for each, score in scores.items() if score >= middle
    }
    low = {each for each, score in scores.items() if score < middle}
    assert {each for each, reason in dropped(body).items() if reason == "score"} >= low
    assert [section for section in names(body) if section in ALWAYS] == ["profile", "working", "messages"]


@pytest.mark.parametrize(("below", "unsure"), [(0.0, False), (1.0, True)])
async def test_a_line_says_when_nothing_surely_answers(
    start: Starter, settings: Settings, parts: TestParts, below: float, unsure: bool
) -> None:
    """`ask` counts its tokens."""
    parts.tuning = replace(parts.tuning, unsure_below=below)
    async with start(settings) as service:
        await remember(service.client, "Ada lives in Boston")
        for form in ("markdown", "messages"):
            assert is_unsure(await ask(service.client, format=form)) is unsure


async def test_nothing_known_is_an_empty_context(api: httpx.AsyncClient) -> None:
    body = problem_free(await ask(api, session_id="s"))
    assert (body["text"], body["tokens"], body["sections"], body["dropped"]) == ("", 0, [], [])
    assert warned(body) == []
    turns = problem_free(await ask(api, "x", format="messages", user_id=None))
    assert turns["messages"] == [{"role": "user", "content": "x"}]


async def test_anothers_tasks_in_the_session_hide_none(api: httpx.AsyncClient) -> None:
    mine = {**OWNER, "session_id": "shared", "status": "in_progress"}
    assert (await api.post("/v1/tasks", json={**mine, "goal": "mine"})).status_code == 201
    for at in range(25):
        assert (await api.post("/v1/tasks", json={**mine, "agent_id": "b", "goal": f"other {at}"})).status_code == 201
    body = await ask(api, session_id="shared")
    assert "mine" in "".join(texts(body, "working"))
