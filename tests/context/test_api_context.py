"""What an agent gets before each model call."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app import tokens
from app.context import layout
from app.embedding.onnx import OnnxModel
from app.settings import Settings
from tests.context.helpers import FRAME, TITLES, ask, dropped, items, names, problem_free, texts
from tests.memories.helpers import PAIR, Json, batch, problem, remember, shared_service
from tests.profiles.helpers import register
from tests.sessions.helpers import append
from tests.tasks.helpers import begin, note

pytestmark = pytest.mark.anyio

HOMES = [f"Ada lived in house number {at} of Boston" for at in range(12)]
TALK = [f"Point {at}: the kitchen has {at} windows" for at in range(14)]
RECALLED = [name for name in TITLES if name != "procedures"]
"""Sections of a recall."""
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
            **PAIR,
            "subject": "Ada",
            "predicate": "knows",
            "cardinality": "many",
            "valid_from": "2026-01-01T00:00:00Z",
        }
        asserted = await api.post("/v1/facts/batch", json={"items": [{**known, "object": one} for one in FRIENDS]})
        assert asserted.status_code == 201
        acts = [{**PAIR, "action_type": "search", "outcome": "success", "content": content} for content in ACTIONS]
        assert (await api.post("/v1/actions/batch", json={"items": acts})).status_code == 201
        await append(api, [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(TALK)])
        await begin(api, session_id="s", goal="sell the house", plan=[{"action": "call the bank"}, {"action": "sign"}])
        await api.patch("/v1/tasks/t", json={"status": "in_progress"})
        await note(api, "the roof leaks", 0.5)
        await register(api, settings={"max_context_tokens": 1200})
        yield api


TITLE = 4
"""Tokens of the title that a section's first item pays."""
BIG: Json = {"session_id": "s", "token_budget": 4000}

# --- Sections ---------------------------------------------------------------------------------------------------------


async def test_each_section_reads_as_it_should(shared: httpx.AsyncClient) -> None:
    body = problem_free(await ask(shared, **BIG))
    assert body["intent"] == "recall"
    assert names(body) == RECALLED
    assert texts(body, "profile") == [
        "name: Ada",
        "age: 36",
        "interests: climbing",
        "interests: tea",
        'preferences: tone: {"a":["b"]}',
    ]
    assert set(texts(body, "facts")) < {f"Ada knows {friend} (since 2026-01-01)" for friend in FRIENDS}
    assert all(text[10:] in {f" {home}" for home in HOMES} for text in texts(body, "memories"))
    assert all(text[:8] == "2026-05-" for text in texts(body, "memories"))
    assert {text.partition(": ")[2] for text in texts(body, "episodes")} < set(ACTIONS)
    assert all(text.startswith("2026-06-01 search (success): ") for text in texts(body, "episodes"))
    assert texts(body, "working") == [
        "goal: sell the house",
        "status: in_progress",
        "step 0 [pending]: call the bank",
        "step 1 [pending]: sign",
        "note (0.5): the roof leaks",
    ]
    roles = ("user", "assistant")
    assert texts(body, "messages") == [f"{roles[at % 2]}: {TALK[at]}" for at in range(4, 14)]


async def test_the_manifest_tells_what_each_is(shared: httpx.AsyncClient) -> None:
    body = await ask(shared, **BIG)
    kinds = {name: {one["type"] for one in items(body, name)} for name in RECALLED}
    assert kinds == {
        "profile": {"profile"},
        "facts": {"fact"},
        "memories": {"fact"},
        "episodes": {"action"},
        "working": {"goal", "status", "step", "note"},
        "messages": {"message"},
    }
    found = [one["score"] for name in ("memories", "episodes") for one in items(body, name)]
    assert all(isinstance(score, float) and score > 0 for score in found)
    memories = [one["score"] for one in items(body, "memories")]
    assert memories == sorted(memories, reverse=True)
    assert {one["score"] for name in ("profile", "working", "messages") for one in items(body, name)} == {None}
    assert {one["id"].partition(":")[0] for one in items(body, "profile")} == {"profile"}
    assert [one["id"].partition("_")[0] for one in (*items(body, "memories"), *items(body, "messages"))] == (
        ["mem"] * 5 + ["msg"] * 10
    )
    assert set(body["took_ms"]) == {*RECALLED, "total"}


@pytest.mark.parametrize(
    ("intent", "counts"),
    [
        ("general", {"profile": 5, "facts": 10, "memories": 3, "episodes": 2, "working": 5, "messages": 10}),
        ("recall", {"profile": 5, "facts": 10, "memories": 5, "episodes": 5, "working": 5, "messages": 10}),
        ("execute", {"profile": 5, "facts": 10, "episodes": 5, "working": 5, "messages": 10}),
    ],
)
async def test_the_intent_says_what_comes(shared: httpx.AsyncClient, intent: str, counts: dict[str, int]) -> None:
    body = await ask(shared, intent=intent, **BIG)
    assert body["intent"] == intent
    assert {name: len(items(body, name)) for name in names(body)} == counts


@pytest.mark.parametrize(
    ("query", "fields", "intent"),
    [
        ("Where does Ada live?", {}, "recall"),
        ("Ada likes her house.", {}, "general"),
        ("Please book a mover", {}, "execute"),
        ("Ada likes her house.", {"task_id": "t"}, "execute"),
        ("Please book a mover", {"intent": "auto"}, "execute"),
        ("Please book a mover", {"intent": "general"}, "general"),
    ],
)
async def test_an_intent_that_is_not_given_is_told_by_the_query(
    shared: httpx.AsyncClient, query: str, fields: Json, intent: str
) -> None:
    assert (await ask(shared, query, **fields))["intent"] == intent


async def test_sections_are_included_and_excluded(shared: httpx.AsyncClient) -> None:
    more = await ask(shared, intent="execute", include=["memories"], **BIG)
    assert len(items(more, "memories")) == 5
    less = await ask(shared, exclude=["messages", "episodes"], **BIG)
    assert names(less) == ["profile", "facts", "memories", "working"]
    assert names(await ask(shared, include=["memories"], exclude=["memories"], **BIG)) == [
        name for name in RECALLED if name != "memories"
    ]
    named = await ask(shared, intent="execute", sections={"memories": {"limit": 2}}, **BIG)
    assert len(items(named, "memories")) == 2
    nothing = await ask(shared, exclude=list(TITLES), **BIG)
    assert (nothing["text"], nothing["tokens"], nothing["sections"], nothing["dropped"]) == ("", 0, [], [])


@pytest.mark.parametrize("limit", [0, 1, 7, 100])
async def test_a_limit_is_a_sections_own(shared: httpx.AsyncClient, limit: int) -> None:
    body = await ask(shared, sections={"memories": {"limit": limit}}, **BIG)
    assert len(items(body, "memories")) == min(limit, len(HOMES) + 4)  # four points are said no longer
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
    assert set(names(body)) >= set(RECALLED) - {section}


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
        ({"top_k": 5}, "/top_k"),
    ],
)
async def test_what_is_wrong_is_named(shared: httpx.AsyncClient, fields: Json, pointer: str) -> None:
    answered = await shared.post("/v1/context", json={**PAIR, "query": "x", **fields})
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
        assert budget - body["tokens"] < 60 or not left_out


async def test_each_section_gets_its_share_of_a_tight_budget(shared: httpx.AsyncClient) -> None:
    shares = {"profile": 0.15, "facts": 0.15, "memories": 0.35, "episodes": 0.15, "working": 0.15, "messages": 0.3}
    budget = 600
    body = await ask(shared, session_id="s", token_budget=budget, sections={"memories": {"limit": 100}})
    sizes = {one["name"]: one["tokens"] for one in body["sections"]}
    biggest = {name: max(one["tokens"] for one in items(body, name)) for name in names(body)}
    for name in ("memories", "episodes"):  # the others have less than that
        assert sizes[name] > (budget - FRAME) * shares[name] / sum(shares.values()) - biggest[name]
    assert set(sizes) == set(RECALLED)


async def test_the_last_section_gets_its_share_too(shared: httpx.AsyncClient) -> None:
    """Two sections that want more than there is: each has its part but for what is too large for the rest of it."""
    only: Json = {"exclude": ["profile", "facts", "memories", "working"], "intent": "recall", "session_id": "s"}
    bounds = {"episodes": {"limit": 100}, "messages": {"limit": 100}}
    largest = max(one["tokens"] for one in items(await ask(shared, **BIG), "messages"))
    missing = []
    for budget in range(60, 400, 5):
        body = await ask(shared, token_budget=budget, sections=bounds, **only)
        own = int((budget - FRAME) * 0.3 / 0.45)  # the frame is nobody's
        size = sum(one["tokens"] for one in body["sections"] if one["name"] == "messages")
        if size + largest < own - TITLE and "budget" in dropped(body).values():
            missing.append((budget, own, size))
    assert missing == []


async def test_query_and_system_prompt_are_counted_beside_it(shared: httpx.AsyncClient) -> None:
    query, system = "Where does Ada live now? " * 40, "You are kind. " * 40
    body = await ask(shared, query, system_prompt=system, token_budget=50, format="messages")
    assert body["query_tokens"] == tokens.count(query)
    assert body["system_prompt_tokens"] == tokens.count(system)
    assert body["messages"][0] == {"role": "system", "content": system}
    assert body["messages"][-1] == {"role": "user", "content": query}


# --- Formats and citations --------------------------------------------------------------------------------------------


async def test_markdown_has_no_messages(shared: httpx.AsyncClient) -> None:
    body = await ask(shared, **BIG)
    assert body["messages"] == []
    assert body["text"].startswith(layout.OPENING)


@pytest.mark.parametrize("role", ["user", "developer", "system"])
async def test_messages_are_ready_for_the_model(shared: httpx.AsyncClient, role: str) -> None:
    body = await ask(shared, format="messages", memory_role=role, system_prompt="Be kind.", **BIG)
    system, memory, *turns, query = body["messages"]
    assert system == {"role": "system", "content": "Be kind."}
    assert memory == {"role": role, "content": body["text"]}
    assert turns == [{"role": ("user", "assistant")[at % 2], "content": TALK[at]} for at in range(4, 14)]
    assert query == {"role": "user", "content": "Where does Ada live?"}
    assert "Recent messages" not in body["text"]
    assert [one["tokens"] for one in items(body, "messages")] == [tokens.count(TALK[at]) + 4 for at in range(4, 14)]


async def test_messages_without_memory_or_prompt(shared: httpx.AsyncClient) -> None:
    no_block = await ask(shared, format="messages", exclude=[name for name in TITLES if name != "messages"], **BIG)
    assert no_block["text"] == ""
    assert len(no_block["messages"]) == 11
    assert no_block["tokens"] == sum(one["tokens"] for one in items(no_block, "messages"))
    alone = await ask(shared, format="messages", exclude=list(TITLES))
    assert alone["messages"] == [{"role": "user", "content": "Where does Ada live?"}]


async def test_numbers_are_shorter_than_ids(shared: httpx.AsyncClient) -> None:
    by_id = await ask(shared, **BIG)
    by_number = await ask(shared, citations="numbers", **BIG)
    assert by_number["tokens"] < by_id["tokens"] - 300
    for name in TITLES:
        assert [one["id"] for one in items(by_number, name)] == [one["id"] for one in items(by_id, name)]
        assert texts(by_number, name) == texts(by_id, name)
        assert all(one["citation"] == one["id"] for one in items(by_id, name))
        assert all(one["citation"].isdecimal() for one in items(by_number, name))


async def test_the_same_again_is_the_same(shared: httpx.AsyncClient) -> None:
    one, other = [await ask(shared, now="2026-06-02T00:00:00Z", **BIG) for _ in range(2)]
    assert {**one, "took_ms": None} == {**other, "took_ms": None}


async def test_a_long_memory_leaves_room_for_the_others(api: httpx.AsyncClient) -> None:
    await remember(api, "Ada lives in a house. " * 1000)
    short = await remember(api, "Ada lives in Boston")
    body = await ask(api, token_budget=200)
    assert [one["id"] for one in items(body, "memories")] == [short["memory_id"]]
    assert list(dropped(body).values()) == ["budget"]


async def test_nothing_known_is_an_empty_context(api: httpx.AsyncClient) -> None:
    body = problem_free(await ask(api, session_id="s"))
    assert (body["text"], body["tokens"], body["sections"], body["dropped"]) == ("", 0, [], [])
    turns = problem_free(await ask(api, "x", format="messages", user_id=None))
    assert turns["messages"] == [{"role": "user", "content": "x"}]


async def test_anothers_tasks_in_the_session_hide_none(api: httpx.AsyncClient) -> None:
    mine = {**PAIR, "session_id": "shared", "status": "in_progress"}
    assert (await api.post("/v1/tasks", json={**mine, "goal": "mine"})).status_code == 201
    for at in range(25):
        assert (await api.post("/v1/tasks", json={**mine, "agent_id": "b", "goal": f"other {at}"})).status_code == 201
    body = await ask(api, session_id="shared")
    assert "mine" in "".join(texts(body, "working"))
