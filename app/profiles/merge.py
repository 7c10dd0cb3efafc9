"""Profiles and experience: they are read, merged and rendered for a prompt.

A profile is what a user's record stores, and the fields that facts about the user state. Merging is pure: fields that a
patch does not name stay. The experience prompt has blocks of what an agent has learned and of what it knows of a user.
Stored text is data: it cannot close its block, pose as another lesson, or contain a special token.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from app.core import prompt_text
from app.core.clock import Clock, rfc3339
from app.core.language import has_word_of
from app.core.prompt_text import EXPERIENCE, KNOWN_OF_USER, LEARNED, OF_USER, entry, json_line
from app.core.schemas import Json, merge_patch
from app.facts.profile import USERS, ProfileField, UserProfile, UserRecord, new_user, profile_of
from app.facts.repository import FactRepository, View
from app.facts.schemas import FactRecord
from app.memories.agents import Experience, Lesson, LessonList, first_learned_at
from app.memories.schemas import MemoryRecord, Source
from app.profiles.schemas import LIST_FIELDS, OBJECT_FIELDS, status_of
from app.storage.protocol import Store
from app.storage.records import DAMAGED, left_out
from app.storage.repository import Repository
from app.storage.scope import Scope
from app.storage.text import normalise_content

LESSONS: tuple[LessonList, ...] = get_args(LessonList)
EMPTY_EXPERIENCE: Experience = {
    "procedural_knowledge": "",
    "common_scenarios": [],
    "effective_strategies": [],
    "known_pitfalls": [],
    "tool_patterns": [],
    "heuristics": [],
    "user_feedback": [],
    "improvement_areas": [],
}
FACT_FIELDS: tuple[ProfileField, ...] = get_args(ProfileField)
"""The fields of a profile that are facts."""
MAX_LESSONS = 50
MAX_INTERACTIONS = 50
MAX_LISTED = 200
_BLANK_LINES = re.compile(r"\s*\n\s*\n\s*")


def merge_profile(profile: UserProfile, patch: Json) -> UserProfile:
    """Applies a patch to a whole profile: lists are added to, objects merged at every depth (null removes a key),
    scalars replaced. Null clears a field."""
    merged: UserProfile = {**profile}
    for scalar in FACT_FIELDS:
        if scalar in patch:
            merged[scalar] = patch[scalar]
    for name in LIST_FIELDS:
        if name in patch:
            texts = patch[name]
            merged[name] = [] if texts is None else add_to(profile[name], texts)[-MAX_LISTED:]
    for field in OBJECT_FIELDS:
        if field in patch:
            entries = patch[field]
            merged[field] = {} if entries is None else merge_patch(profile[field], entries)
    return merged


def add_to(old: Sequence[str], new: Iterable[str]) -> list[str]:
    """Returns old and new texts, each once, whatever its spelling."""
    texts = {normalise_content(text): text for text in reversed([*old, *new])}
    return list(reversed(texts.values()))


def merge_experience(
    experience: Experience, patch: Mapping[str, Any], source: Source, now: str, names: Sequence[str] = ()
) -> Experience:
    """Adds lessons that were learned `now`. A known lesson is counted once more. Beyond `MAX_LESSONS` the least seen
    are dropped, then the oldest.

    `patch`: the fields of an `ExperiencePatch` that are set; null clears a list. Lessons that contain one of `names` (a
    session's user) are not learned: experience is about no user.
    """
    merged: Experience = {**experience}
    if "procedural_knowledge" in patch:
        merged["procedural_knowledge"] = patch["procedural_knowledge"] or ""
    for name in LESSONS:
        if name in patch and patch[name] is None:
            merged[name] = []
        texts = [text for text in patch.get(name) or () if not names_one(text, names)]
        if texts:
            merged[name] = _learn(experience[name], texts, source, now)
    return merged


def _learn(lessons: Sequence[Lesson], texts: Sequence[str], source: Source, now: str) -> list[Lesson]:
    known = {normalise_content(lesson["text"]): lesson.copy() for lesson in lessons}
    for text in texts:
        lesson = known.setdefault(normalise_content(text), {"text": text, "seen": 0, "source": source})
        first = first_learned_at(lesson) or now
        lesson |= {"seen": lesson["seen"] + 1, "learned_at": now, "first_learned_at": first}
    learned = list(known.values())
    while len(learned) > MAX_LESSONS:
        learned.pop(min(range(len(learned)), key=lambda at: (learned[at]["seen"], at)))
    return learned


def copy_experience(experience: Experience, other: Experience, from_agent_id: str) -> Experience:
    """Adds the lessons of another agent's experience that are not known. Each keeps its source and its count and says
    where it was copied from. Own lessons stay; the most seen of the others fill the list up to `MAX_LESSONS`. Knowledge
    is added by paragraphs. Copying twice changes nothing."""
    own, theirs = paragraphs(experience["procedural_knowledge"]), paragraphs(other["procedural_knowledge"])
    known = {normalise_content(text) for text in own}
    new = [text for text in add_to([], theirs) if normalise_content(text) not in known]
    merged: Experience = {**experience}
    if new:
        merged["procedural_knowledge"] = "\n\n".join([*own, *new])
    for name in LESSONS:
        merged[name] = _with_copies(experience[name], other[name], from_agent_id)
    return merged


def _with_copies(own: Sequence[Lesson], others: Sequence[Lesson], from_agent_id: str) -> list[Lesson]:
    known = {normalise_content(lesson["text"]) for lesson in own}
    new = [lesson for lesson in others if normalise_content(lesson["text"]) not in known]
    chosen = sorted(new, key=lambda lesson: -lesson["seen"])[: max(MAX_LESSONS - len(own), 0)]
    copies: list[Lesson] = [{**lesson, "copied_from": from_agent_id} for lesson in new if lesson in chosen]
    return [*own, *copies]


def paragraphs(text: str) -> list[str]:
    """Returns the parts of a text that blank lines separate."""
    return [part for part in _BLANK_LINES.split(text.strip()) if part]


def names_one(text: str, names: Sequence[str]) -> bool:
    """Returns True if a text contains a word of one of the names."""
    return any(has_word_of(name, text) for name in names)


def compose(
    experience: Experience | None,
    profile: UserProfile | None,
    memories: Sequence[MemoryRecord],
    max_tokens: int | None,
) -> tuple[str, int]:
    """Returns the text and its tokens, never more than `max_tokens`. Memories are given most important first. If the
    budget is short, the last of them are left out first, then the least seen lessons."""
    filled = {name: value for name, value in (profile or {}).items() if value not in (None, [], {})}
    lessons = _lessons(experience)
    parts = [json_line(filled) if filled else "", *lessons, *(_memory(memory) for memory in memories)]

    def render(count: int) -> str:
        taken = parts[:count]
        if not any(taken):
            return ""
        return _blocks(taken[:1], taken[1 : 1 + len(lessons)], taken[1 + len(lessons) :])

    text, size, _ = prompt_text.most_that_fit(parts, render, max_tokens)
    return text, size


def _blocks(profile: Sequence[str], lessons: Sequence[str], memories: Sequence[str]) -> str:
    blocks: list[str] = []
    if lessons:
        blocks.append(_block(EXPERIENCE, "\n".join([LEARNED, *lessons])))
    inner = [*(_block("user_profile", text) for text in profile if text)]
    if memories:
        inner.append(_block("memories", "\n".join(memories)))
    if inner:
        blocks.append(_block(OF_USER, "\n".join([KNOWN_OF_USER, *inner])))
    return "\n\n".join(blocks)


def _block(name: str, text: str) -> str:
    return f"<{name}>\n{text}\n</{name}>"


def _lessons(experience: Experience | None) -> list[str]:
    if experience is None:
        return []
    known = experience["procedural_knowledge"]
    lines = [_lesson("procedural_knowledge", known)] if known else []
    lessons = [(name, lesson) for name in LESSONS for lesson in experience[name]]
    lessons.sort(key=lambda entry: -entry[1]["seen"])
    return lines + [_lesson(name, lesson["text"]) for name, lesson in lessons]


def _lesson(name: str, text: str) -> str:
    return entry(f"{name}: ", text).removesuffix("\n")


def _memory(memory: MemoryRecord) -> str:
    shown = {"id": memory["memory_id"], "category": memory["memory_type"], "content": memory["content"]}
    if memory["context"]:
        shown["context"] = memory["context"]
    if status := status_of(memory):
        shown["status"] = status
    return json_line(shown)


@dataclass(frozen=True, slots=True)
class ReadUser:
    """A user's record with the whole profile. `facts`: the facts that state its fields, by field. `stored`: the profile
    as the record has it; None if there is no record."""

    record: UserRecord
    facts: Mapping[str, FactRecord]
    stored: UserProfile | None

    @property
    def profile(self) -> UserProfile:
        """The whole profile."""
        return self.record["profile"]


class ProfileReader:
    """Reads the profiles of users within a caller's scope."""

    def __init__(self, store: Store, scope: Scope, clock: Clock) -> None:
        self._users, self._facts, self._clock = Repository(store, scope, USERS), FactRepository(store, scope), clock

    async def find(self, user_id: str, view: View | None = None) -> ReadUser | None:
        """Returns a user as of a point in both times, or None if nothing is known of them. What has no history (lists
        and objects) is read as it is now."""
        return (await self.find_many([user_id], view)).get(user_id)

    async def find_many(self, user_ids: Sequence[str], view: View | None = None) -> dict[str, ReadUser]:
        """Returns those of the users of whom a profile is known, by id."""
        records = await self._users.get_many(user_ids)
        stating = await self._stating(user_ids, view)
        users: dict[str, ReadUser] = {}
        for user_id in user_ids:
            if user_id in records or stating[user_id]:
                try:
                    users[user_id] = _read(user_id, records.get(user_id), stating[user_id])
                except DAMAGED as error:
                    left_out(USERS, user_id, type(error).__name__)
        return users

    async def of_records(self, records: Sequence[UserRecord]) -> list[ReadUser]:
        """Returns the users of these stored records, in order, with what is known and true of each now."""
        stating = await self._stating([record["user_id"] for record in records])
        return [_read(record["user_id"], record, stating[record["user_id"]]) for record in records]

    async def _stating(
        self, user_ids: Sequence[str], view: View | None = None
    ) -> Mapping[str, Mapping[str, FactRecord]]:
        """Returns the facts that state fields of the profiles, by user and field."""
        return await self._facts.of_profiles(user_ids, view or View(rfc3339(self._clock.now())))


def _read(user_id: str, record: UserRecord | None, facts: Mapping[str, FactRecord]) -> ReadUser:
    """Returns a user. Facts alone make a user, too: those that were imported without the record."""
    stored = None if record is None else record["profile"]
    base = record or new_user(user_id, min((fact["created_at"] for fact in facts.values()), default=""))
    return ReadUser({**base, "profile": profile_of(stored or {}, facts)}, facts, stored)
