"""Context sources that are searched by the query: memories, facts, procedures, episodes."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from app.actions.schemas import ACTIONS
from app.context.candidates import Candidate, ContextSource, Heading, SourceRequest, passage
from app.core.clock import rfc3339, to_ms
from app.facts.aliases import AliasRepository
from app.facts.graph import Graph, Walk
from app.facts.keys import USER, key_of, sentence
from app.facts.repository import FactRepository, View
from app.facts.schemas import FACTS
from app.learning.words import table
from app.memories.access_log import Decays
from app.memories.models import MEMORIES, NO_SMALL_TALK
from app.memories.records import standing
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
from app.retrieval.retriever import Hit, RetrievalQuery, RetrievalResult, Retriever
from app.storage.schema import Collection, Doc, Filter, Range, both
from app.storage.text import content_hash, normalise_content


async def search(
    request: SourceRequest,
    collection: Collection,
    where: Filter,
    k: int,
    decays: Decays | None = None,
    *,
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
        decays=decays,
        vector_seconds=resources.settings.context.arm_seconds / 2,
        rerank_seconds=resources.settings.context.arm_seconds / 4,
        interval=request.interval,
        partners=partners,
    )
    retrieved = await Retriever(
        resources.store, request.scope, resources.embedder, collection, resources.second_stage
    ).find(wanted)
    request.warnings += retrieved.warnings
    return retrieved


MOST_MEMORIES = 100
SPARE_MEMORIES = 24
"""Added to the limit, because some items repeat items of other sections."""
PARTNER_WORTH = 0.5
"""Score of a partner as a share of its hit's score."""


async def gather_memories(request: SourceRequest) -> list[Candidate]:
    """Returns memories, best first. It leaves out those below the minimum importance."""
    decays = Decays(request.resources.store, request.scope.tenant)
    retrieved = await search(request, MEMORIES, visible(request), request.limit + SPARE_MEMORIES, decays, partners=True)
    least, found = await _least_importance(request, decays), list[Candidate]()
    for hit in retrieved.hits:
        if _is_query(hit.doc, request):
            continue
        exempt = least == 0 or standing(hit.doc) is not None
        if not exempt and await decays.importance(hit.doc, to_ms(request.now)) < least:
            request.hidden.append(hit.doc["memory_id"])
            continue
        found.append(_memory_item(hit, retrieved.weights, request))
    return found


def visible(request: SourceRequest) -> Filter:
    """Returns the filter for memories that are active, valid and trusted enough at the request's time."""
    body = request.body
    search_request = SearchRequest(
        query=body.query,
        agent_id=body.agent_id,
        user_id=body.user_id,
        min_trust=body.min_trust,
        as_of=body.as_of,
        now=body.now,
    )
    return both(search_filter(search_request, rfc3339(request.now)), NO_SMALL_TALK)


async def _least_importance(request: SourceRequest, decays: Decays) -> float:
    """Returns the minimum importance of the request, or else of the agent."""
    given = request.body.min_importance
    return await decays.least_importance(request.body.agent_id) if given is None else given


def _is_query(doc: Doc, request: SourceRequest) -> bool:
    """Returns whether the memory is the query itself, as a message of this session."""
    in_session = request.body.session_id is not None and doc["source"]["session_id"] == request.body.session_id
    return in_session and content_hash(doc["content"]) == content_hash(request.body.query)


def _memory_item(hit: Hit, weights: Mapping[int, float], request: SourceRequest) -> Candidate:
    partner = hit.partner
    beside = None
    if partner is not None and not _is_query(partner, request):
        beside = memory_item(partner, passage(partner["content"], weights), hit.score * PARTNER_WORTH)
    return memory_item(hit.doc, passage(hit.doc["content"], weights), hit.score, beside)


def memory_item(doc: Doc, text: str, score: float | None, partner: Candidate | None = None) -> Candidate:
    """Returns a memory as a candidate. `text`: its content, or a passage of it."""
    source, happened = doc["source"], str(doc["event_at"] or doc["created_at"])
    speaker = f"{source['speaker']}: " if source["speaker"] else ""
    status = status_of(doc)
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
        prefix=speaker if status is None else f"[{status}] {speaker}",
        same=frozenset((f"memory:{doc['memory_id']}", origin)),
        memory_id=doc["memory_id"],
        heading=Heading(f"{session}:{happened[:10]}" if spoken else happened[:10], happened[:10], conversation=spoken),
        place=(happened, seq or 0),
        partner=partner,
    )


MEMORIES_SOURCE = ContextSource("memories", "Memories", gather_memories, MOST_MEMORIES)


HOPS, MAX_NODES = 2, 100
"""`HOPS`: steps from an entity that the query names ("Where does Ada's boss live?" needs a boss, and where she lives).
`MAX_NODES`: maximum entities that a walk visits."""
MAX_CHARACTERS = 1_000
MAX_WORDS = 25
NAME_WORDS = 4
LINKED_SCORE = 0.05
"""Score of a fact that is linked with an entity that the query names."""

_EDGES = re.compile(r"^\W+|(?:['\u2019]s?)?\W*$")


async def gather_facts(request: SourceRequest) -> list[Candidate]:
    """Returns found and linked facts alternately, best first."""
    body = request.body
    view = View(body.as_of or rfc3339(request.now), body.known_at)
    trusted = None if body.min_trust is None else Range("trust", ge=body.min_trust)
    repository = FactRepository(request.resources.store, request.scope)
    pairs = request.scope.pairs(body.agent_id, body.user_id, include_shared=True)
    aliases = await AliasRepository(request.resources.store, request.scope).of_pairs(pairs, body.known_at)
    graph = Graph(repository, pairs, view, trusted, aliases)
    starts = names(body.query)
    if await _names_user(starts, body.user_id, repository, view):
        starts.append(USER)
    retrieved, walk = await asyncio.gather(
        search(request, FACTS, both(view.believed(), trusted), request.limit),
        graph.walk(starts, HOPS, max_nodes=MAX_NODES),
    )
    scores = {hit.doc["fact_id"]: hit.score for hit in retrieved.hits}
    found = list(_in_turn(retrieved.hits, _linked(walk)))
    request.facts += found
    return [_fact_item(fact, max(scores.get(fact["fact_id"], 0.0), _by_links(fact, walk))) for fact in found]


def names(query: str) -> list[str]:
    """Returns possible names of entities, normalised: each run of up to four words in the beginning of the query."""
    words = [_EDGES.sub("", word) for word in normalise_content(query[:MAX_CHARACTERS]).split()[:MAX_WORDS]]
    runs = (words[at : at + size] for size in range(1, NAME_WORDS + 1) for at in range(len(words) - size + 1))
    return list(dict.fromkeys(" ".join(run) for run in runs if all(run)))


async def _names_user(starts: Sequence[str], user_id: str | None, facts: FactRepository, view: View) -> bool:
    """Returns whether a query names the user: by id, by a word such as "my", by name, or by the first word of it."""
    if user_id is None:
        return False
    if key_of(user_id) in starts or any(word in table("first_other") for word in starts):
        return True
    stated = (await facts.of_profiles([user_id], view))[user_id].get("name")
    name = "" if stated is None else key_of(stated["object"])
    return name in starts or name.split(" ")[0] in starts


def _linked(walk: Walk) -> list[Doc]:
    """Returns the facts nearest to each named entity, in turn, so that no entity displaces the others."""
    named: dict[str, str] = {}  # for each entity, the named entity from which the walk reached it
    links: dict[str, list[Doc]] = {}
    for _, fact in walk.edges.values():
        ends = [fact["subject_key"], fact["object_key"]]
        begun = [end for end in ends if end in named or end not in walk.nodes]
        start = named.get(begun[0], begun[0])
        named |= {end: start for end in ends if end not in named}
        links.setdefault(start, []).append(fact)
    return [fact for row in zip_longest(*links.values()) for fact in row if fact is not None]


def _by_links(fact: Doc, walk: Walk) -> float:
    """Returns the score of a fact for its link with an entity of the query, whatever its words are."""
    return LINKED_SCORE if any(one["fact_id"] == fact["fact_id"] for _, one in walk.edges.values()) else 0.0


def _in_turn(hits: Sequence[Hit], linked: Sequence[Doc]) -> Iterable[Doc]:
    both_kinds = zip_longest([hit.doc for hit in hits], linked)
    return {fact["fact_id"]: fact for pair in both_kinds for fact in pair if fact is not None}.values()


def _fact_item(fact: Doc, score: float) -> Candidate:
    text = sentence(fact)
    same = frozenset({f"text:{content_hash(text)}"})
    return Candidate(fact["fact_id"], "fact", f"{text}{_span(fact)}", score, same=same, place=(_begun(fact), 0))


def _begun(fact: Doc) -> str:
    return str(fact["valid_from"] or fact["known_from"])


def _span(fact: Doc) -> str:
    begun, ended = (fact[name] and str(fact[name])[:10] for name in ("valid_from", "valid_until"))
    if begun and ended:
        return f" ({begun} to {ended})"
    return f" (since {begun})" if begun else f" (until {ended})" if ended else ""


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
    """Returns actions up to the time of the request, best first."""
    until = Range("timestamp", le=request.body.as_of or rfc3339(request.now))
    return [_episode_item(hit) for hit in (await search(request, ACTIONS, until, request.limit)).hits]


def _episode_item(hit: Hit) -> Candidate:
    doc, feedback = hit.doc, hit.doc["feedback"]
    same = frozenset({f"text:{content_hash(doc['content'])}"})
    known = ", ".join([*([doc["outcome"]] if doc["outcome"] else []), *_judged(feedback)])
    prefix = f"{str(doc['timestamp'])[:10]} {doc['action_type']}{f' ({known})' if known else ''}: "
    correction = _episode_line(feedback.get("correction") or "")
    text = f"{_episode_line(doc['content'])}\ncorrection: {correction}" if correction else doc["content"]
    return Candidate(doc["action_id"], "action", text, hit.score, prefix, same)


def _episode_line(text: str) -> str:
    """Returns the text on one line, so that no text can pass for a correction."""
    return " ".join(text.split())


def _judged(feedback: Doc) -> list[str]:
    """Returns the user's feedback in words: `rated 2 of 5`, `not helpful`."""
    rating, helpful = feedback.get("user_rating"), feedback.get("was_helpful")
    said = [] if helpful is None else ["helpful" if helpful else "not helpful"]
    return said if rating is None else [f"rated {rating} of 5", *said]


EPISODES = ContextSource("episodes", "Past actions", gather_episodes, default_limit=20)
