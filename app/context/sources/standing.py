"""Context sources that are about the user and the agent: instructions, the profile, the agent's experience, and open
findings, which say what two records state differently until somebody settles it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import orjson

from app.context.candidates import Candidate, ContextSource, Doubt, SourceRequest, of_replaced
from app.context.sources.searched import search, visible
from app.core.clock import rfc3339, to_ms
from app.core.work import off_loop
from app.facts.keys import sentence
from app.facts.outdated import Utterance
from app.facts.repository import of_pairs
from app.findings.replacing import replaced
from app.findings.schemas import evidence_names, is_doubt
from app.findings.service import EvidenceReader, EvidenceRecord, FindingRepository, Name, mark_of, quoted, whole
from app.memories.agents import AGENTS
from app.memories.decays import Decays
from app.memories.models import MEMORIES, STANDING
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
    docs = await rules(request)
    decays, now = Decays(request.resources.store, request.scope.tenant), to_ms(request.now)
    importance = {doc["memory_id"]: await decays.importance(doc, now) for doc in docs}
    docs.sort(key=lambda doc: (not doc["pinned"], -doc["trust"], -importance[doc["memory_id"]], doc["memory_id"]))
    return [instruction_item(doc) for doc in docs]


async def rules(request: SourceRequest) -> list[Doc]:
    """Returns the memories that are rules."""
    body, resources = request.body, request.resources
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    rules = Or(
        (Eq("standing", STANDING), Eq("memory_type", "instruction"))
    )  # earlier versions stored no field `standing`
    where, keep = visible(request)
    where = both(rules, where)
    none = np.empty(0, np.uint32)
    columns = await resources.store.search(
        MEMORIES, SearchQuery(request.scope.tenant, pairs, where, None, resources.embedder.name, none)
    )
    rows = columns.rows[columns.matched]
    found = await resources.store.fetch(MEMORIES, request.scope.tenant, rows) if len(rows) else []
    seen = [one.doc for one in found if one is not None and request.scope.sees(one.doc)]
    return seen if keep is None else list(filter(keep, seen))


def instruction_item(doc: Doc) -> Candidate:
    text = doc["content"] if not doc["context"] else f"{doc['content']} ({doc['context']})"
    same = frozenset({f"memory:{doc['memory_id']}", f"rule:{content_hash(text)}"})
    said = Utterance.in_memory(doc)
    return Candidate(doc["memory_id"], doc["memory_type"], text, same=same, memory_id=doc["memory_id"], said=said)


INSTRUCTIONS = ContextSource(
    "instructions", "Rules set by the user or the operator", gather_instructions, MOST_INSTRUCTIONS, share=0.25
)


async def gather_profile(request: SourceRequest) -> list[Candidate]:
    """Returns the entries of the profile; none if there is no user."""
    body, resources = request.body, request.resources
    if body.user_id is None:
        return []
    user = await ProfileReader(resources.store, request.scope, resources.clock).find(body.user_id, request.view)
    if user is None:
        return []
    request.names += [user.profile["name"]] if user.profile["name"] else []
    return _ranked(profile_items(user.profile, user.facts), body.query)


def profile_items(profile: Doc, facts: Mapping[str, Doc]) -> list[Candidate]:
    """Returns the entries of a profile, in fixed order. `facts`: the facts that state fields, by field."""
    return [_profile_item(name, text, facts.get(name)) for name, text in _entries(profile)]


def _profile_item(name: str, text: str, fact: Doc | None) -> Candidate:
    """Returns an entry of the profile. The fact that states it is not shown again."""
    same = {f"profile:{content_hash(text)}"} | (set() if fact is None else {f"text:{content_hash(sentence(fact))}"})
    return Candidate(f"profile:{name}", "profile", text, same=frozenset(same))


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
    """Returns the agent's lessons that answer best, and of equal ones the newest.

    No more than have room are offered: a short old lesson would take the place of a new one. An agent that is not
    registered or not visible to the key has none.
    """
    agent = await Repository(request.resources.store, request.scope, AGENTS).find_one(request.body.agent_id)
    if agent is None:
        return []
    experience = agent["experience"]
    texts = [experience[KNOWLEDGE], *(lesson["text"] for name in LESSONS for lesson in experience[name])]
    lessons = await off_loop(sum(map(len, texts)), ranked, request.body.query, experience)
    return [_lesson_item(lesson) for lesson in lessons[: request.limit]]


def _lesson_item(lesson: RankedLesson) -> Candidate:
    same = frozenset({f"text:{content_hash(lesson.text)}"})
    item_id = f"experience:{lesson.name}/{lesson.index}"
    day, label = (lesson.learned_at or "")[:10], f"{LABELS[lesson.name]}: "
    prefix = f"{day} {label}" if day else label
    return Candidate(item_id, "experience", lesson.text, lesson.score, prefix, same, place=(day, 0))


EXPERIENCE = ContextSource("experience", "Experience", gather_experience, default_limit=10, latest_first=True)


MOST_OPEN = 100
"""The number of findings that are looked at, the latest ones."""
NEAR = 10
"""The number of memories nearest to the query whose findings are shown."""
SHOWN_CHARACTERS = 200
"""Longer texts are cut, and their memories may stand in their own section, too."""


async def gather_uncertain(request: SourceRequest) -> list[Candidate]:
    """Returns the open findings of a judge, and those about facts in conflict, that touch the query: by a word of their
    evidence, or because a memory of theirs is among the nearest ones. Without open findings nothing is searched. A
    finding whose link counts (`app/findings/replacing.py`) is not uncertain: its earlier statement is marked."""
    body, store = request.body, request.resources.store
    findings = FindingRepository(store, request.scope)
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    status = In("status", ("open", "accepted"))
    where = both(status, In("kind", ("contradiction", "stale")), Or(tuple(of_pairs(pairs))))
    latest = await findings.find(where, limit=MOST_OPEN) if pairs else []
    found = [doc for doc in latest if is_doubt(doc)]
    if not found:
        return []
    now = body.as_of or rfc3339(request.now)
    reader = EvidenceReader(store, request.scope, rfc3339(request.now))
    records = await reader.read(name for doc in found for name in evidence_names(doc))
    opened = [doc for doc in found if doc["status"] == "open" and whole(doc, records)]
    opened = [doc for doc in opened if doc["trust"] >= (body.min_trust or 0) and _all_said(doc, records, now)]
    linked = await replaced(store, request.scope, request.viewpoint, _memories(opened, records))
    request.doubts += [of_replaced(each) for each in linked]
    pairs_linked = {(each.memory_id, each.by.name) for each in linked}
    opened = [doc for doc in opened if _pair_of(doc) not in pairs_linked]
    request.doubts += [doubt for doc in opened for doubt in _doubts(doc, records)]
    request.doubts += await _settled(request, [doc for doc in found if doc["status"] == "accepted"], now)
    if not opened:
        return []
    where, keep = visible(request)
    nearest = {hit.doc["memory_id"] for hit in (await search(request, MEMORIES, where, NEAR, keep=keep)).hits}
    terms = set(text_ids(body.query).tolist())
    items = list[tuple[int, Candidate]]()
    for doc in opened:
        said = [records[name] for name in evidence_names(doc)]
        shared = sum(len(terms & set(text_ids(one.text).tolist())) for one in said)
        if shared or any(one.id in nearest for one in said):
            items.append((-shared, _item(doc, said)))
    return [item for _, item in sorted(items, key=lambda pair: pair[0])]


def _memories(found: Sequence[Doc], records: Mapping[Name, EvidenceRecord]) -> list[Doc]:
    """Returns the memories that are the earlier statements of findings, each once."""
    earlier = dict.fromkeys(evidence_names(doc)[0] for doc in found)
    return [records[name].doc for name in earlier if name[0] == "memory"]


def _pair_of(finding: Doc) -> tuple[str, Name]:
    """Returns the id of the earlier statement of a finding, and the name of the later one."""
    (_, earlier), later = evidence_names(finding)
    return earlier, later


def _all_said(finding: Doc, records: Mapping[Name, EvidenceRecord], now: str) -> bool:
    return all(records[name].said_at <= now for name in evidence_names(finding))


def _doubts(finding: Doc, records: Mapping[Name, EvidenceRecord]) -> list[Doubt]:
    """Returns each sentence of an open finding with the other one."""
    one, other = (records[name] for name in evidence_names(finding))
    said, otherwise = (quoted(of, record.text) for of, record in zip(finding["evidence"], (one, other), strict=True))
    return [
        Doubt(one.id, said, otherwise, other.said_at, later=True),
        Doubt(other.id, otherwise, said, one.said_at, later=False),
    ]


async def _settled(request: SourceRequest, accepted: list[Doc], now: str) -> list[Doubt]:
    """Returns the sentences that accepted findings replaced. Memories that say more, and summaries, may still have
    them."""
    replaced = [
        doc
        for doc in accepted
        if doc["proposal"]["action"] == "supersede" and {one["kind"] for one in doc["evidence"]} == {"memory"}
    ]
    if not replaced:
        return []
    memories = MemoryRepository(request.resources.store, request.scope)
    docs = await memories.get_many([one["id"] for doc in replaced for one in doc["evidence"]])
    found = []
    for finding in replaced:
        said = {one["id"]: (one, docs.get(one["id"])) for one in finding["evidence"]}
        named, keep = said[finding["proposal"]["keep"]["id"]]
        for one, retired in (said[retire["id"]] for retire in finding["proposal"]["retire"]):
            if keep is None or retired is None or mark_of(retired["content"]) != one["mark"]:
                continue
            at = str(keep["event_at"] or keep["created_at"])
            if at <= now and mark_of(keep["content"]) == named["mark"]:
                said_of = quoted(one, retired["content"]), quoted(named, keep["content"])
                found.append(Doubt(one["id"], *said_of, at, later=True, settled=True))
    return found


def _item(finding: Doc, said: list[EvidenceRecord]) -> Candidate:
    quotes = [quoted(named, one.text) for named, one in zip(finding["evidence"], said, strict=True)]
    text = " or, later: ".join(f"{_short(quote)} ({one.said_at[:10]})" for quote, one in zip(quotes, said, strict=True))
    same = frozenset(part for one, quote in zip(said, quotes, strict=True) if quote == one.text for part in _same(one))
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
