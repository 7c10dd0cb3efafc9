"""Context sources that are about the user and the agent: instructions, the profile, the agent's experience, and open
findings, which say what two records state differently until somebody settles it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import orjson

from app.context.candidates import Candidate, ContextSource, Doubt, SourceRequest
from app.context.sources.searched import search, visible
from app.core.clock import rfc3339, to_ms
from app.core.work import off_loop
from app.facts.keys import sentence
from app.facts.repository import View, of_pairs
from app.findings.schemas import evidence_names
from app.findings.service import EvidenceReader, EvidenceRecord, FindingRepository, whole
from app.memories.access_log import Decays
from app.memories.models import AGENTS, MEMORIES, STANDING
from app.memories.repository import MemoryRepository
from app.profiles.agents import KNOWLEDGE, RankedLesson, ranked
from app.profiles.merge import LESSONS, ProfileReader
from app.storage.repository import Repository
from app.storage.schema import Doc, Eq, In, Or, both
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
    decays, now = Decays(resources.store, request.scope.tenant), to_ms(request.now)
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


MOST_OPEN = 100
"""The number of findings that are looked at, the latest ones."""
NEAR = 10
"""The number of memories nearest to the query whose findings are shown."""
BY_WORDS = 0.75
"""The least confidence of a finding that one word of the query brings into a prompt. A less sure one must be near."""
SHOWN_CHARACTERS = 200
"""Longer texts are cut, and their memories may stand in their own section, too."""


async def gather_uncertain(request: SourceRequest) -> list[Candidate]:
    """Returns the open findings that touch the query: by a word of their evidence, or because a memory of theirs is
    among the nearest ones. Without open findings nothing is searched."""
    body, store = request.body, request.resources.store
    findings = FindingRepository(store, request.scope)
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    status = In("status", ("open", "accepted"))
    where = both(status, In("kind", ("contradiction", "stale")), Or(tuple(of_pairs(pairs))))
    latest = await findings.find(where, limit=MOST_OPEN) if pairs else []
    now = body.as_of or rfc3339(request.now)
    request.doubts += await _settled(request, [doc for doc in latest if doc["status"] == "accepted"], now)
    found = [doc for doc in latest if doc["status"] == "open" and doc["trust"] >= (body.min_trust or 0)]
    if not found:
        return []
    reader = EvidenceReader(store, request.scope, rfc3339(request.now))
    records = await reader.read(name for doc in found for name in evidence_names(doc))
    nearest = {hit.doc["memory_id"] for hit in (await search(request, MEMORIES, visible(request), NEAR)).hits}
    terms = set(text_ids(body.query).tolist())
    items = list[tuple[int, Candidate]]()
    for doc in found:
        said = [records[name] for name in evidence_names(doc) if name in records]
        if not whole(doc, records) or any(one.said_at > now for one in said):
            continue
        request.doubts += _doubts(said)
        shared = sum(len(terms & set(text_ids(one.text).tolist())) for one in said)
        near = any(one.id in nearest for one in said)
        if near or (shared and doc["confidence"] >= BY_WORDS):
            items.append((-shared, _item(doc, said)))
    return [item for _, item in sorted(items, key=lambda pair: pair[0])]


def _doubts(said: list[EvidenceRecord]) -> list[Doubt]:
    """Returns each statement of an open finding with the other one."""
    if len(said) == 1:
        return [_doubt(said[0].id, said[0].text, said[0].doc, "", said[0].said_at, later=False)]
    (one, *_, other) = said
    return [
        _doubt(one.id, one.text, one.doc, other.text, other.said_at, later=True),
        _doubt(other.id, other.text, other.doc, one.text, one.said_at, later=False),
    ]


async def _settled(request: SourceRequest, accepted: list[Doc], now: str) -> list[Doubt]:
    """Returns the memories that accepted findings replaced. Texts such as summaries may still repeat them."""
    replaced = [
        (doc["proposal"]["keep"]["id"], one["id"])
        for doc in accepted
        if doc["proposal"]["action"] == "supersede" and doc["proposal"]["keep"]["kind"] == "memory"
        for one in doc["proposal"]["retire"]
        if one["kind"] == "memory"
    ]
    if not replaced:
        return []
    memories = MemoryRepository(request.resources.store, request.scope)
    docs = await memories.get_many([each for pair in replaced for each in pair])
    found = []
    for kept, retired in replaced:
        keep, retire = docs.get(kept), docs.get(retired)
        if keep is not None and retire is not None and retire["superseded_by"]:
            at = str(keep["event_at"] or keep["created_at"])
            if at <= now:
                doubt = _doubt(retired, retire["content"], retire, keep["content"], at, later=True)
                found.append(replace(doubt, settled=True))
    return found


def _doubt(record_id: str, text: str, doc: Doc, other: str, other_at: str, *, later: bool) -> Doubt:
    source = doc.get("source") or {}
    session, seq = source.get("session_id"), source.get("message_seq")
    return Doubt(record_id, text, other, other_at, later, session=session, seq=seq)


def _item(finding: Doc, said: list[EvidenceRecord]) -> Candidate:
    parts = [f"{_short(one.text)} ({one.said_at[:10]})" for one in said]
    text = " or, later: ".join(parts) if len(said) > 1 else f"{parts[0]}: {finding['reason']}"
    same = frozenset(part for one in said for part in _same(one))
    return Candidate(finding["finding_id"], "finding", text, prefix="uncertain: ", same=same)


def _same(record: EvidenceRecord) -> tuple[str, ...]:
    """Returns the marks by which a memory or fact that is shown here is not shown again. Rules and long texts keep
    their own place."""
    if record.kind == "memory" and len(record.text) <= SHOWN_CHARACTERS and record.doc.get("standing") != STANDING:
        return (f"memory:{record.id}",)
    return (f"text:{content_hash(record.text)}",) if record.kind == "fact" else ()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"


UNCERTAIN = ContextSource("uncertain", "Uncertain", gather_uncertain, default_limit=10, share=0.1)
