"""Context sources about user and agent: instructions, the profile, the agent's experience."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import orjson

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.context.sources.searched import visible
from app.core.clock import rfc3339, to_ms
from app.core.process import off_loop
from app.facts.keys import sentence
from app.facts.repository import View
from app.memories.decay_settings import Decays
from app.memories.models import MEMORIES, STANDING
from app.profiles.agents import KNOWLEDGE, RankedLesson, ranked
from app.profiles.merge import LESSONS
from app.profiles.reader import ProfileReader
from app.profiles.schemas import AGENTS
from app.storage.filters import Eq, Or, both
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.search import SearchQuery
from app.storage.text import content_hash, text_ids

MOST_INSTRUCTIONS = 50


async def gather_instructions(request: SourceRequest) -> list[Candidate]:
    """Returns the rules: pinned ones first, then by trust and importance."""
    body, resources = request.body, request.resources
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    rules = Or(
        (Eq("standing", STANDING), Eq("memory_type", "instruction"))
    )  # earlier versions stored no field `standing`
    where = both(rules, visible(request))
    none = np.empty(0, np.uint32)
    columns = await resources.store.search(
        MEMORIES, SearchQuery(request.scope.tenant, pairs, where, None, resources.embedder.name, none)
    )
    rows = columns.rows[columns.matched]
    found = await resources.store.fetch(MEMORIES, request.scope.tenant, rows) if len(rows) else []
    docs = [one.doc for one in found if one is not None and request.scope.sees(one.doc)]
    decays, now = Decays(resources.agents, request.scope.tenant), to_ms(request.now)
    importance = {doc["memory_id"]: await decays.importance(doc, now) for doc in docs}
    docs.sort(key=lambda doc: (not doc["pinned"], -doc["trust"], -importance[doc["memory_id"]], doc["memory_id"]))
    return [_instruction_item(doc) for doc in docs]


def _instruction_item(doc: Doc) -> Candidate:
    text = doc["content"] if not doc["context"] else f"{doc['content']} ({doc['context']})"
    same = frozenset({f"memory:{doc['memory_id']}", f"rule:{content_hash(text)}"})
    return Candidate(doc["memory_id"], doc["memory_type"], text, same=same, memory_id=doc["memory_id"])


INSTRUCTIONS = ContextSource(
    "instructions", "Rules set by the user or the operator", gather_instructions, MOST_INSTRUCTIONS, share=0.25
)


async def gather_profile(request: SourceRequest) -> list[Candidate]:
    """Returns the entries of the profile; none if there is no user."""
    body, resources = request.body, request.resources
    if body.user_id is None:
        return []
    view = View(body.as_of or rfc3339(request.now), body.known_at)
    user = await ProfileReader(resources.store, request.scope, resources.clock).find(body.user_id, view)
    if user is None:
        return []
    request.names += [user.profile["name"]] if user.profile["name"] else []
    found = [_profile_item(name, text, user.facts.get(name)) for name, text in _entries(user.profile)]
    return _ranked(found, body.query)


def _profile_item(name: str, text: str, fact: Doc | None) -> Candidate:
    """Returns an entry of the profile. The fact that states it is not shown again."""
    same = frozenset[str]() if fact is None else frozenset({f"text:{content_hash(sentence(fact))}"})
    return Candidate(f"profile:{name}", "profile", text, same=same)


def _ranked(items: list[Candidate], query: str) -> list[Candidate]:
    """Sorts the entries.

    Single values (name, home, …) come first, since they are few, then entries of lists by the words that they share
    with the query. Rare words weigh more.
    """
    wanted = set(text_ids(query).tolist())
    resources = [set(text_ids(item.text).tolist()) & wanted for item in items]
    often = Counter(term for each in resources for term in each)
    weight = [sum(1 / often[term] for term in each) for each in resources]
    order = sorted(range(len(items)), key=lambda at: ("/" in items[at].id, -weight[at], at))
    return [items[at] for at in order]


def _entries(profile: Doc) -> Iterator[tuple[str, str]]:
    """Yields (id, text) of each entry, so that a long list does not displace the rest.

    Ids contain no keys of callers.
    """
    for name, value in profile.items():
        if isinstance(value, list):
            yield from ((f"{name}/{index}", f"{name}: {one}") for index, one in enumerate(value))
        elif isinstance(value, dict):
            entries = enumerate(value.items())
            yield from ((f"{name}/{index}", f"{name}: {key}: {_plain(one)}") for index, (key, one) in entries)
        elif value is not None:
            yield name, f"{name}: {value}"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


PROFILE = ContextSource("profile", "Profile", gather_profile, default_limit=40, share=0.12)


SPARE_LESSONS = 2
"""Factor of the limit. More items are returned because some repeat items of other sections."""
LABELS = {
    KNOWLEDGE: "knowledge",
    "common_scenarios": "scenario",
    "effective_strategies": "strategy",
    "known_pitfalls": "pitfall",
    "tool_patterns": "tool pattern",
    "heuristics": "heuristic",
    "user_feedback": "feedback",
    "improvement_areas": "to improve",
}


async def gather_experience(request: SourceRequest) -> list[Candidate]:
    """Returns the agent's lessons, best first. An agent that is not registered or not visible to the key has none."""
    agent = await Repository(request.resources.store, request.scope, AGENTS).find_one(request.body.agent_id)
    if agent is None:
        return []
    experience = agent["experience"]
    texts = [experience[KNOWLEDGE], *(lesson["text"] for name in LESSONS for lesson in experience[name])]
    lessons = await off_loop(sum(map(len, texts)), ranked, request.body.query, experience)
    return [_lesson_item(lesson) for lesson in lessons[: SPARE_LESSONS * request.limit]]


def _lesson_item(lesson: RankedLesson) -> Candidate:
    same = frozenset({f"text:{content_hash(lesson.text)}"})
    item_id = f"experience:{lesson.name}/{lesson.index}"
    return Candidate(item_id, "experience", lesson.text, lesson.score, f"{LABELS[lesson.name]}: ", same)


EXPERIENCE = ContextSource("experience", "Experience", gather_experience, default_limit=10)
