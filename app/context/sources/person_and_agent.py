"""Context sources that are about the user and the agent: instructions, what is marked to stand in every prompt
and the profile, which are fixed, and the agent's experience, which competes."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping

import orjson

from app.context.source import (
    Candidate,
    ContextSource,
    SourceRequest,
    SourceResult,
    latest_first,
    matching_records,
    same_memory,
    same_rule,
    same_text,
    visible_memories,
)
from app.context.sources.chains import fact_item
from app.core.clock import to_ms
from app.core.work import characters, off_loop
from app.facts.outdated import Utterance
from app.facts.profile import UserProfile
from app.facts.schemas import FACTS, FactRecord, sentence
from app.memories.agents import AGENTS, Decays
from app.memories.schemas import RULE_MARK, AlwaysKind, MemoryRecord
from app.profiles.agents import KNOWLEDGE, LESSONS, RankedLesson, ranked_lessons
from app.profiles.users import ProfileReader
from app.storage.repository import Repository
from app.storage.schema import Eq, In, Range, both
from app.storage.text import text_ids

MOST_INSTRUCTIONS = 50


async def gather_instructions(request: SourceRequest) -> SourceResult:
    """Returns the rules: pinned ones first, then by trust and importance."""
    memories = await visible_memories(request, RULES)
    decays, now = Decays(request.resources.store, request.scope.tenant), to_ms(request.now)
    importance = {memory["memory_id"]: await decays.importance(memory, now) for memory in memories}

    def rank(memory: MemoryRecord) -> tuple[bool, float, float, str]:
        memory_id = memory["memory_id"]
        return not memory["pinned"], -memory["trust"], -importance[memory_id], memory_id

    return SourceResult([fixed_item(memory) for memory in sorted(memories, key=rank)])


RULES = Eq("standing", RULE_MARK)
"""Memories that are pinned, or instructions. `standing` of a fact is something else: whether it is held or disputed."""


def fixed_item(memory: MemoryRecord) -> Candidate:
    """Returns a memory that stands in the prompt whatever is asked: a rule, or what is marked `always`."""
    memory_id, content, condition = memory["memory_id"], memory["content"], memory["context"]
    text = f"{content} ({condition})" if condition else content
    return Candidate(
        memory_id,
        memory["memory_type"],
        text,
        keys=frozenset({same_memory(memory_id), same_rule(text)}),
        memory_id=memory_id,
        utterance=Utterance.in_memory(memory),
    )


INSTRUCTIONS_SOURCE = ContextSource(
    "instructions",
    "Rules set by the user or the operator",
    gather_instructions,
    MOST_INSTRUCTIONS,
    share=0.25,
    gets_marks=True,
)


async def gather_always(request: SourceRequest) -> SourceResult:
    """Returns what callers and the extraction have marked so that it stands in every prompt (`always`): health first,
    then who the user is, then wishes, each the newest first. No other sign tells it: neither type nor importance nor
    likeness to examples."""
    least = request.body.min_trust
    trusted = None if least is None else Range("trust", ge=least)
    marked = In("always", ALWAYS_KINDS)
    memories, facts = await asyncio.gather(
        visible_memories(request, marked),
        matching_records(request, FACTS, both(marked, request.facts_view.believed(), trusted)),
    )
    dated = [(memory["always"], memory["created_at"], fixed_item(memory)) for memory in memories]
    dated += [(fact["always"], fact["created_at"], fact_item([fact], None, request.zone)) for fact in facts]
    dated.sort(key=lambda entry: entry[1], reverse=True)
    dated.sort(key=lambda entry: ALWAYS_KINDS.index(entry[0] or ALWAYS_KINDS[-1]))  # never None here: `marked`
    return SourceResult([item for *_, item in dated], facts=facts)


ALWAYS_KINDS: tuple[AlwaysKind, ...] = ("health", "identity", "wish")
ALWAYS_SOURCE = ContextSource(
    "always", "Always to be considered", gather_always, default_limit=5, share=1.0, max_tokens=120, gets_marks=True
)


async def gather_profile(request: SourceRequest) -> SourceResult:
    """Returns the entries of the profile; none if there is no user."""
    body, resources = request.body, request.resources
    if body.user_id is None:
        return SourceResult()
    user = await ProfileReader(resources.store, request.scope, resources.clock).find(body.user_id, request.facts_view)
    if user is None:
        return SourceResult()
    items = await off_loop(characters(user.profile), _profile_items, user.profile, user.facts, body.query)
    return SourceResult(items, names=[user.profile["name"]] if user.profile["name"] else [])


def _profile_items(profile: UserProfile, facts: Mapping[str, FactRecord], query: str) -> list[Candidate]:
    """Returns the entries of a profile: single values (name, home, …), since they are few, then entries of lists by the
    words that they share with the query. Rare words weigh more. `facts`: the facts that state fields, by field. Such a
    fact is not shown again."""
    items = list[Candidate]()
    for name, text in _entries(profile):
        keys = {same_text(text)}
        if (fact := facts.get(name)) is not None:
            keys.add(same_text(sentence(fact)))
        items.append(Candidate(f"profile:{name}", "profile", text, keys=frozenset(keys)))
    query_terms = set(text_ids(query).tolist())
    shared_terms = [query_terms.intersection(text_ids(item.text).tolist()) for item in items]
    entries_with = Counter(term for shared in shared_terms for term in shared)
    weights = [sum(1 / entries_with[term] for term in shared) for shared in shared_terms]
    order = sorted(range(len(items)), key=lambda at: ("/" in items[at].id, -weights[at], at))
    return [items[at] for at in order]


def _entries(profile: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yields (id, text) of each entry, so that a long list does not displace the rest.

    Ids contain no keys of callers.
    """
    for name, value in profile.items():
        if isinstance(value, list):
            for index, element in enumerate(value):
                yield f"{name}/{index}", f"{name}: {element}"
        elif isinstance(value, dict):
            for index, (key, element) in enumerate(value.items()):
                shown = element if isinstance(element, str) else orjson.dumps(element).decode()
                yield f"{name}/{index}", f"{name}: {key}: {shown}"
        elif value is not None:
            yield name, f"{name}: {value}"


PROFILE_SOURCE = ContextSource("profile", "Profile", gather_profile, default_limit=40, share=0.12)


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


async def gather_experience(request: SourceRequest) -> SourceResult:
    """Returns the agent's lessons that answer best and had been learned by `known_at`, and of equal ones the newest.

    No more than the section's limit are offered: a short old lesson would take the place of a new one. An agent that is
    not registered or not visible to the key has none.
    """
    agent = await Repository(request.resources.store, request.scope, AGENTS).find_one(request.body.agent_id)
    if agent is None:
        return SourceResult()
    experience = agent["experience"]
    texts = [experience[KNOWLEDGE], *(lesson["text"] for name in LESSONS for lesson in experience[name])]
    lessons = await off_loop(
        sum(map(len, texts)), ranked_lessons, request.body.query, experience, request.body.known_at
    )
    near, far = [one for one in lessons if one.is_near], [one for one in lessons if not one.is_near][:MOST_FAR_LESSONS]
    shown = [*near, *far][: request.limit]
    return SourceResult([_lesson_item(lesson, request.day(lesson.learned_at)) for lesson in shown])


FAR_LESSON, MOST_FAR_LESSONS = 0.1, 2
"""What a lesson counts that has no rare word of the query, and how many of them are offered."""


def _lesson_item(lesson: RankedLesson, day: str) -> Candidate:
    item_id = f"experience:{lesson.name}/{lesson.index}"
    label = f"{LABELS[lesson.name]}: "
    prefix = f"{day} {label}" if day else label
    factor = 1.0 if lesson.is_near else FAR_LESSON
    keys = frozenset({same_text(lesson.text)})
    return Candidate(item_id, "experience", lesson.text, lesson.score, prefix, keys, factor=factor, place=(day, 0))


EXPERIENCE_SOURCE = ContextSource(
    "experience",
    "Experience",
    gather_experience,
    default_limit=10,
    order=latest_first,
    boosts={"execute": 1.25},
)
