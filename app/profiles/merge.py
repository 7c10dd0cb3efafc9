"""Merges profiles and experience, as pure functions. Fields that a patch does not name stay."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.core.schemas import merge_patch
from app.facts.about_user import EMPTY_PROFILE
from app.profiles.schemas import Experience
from app.storage.schema import Doc
from app.storage.text import normalise_content

LESSONS = tuple(name for name in Experience.model_fields if name != "procedural_knowledge")
EMPTY_EXPERIENCE: Mapping[str, Any] = {"procedural_knowledge": "", **{name: [] for name in LESSONS}}
MAX_LESSONS = 50
MAX_INTERACTIONS = 50
MAX_LISTED = 200
_BLANK_LINES = re.compile(r"\s*\n\s*\n\s*")


def merge_profile(profile: Doc, patch: Mapping[str, Any]) -> Doc:
    """Applies a patch: lists are added to, objects merged at every depth (null removes a key), scalars replaced. Null
    clears a field."""
    merged = dict(profile)
    for name, value in patch.items():
        if value is None:
            merged[name] = EMPTY_PROFILE[name]
        elif isinstance(value, list):
            merged[name] = add_to(profile[name], value)[-MAX_LISTED:]
        elif isinstance(value, dict):
            merged[name] = merge_patch(profile[name], value)
        else:
            merged[name] = value
    return merged


def add_to(old: Sequence[str], new: Iterable[str]) -> list[str]:
    """Returns old and new texts, each once, whatever its spelling."""
    found = {normalise_content(text): text for text in reversed([*old, *new])}
    return list(reversed(found.values()))


def merge_experience(experience: Doc, patch: Mapping[str, Any], source: Doc, names: Sequence[str] = ()) -> Doc:
    """Adds lessons. A known lesson is counted once more. Beyond `MAX_LESSONS` the least seen are dropped, then the
    oldest. Null clears a list. Lessons that contain one of `names` (a session's user) are not learned: experience is
    about no user."""
    merged = dict(experience)
    if "procedural_knowledge" in patch:
        merged["procedural_knowledge"] = patch["procedural_knowledge"] or ""
    for name in LESSONS:
        if name in patch and patch[name] is None:
            merged[name] = []
        texts = [text for text in patch.get(name) or () if not names_one(text, names)]
        if texts:
            merged[name] = _learn(experience[name], texts, source)
    return merged


def _learn(lessons: Sequence[Doc], texts: Sequence[str], source: Doc) -> list[Doc]:
    known = {normalise_content(lesson["text"]): dict(lesson) for lesson in lessons}
    for text in texts:
        lesson = known.setdefault(normalise_content(text), {"text": text, "seen": 0, "source": source})
        lesson["seen"] += 1
    kept = list(known.values())
    while len(kept) > MAX_LESSONS:
        kept.pop(min(range(len(kept)), key=lambda at: (kept[at]["seen"], at)))
    return kept


def copy_experience(experience: Doc, other: Doc, from_agent_id: str) -> Doc:
    """Adds the lessons of another agent's experience that are not known. Each keeps its source and its count and says
    where it was copied from. Own lessons stay; the most seen of the others fill the list up to `MAX_LESSONS`. Knowledge
    is added by paragraphs. Copying twice changes nothing."""
    own, theirs = (paragraphs(one["procedural_knowledge"]) for one in (experience, other))
    known = {normalise_content(text) for text in own}
    new = [text for text in add_to([], theirs) if normalise_content(text) not in known]
    knowledge = "\n\n".join([*own, *new]) if new else experience["procedural_knowledge"]
    copied = {name: _with_copies(experience[name], other[name], from_agent_id) for name in LESSONS}
    return {**experience, **copied, "procedural_knowledge": knowledge}


def _with_copies(own: Sequence[Doc], others: Sequence[Doc], from_agent_id: str) -> list[Doc]:
    known = {normalise_content(lesson["text"]) for lesson in own}
    new = [lesson for lesson in others if normalise_content(lesson["text"]) not in known]
    chosen = sorted(new, key=lambda lesson: -lesson["seen"])[: max(MAX_LESSONS - len(own), 0)]
    return [*own, *({**lesson, "copied_from": from_agent_id} for lesson in new if lesson in chosen)]


def paragraphs(text: str) -> list[str]:
    """Returns the parts of a text that blank lines separate."""
    return [part for part in _BLANK_LINES.split(text.strip()) if part]


def names_one(text: str, names: Sequence[str]) -> bool:
    """Returns True if a text contains a word of one of the names."""
    words = _words(text)
    return any(_words(name) & words for name in names)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", normalise_content(text)))
