"""Context sources that are searched by the query: memories, facts, procedures, episodes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from app.actions.schemas import ACTIONS
from app.api.lookup import retriever_of
from app.context.candidates import (
    LONG_TEXT,
    LONGEST,
    Candidate,
    ContextSource,
    Heading,
    SourceRequest,
    of_replaced,
    passage,
)
from app.context.sources.chains import IsNamed, as_line, chains_from, lines_of
from app.context.sources.interactions import matching_interactions
from app.core.clock import rfc3339, to_ms
from app.core.language import words
from app.core.work import in_parts
from app.facts.aliases import AliasMap, AliasRepository
from app.facts.graph import Graph
from app.facts.keys import USER, key_of, sentence
from app.facts.outdated import Utterance
from app.facts.repository import FactRepository
from app.facts.schemas import FACTS
from app.findings.replacing import later_first, replaced
from app.memories.decays import Decays
from app.memories.models import MEMORIES, NO_SMALL_TALK
from app.memories.narrowing import Keep, Narrowing
from app.memories.records import speaker_of, standing
from app.memories.search import SearchRequest, search_filter
from app.procedures.schemas import PROCEDURES
from app.procedures.search import (
    LEAST_CANDIDATES,
    ProcedureHit,
    as_served,
    ranked,
    searched,
    served,
    track_record,
    trial_record,
)
from app.profiles.schemas import status_of
from app.retrieval.retriever import Hit, RetrievalQuery, RetrievalResult
from app.storage.schema import Collection, Doc, Filter, Range, both
from app.storage.text import content_hash, terms


async def search(  # noqa: PLR0913 (what a search depends on)
    request: SourceRequest,
    collection: Collection,
    where: Filter,
    k: int,
    decays: Decays | None = None,
    *,
    keep: Keep | None = None,
    partners: bool = False,
) -> RetrievalResult:
    """Searches a collection for the request's query, within what the agent may see of the user. Adds warnings to
    `request`.

    The query's vector may take half of the source's time, and the second stage a quarter, so that a slow model reduces
    the quality and does not make the source fail.
    """
    body, resources = request.body, request.resources
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    wanted = RetrievalQuery(
        body.query,
        pairs,
        where,
        to_ms(request.now),
        k,
        keep=keep,
        decays=decays,
        vector_seconds=resources.tuning.section_seconds / 2,
        rerank_seconds=resources.tuning.section_seconds / 4,
        interval=request.interval,
        known_at=request.body.known_at,
        partners=partners,
        evidence=True,
        once="each day",
    )
    retrieved = await retriever_of(resources, request.scope, collection).find(wanted)
    request.warnings += retrieved.warnings
    if retrieved.evidence is not None:
        request.evidence.append(retrieved.evidence)
    return retrieved


MOST_MEMORIES = 100
SPARE_MEMORIES = 24
"""Added to the limit, because some items repeat items of other sections."""
PARTNER_WORTH = 0.5
"""Score of a partner as a share of its hit's score."""


async def gather_memories(request: SourceRequest) -> list[Candidate]:
    """Returns memories, best first. It leaves out those below the minimum importance."""
    decays = Decays(request.resources.store, request.scope.tenant)
    where, keep = visible(request)
    retrieved = await search(request, MEMORIES, where, request.limit + SPARE_MEMORIES, decays, keep=keep, partners=True)
    least, asked, kept = await _least_importance(request, decays), content_hash(request.body.query), list[Hit]()
    for hit in await _later_first(request, retrieved.hits):
        if _is_query(hit.doc, asked, request):
            continue
        exempt = least == 0 or standing(hit.doc) is not None
        if not exempt and await decays.importance(hit.doc, to_ms(request.now)) < least:
            request.hidden.append(hit.doc["memory_id"])
            continue
        if hit.partner is not None and _is_query(hit.partner, asked, request):
            kept.append(hit._replace(partner=None))
        else:
            kept.append(hit)
    shown = await _passages(kept, retrieved.weights, request.budget)
    return newest_of_equal([item for hit in kept for item in _memory_items(hit, shown)])


async def _later_first(request: SourceRequest, hits: Sequence[Hit]) -> Sequence[Hit]:
    """Returns the hits, those behind that a judge found to be replaced, unless the query names a time. What they say is
    noted, to be marked."""
    said = [doc for hit in hits for doc in (hit.doc, hit.partner) if doc is not None]
    found = await replaced(request.resources.store, request.scope, request.viewpoint, said)
    request.doubts += [of_replaced(each) for each in found]
    return later_first(hits, found) if found and request.interval is None else hits


def newest_of_equal(items: Sequence[Candidate]) -> list[Candidate]:
    """Returns the items, best first, where of those with the same text of one speaker the newest has the best score and
    place, so that the others repeat it."""
    found, equal = list(items), dict[tuple[object, str | None], list[int]]()
    for at, item in enumerate(items):
        if item.content is not None and item.said is not None and not item.dated:
            equal.setdefault((item.content, item.said.by), []).append(at)
    for best, *others in equal.values():
        newest = max((best, *others), key=lambda at: items[at].day)
        if newest != best:
            found[best] = replace(items[newest], score=items[best].score)
            found[newest] = replace(items[best], score=items[newest].score)
    return found


async def _passages(hits: Sequence[Hit], weights: Mapping[int, float], budget: int) -> dict[str, str]:
    """Returns what is shown of the content of each hit and partner, by id. Beside the event loop, if it is much.

    As many long texts are searched for their best passage as have room in the budget, best first. The others show their
    beginning: 130 messages of 32,000 characters are 4 MB, and 4,000 tokens have room for 33 passages.
    """
    found = (doc for hit in hits for doc in (hit.doc, hit.partner, *hit.others))
    docs = {doc["memory_id"]: _content(doc) for doc in found if doc is not None}
    left, work = budget // LONGEST + 1, list[tuple[str, Mapping[int, float]]]()
    for text in docs.values():
        is_long = len(text) > LONG_TEXT
        work.append((text, {} if is_long and left <= 0 else weights))
        left -= is_long
    passages = await in_parts(
        work, lambda pair: passage(*pair), lambda pair: len(pair[0]) if pair[1] else min(len(pair[0]), LONG_TEXT)
    )
    return dict(zip(docs, passages, strict=True))


def _content(memory: Doc) -> str:
    """Returns the content of a memory, that of a solution as "problem → fix" unless the content was changed since."""
    content: str = memory["content"]
    if memory["memory_type"] != "solution":
        return content
    problem, fix = (memory["metadata"].get(name) for name in ("problem", "fix"))
    return f"{problem} → {fix}" if content == f"{problem}\n{fix}" else content


def visible(request: SourceRequest) -> Narrowing:
    """Returns the filter for memories that are active, valid and trusted enough at the request's time, and that have
    the tags and metadata that it asks for."""
    body = request.body
    search_request = SearchRequest(
        query=body.query or "?",  # the filter does not depend on it
        agent_id=body.agent_id,
        user_id=body.user_id,
        min_trust=body.min_trust,
        as_of=body.as_of,
        now=body.now,
        tags=body.tags,
        tags_match=body.tags_match,
        exclude_tags=body.exclude_tags,
        metadata=body.metadata,
    )
    where, keep = search_filter(search_request, rfc3339(request.now))
    return Narrowing(both(where, NO_SMALL_TALK), keep)


async def _least_importance(request: SourceRequest, decays: Decays) -> float:
    """Returns the minimum importance of the request, or else of the agent."""
    given = request.body.min_importance
    return await decays.least_importance(request.body.agent_id) if given is None else given


def _is_query(doc: Doc, asked: int, request: SourceRequest) -> bool:
    """Returns whether the memory is the query itself, as a message of this session. `asked`: the query's hash."""
    in_session = request.body.session_id is not None and doc["source"]["session_id"] == request.body.session_id
    return in_session and bool(doc["content_hash"] == asked)


def _memory_items(hit: Hit, shown: Mapping[str, str]) -> list[Candidate]:
    """Returns the hit with its partner, and what says the same as it: one of them at most is packed."""
    beside = None
    if (partner := hit.partner) is not None:
        beside = memory_item(partner, shown[partner["memory_id"]], hit.score * PARTNER_WORTH)
    item = memory_item(hit.doc, shown[hit.doc["memory_id"]], hit.score, beside)
    if not hit.others:
        return [item]
    others = [memory_item(doc, shown[doc["memory_id"]], hit.score * PARTNER_WORTH) for doc in hit.others]
    said = frozenset((f"said:{item.id}",))
    return [replace(one, same=one.same | said) for one in (item, *others)]


def memory_item(doc: Doc, text: str, score: float | None, partner: Candidate | None = None) -> Candidate:
    """Returns a memory as a candidate. `text`: its content, or a passage of it."""
    source, happened = doc["source"], str(doc["event_at"] or doc["created_at"])
    said_by = speaker_of(source)
    speaker = f"{said_by}: " if said_by else ""
    status = status_of(doc)
    issue = "" if status is None else f"issue ({status}): "
    context = f" ({doc['context']})" if doc["context"] else ""
    session, seq = source["session_id"], source["message_seq"]
    spoken = session is not None and seq is not None and source["speaker"] is not None
    dated = f":{happened[:10]}" if doc["event_at"] else ""  # the same event may happen again on another day
    origin = f"message:{session}:{seq}" if spoken else f"text:{doc['content_hash']}{dated}"
    return Candidate(
        doc["memory_id"],
        doc["memory_type"],
        f"{text}{context}",
        score,
        prefix=f"{issue}{speaker}",
        same=frozenset((f"memory:{doc['memory_id']}", origin)),
        memory_id=doc["memory_id"],
        heading=Heading(f"{session}:{happened[:10]}" if spoken else happened[:10], happened[:10], conversation=spoken),
        place=(happened, seq or 0),
        said=Utterance.in_memory(doc),
        partner=partner,
        content=(doc["content_hash"], doc["context"]),
        dated=bool(dated) and not spoken,
    )


MEMORIES_SOURCE = ContextSource("memories", "Memories", gather_memories, MOST_MEMORIES)


SCORED_FACTS = 100
"""Number of facts that the search scores, more than are shown: chains weigh facts by their scores."""
MAX_CHARACTERS = 1_000
"""Maximum characters of a query that are read for names of entities."""


async def gather_facts(request: SourceRequest) -> list[Candidate]:
    """Returns facts and chains of facts, best first. A fact that a chain has does not stand by itself."""
    body = request.body
    view = request.view
    trusted = None if body.min_trust is None else Range("trust", ge=body.min_trust)
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    retrieved, aliases = await asyncio.gather(
        search(request, FACTS, both(view.believed(), trusted), max(request.limit, SCORED_FACTS)),
        AliasRepository(request.resources.store, request.scope).of_pairs(pairs, body.known_at),
    )
    scores = {hit.doc["fact_id"]: hit.score for hit in retrieved.hits}
    facts = [aliases.resolved(hit.doc) for hit in retrieved.hits]
    graph = Graph(FactRepository(request.resources.store, request.scope), pairs, view, trusted, aliases)
    seconds = request.resources.tuning.section_seconds / 4
    chains = lines_of(await chains_from(facts, scores, graph, _named_in(request, aliases), seconds), scores)
    chained = {fact["fact_id"] for chain in chains for fact in chain.facts}
    alone = [fact for fact in facts[: request.limit] if fact["fact_id"] not in chained]
    request.facts += [*alone, *(fact for chain in chains for fact in chain.facts)]
    items = [fact_item([fact], scores[fact["fact_id"]]) for fact in alone]
    items += [fact_item(chain.facts, chain.score) for chain in chains]
    return sorted(items, key=lambda item: -(item.score or 0.0))


def _named_in(request: SourceRequest, aliases: AliasMap) -> IsNamed:
    """Returns what says whether the query names an entity by half of the words of one of its names, or it is the
    user."""
    asked, user = set(terms(request.body.query[:MAX_CHARACTERS])), {USER, key_of(request.body.user_id or USER)}

    @cache
    def named(key: str) -> bool:
        names = aliases.keys(key)
        return not user.isdisjoint(names) or any(_half(asked, set(terms(name))) for name in names)

    return named


def _half(asked: set[str], name: set[str]) -> bool:
    return 2 * len(asked & name) >= len(name) > 0


def fact_item(facts: Sequence[Doc], score: float | None) -> Candidate:
    """Returns one line of one fact, or of a chain of them."""
    spans = [_span(fact) for fact in facts]
    shown = as_line(facts, spans)
    text = as_line(facts, [""] * len(facts)) if any(spans) else shown
    same = frozenset({f"text:{content_hash(text)}"})
    links = tuple(fact["fact_id"] for fact in facts)
    states = tuple(map(sentence, facts))
    part = partial(_part, tuple(facts), score) if len(facts) > 1 else None
    return Candidate(links[-1], "fact", shown, score, same=same, plain=text, links=links, states=states, part=part)


def _part(facts: Sequence[Doc], score: float | None, first: int, end: int) -> Candidate:
    return fact_item(facts[first:end], score)


def _span(fact: Doc) -> str:
    """Returns when a fact holds: " (since 2026-05-01)", " (2019-01-01 to 2026-05-01)".

    A fact that was asserted without a date begins when it was asserted. That day says nothing of the fact, so it is not
    shown, unless the fact took the place of another value then, or has ended.
    """
    begun, ended = (fact[name] and str(fact[name])[:10] for name in ("valid_from", "valid_until"))
    if begun and ended:
        return f" ({begun} to {ended})"
    if begun and (fact["valid_from"] != fact["known_from"] or fact["supersedes"]):
        return f" (since {begun})"
    return f" (until {ended})" if ended else ""


FACTS_SOURCE = ContextSource("facts", "Facts", gather_facts, default_limit=40)


SPARE_PROCEDURES = 2
"""Factor of the limit. More items are returned because some repeat items of other sections."""
SHOWN_NOTES = 3
"""Number of notes that are shown, the latest ones."""


async def gather_procedures(request: SourceRequest) -> list[Candidate]:
    """Returns procedures, best first."""
    where = searched(min_trust=request.body.min_trust, until=request.body.as_of)
    k = max(LEAST_CANDIDATES, SPARE_PROCEDURES * request.limit)
    retrieved = await search(request, PROCEDURES, where, k)
    return [_procedure_item(one) for one in ranked(retrieved.hits, request.now)[: SPARE_PROCEDURES * request.limit]]


def _procedure_item(found: ProcedureHit) -> Candidate:
    doc = as_served(found.hit.doc)
    same = frozenset({f"procedure:{content_hash(' '.join([doc['name'], *doc['steps']]))}"})
    return Candidate(doc["procedure_id"], "procedure", _procedure_text(found), found.score, same=same)


def _procedure_text(found: ProcedureHit) -> str:
    """Returns the procedure as lines with labels.

    Each part is one line, so that none passes for another step or record.
    """
    doc, of = as_served(found.hit.doc), found.standing
    record = track_record(doc["success_count"], doc["failure_count"], of)
    lines = [_step_line(doc["name"]), f"when: {_step_line(doc['trigger'])}"]
    lines += [f"needs: {_step_line(one)}" for one in doc["preconditions"]]
    lines += [f"{number}. {_step_line(step)}" for number, step in enumerate(doc["steps"], 1)]
    lines.append(f"record: {record}{f', unused for {int(of.idle_days)} days' if of.stale else ''}")
    if served(doc.get("trial")) == "revised":
        lines.append(f"trial: these steps are new, {trial_record(doc['trial'])}")
    lines += [f"note: {_step_line(one)}" for one in doc["notes"][-SHOWN_NOTES:]]
    return "\n".join(lines)


def _step_line(text: str) -> str:
    return " ".join(text.split())


PROCEDURES_SOURCE = ContextSource("procedures", "Procedures", gather_procedures, default_limit=5)


async def gather_episodes(request: SourceRequest) -> list[Candidate]:
    """Returns actions of the agent and its interactions with the user, up to the time of the request, best first."""
    until = Range("timestamp", le=request.body.as_of or rfc3339(request.now))
    retrieved, recorded = await asyncio.gather(
        search(request, ACTIONS, until, request.limit), matching_interactions(request)
    )
    found = [*map(_episode_item, retrieved.hits), *recorded[: request.limit]]
    return sorted(found, key=lambda item: -(item.score or 0.0))


def _episode_item(hit: Hit) -> Candidate:
    doc, feedback = hit.doc, hit.doc["feedback"]
    same = frozenset({f"text:{content_hash(doc['content'])}"})
    known = ", ".join([*([doc["outcome"]] if doc["outcome"] else []), *_judged(feedback)])
    named = "" if _begins_with(doc["content"], doc["action_type"]) else f" {doc['action_type']}"
    prefix = f"{str(doc['timestamp'])[:10]}{named}{f' ({known})' if known else ''}: "
    correction = _episode_line(feedback.get("correction") or "")
    text = f"{_episode_line(doc['content'])}\ncorrection: {correction}" if correction else doc["content"]
    return Candidate(doc["action_id"], "action", text, hit.score, prefix, same)


def _begins_with(content: str, action_type: str) -> bool:
    """Returns whether a content says the type of its action already, as one does that was made from the call, such as
    "refund payments.refund {…}"."""
    start = words(action_type)
    return bool(start) and words(content[: 2 * len(action_type)])[: len(start)] == start


def _episode_line(text: str) -> str:
    """Returns the text on one line, so that no text can pass for a correction."""
    return " ".join(text.split())


def _judged(feedback: Doc) -> list[str]:
    """Returns the user's feedback in words: `rated 2 of 5`, `not helpful`."""
    rating, helpful = feedback.get("user_rating"), feedback.get("was_helpful")
    said = [] if helpful is None else ["helpful" if helpful else "not helpful"]
    return said if rating is None else [f"rated {rating} of 5", *said]


EPISODES = ContextSource("episodes", "Past actions", gather_episodes, default_limit=20)
