"""Context sources that are searched by the query: memories, facts, procedures, episodes."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from app.actions.schemas import ACTIONS, ActionRecord
from app.context.passages import FULLY_READ_CHARACTERS, LONGEST_PASSAGE, best_passage
from app.context.rendering import one_line
from app.context.source import (
    DOCUMENT_PART,
    SMALL_RECORDS,
    Candidate,
    ContextSource,
    Heading,
    JudgedStatement,
    LeftOut,
    SourceRequest,
    SourceResult,
    min_score_of,
    same_content,
    same_memory,
    same_message,
    same_text,
    same_words_as,
    search,
    visible,
)
from app.context.sources.chains import IsNamed, chains_from, fact_item, lines_of
from app.core import prompt_text
from app.core.clock import to_ms
from app.core.language import sentences, words
from app.core.work import in_parts, off_loop
from app.facts.aliases import AliasMap, AliasRepository
from app.facts.graph import Graph
from app.facts.outdated import Utterance, present_first
from app.facts.profile import USERS, Interaction
from app.facts.repository import FactRepository
from app.facts.schemas import FACTS, USER, key_of
from app.findings.replacing import later_first, replaced
from app.memories.agents import Decays
from app.memories.repository import is_rule, speaker_of, told_at
from app.memories.schemas import MEMORIES, MemoryRecord
from app.procedures import service as procedures
from app.procedures.schemas import PROCEDURES
from app.profiles.agents import likely_helps, overlaps
from app.profiles.users import recorded_interactions, status_of
from app.retrieval.retriever import Hit
from app.storage.repository import Repository
from app.storage.schema import Range, both
from app.storage.text import content_hash, is_question, terms, text_ids

MOST_MEMORIES = 100
SPARE_MEMORIES = 24
"""Added to the limit, because some items repeat items of other sections."""
PARTNER_WORTH = 0.5
"""Score of what a hit brings along (its partner, a memory with its text, a related one), as a share of its own."""
ASSISTANT, QUESTION, SCRAP = 0.5, 0.3, 0.5
"""What a line of the assistant counts, a question, and a scrap such as "No, it's 14:30.": measured on prompts of a
fortnight, of the entries that were needed or useful hardly any was one of these."""
SCRAP_TOKENS, SCRAP_CHARACTERS = 16, 90
"""A scrap has fewer tokens, and at most so many characters."""
QUESTION_END, SHOWN_QUESTION = 500, 120
"""Characters at the end of a message in which its last sentence ends, and of a question beside its answer."""
LEAST_REPEATED = 12
"""Characters of the shortest message that repeats one with its words. "I do." means something else each time."""
DATE_CHARACTERS: Mapping[str | None, int] = {"day": 10, "month": 7, "year": 4}
"""Characters of an `event_at` that is no moment: a day is the same one in each zone."""


async def gather_memories(request: SourceRequest) -> SourceResult:
    """Returns memories, best first, each with its partner: the question before an answer, the answer to a question.
    Those below the minimum importance are left out, unless they are rules."""
    decays = Decays(request.resources.store, request.scope.tenant)
    where, keep = visible(request)
    retrieved = await search(request, MEMORIES, where, request.limit + SPARE_MEMORIES, decays, keep=keep, partners=True)
    hits: Sequence[Hit[MemoryRecord]] = retrieved.hits
    memories = [memory for hit in hits for memory in (hit.doc, hit.partner) if memory is not None]
    store, scope, viewpoint = request.resources.store, request.scope, request.viewpoint
    statements = await replaced(store, scope, viewpoint, memories)
    # "I now live in Bergen" goes before "I live in Oslo": by the facts learned from them, then by links of findings
    if request.interval is None:  # who names a time is answered by what held then
        hits = await present_first(store, scope, viewpoint, hits)
        hits = later_first(hits, statements) if statements else hits
    # parts of documents need a score of .005 (`min_score_of`), and so do memories of a large store. Of up to 60 all are
    # kept, because the prompt may get all of them: `plan_of` says so later, when the other sources have answered
    min_score, query_evidence = min_score_of(request.body), retrieved.evidence
    may_be_small = query_evidence is None or query_evidence.count <= SMALL_RECORDS
    least = request.body.min_importance
    if least is None:
        least = await decays.least_importance(request.body.agent_id)
    query_hash, now, left_out = content_hash(request.body.query), to_ms(request.now), list[LeftOut]()

    def is_query(memory: MemoryRecord) -> bool:
        """Returns whether the memory is the query itself, as a message of this session."""
        session_id = request.body.session_id
        in_session = session_id is not None and memory["source"]["session_id"] == session_id
        return in_session and memory["content_hash"] == query_hash

    async def keeps_if_important(memory: MemoryRecord, score: float) -> bool:
        """Returns whether a memory is important enough, and notes as left out one that is not."""
        if least == 0 or is_rule(memory) or await decays.importance(memory, now) >= least:
            return True
        left_out.append(LeftOut(memory, score, "importance"))
        return False

    # of 124 hits some 25 remain: without the query itself, scores below the minimum and what has lost its importance
    kept, below = list[Hit[MemoryRecord]](), list[Hit[MemoryRecord]]()  # `below`: what may be related to a kept one
    for hit in hits:
        if is_query(hit.doc):
            continue
        if hit.score < min_score and not (may_be_small and hit.doc["memory_type"] != DOCUMENT_PART):
            found = (hit.doc, hit.partner, *hit.others)
            left_out += [LeftOut(memory, hit.score, "score") for memory in found if memory is not None]
            below.append(hit)
            continue
        # of memories with one text the first that is important enough stands for all
        equal = [memory for memory in (hit.doc, *hit.others) if await keeps_if_important(memory, hit.score)]
        if not equal:
            continue
        partner, worth = hit.partner, hit.score * PARTNER_WORTH
        if partner is not None and (is_query(partner) or not await keeps_if_important(partner, worth)):
            partner = None
        kept.append(hit._replace(doc=equal[0], partner=partner, others=equal[1:]))
    kept = newest_first_of_equal(kept)
    if request.body.min_score is None:  # who names a least score wants nothing below it, related or not
        # a hit of a small store stands in `kept`, in case the store is given whole, and so does "I cancelled the gym"
        # of .0075, which packing counts half. They may be related as well: of the two one is packed
        below += [hit for hit in kept if hit.score * _factor_of(hit.doc, hit.doc["content"]) < min_score]
        for place, other in related(kept, below):
            if await keeps_if_important(other.doc, other.score):
                score = max(min_score, kept[place].score * PARTNER_WORTH)
                kept.insert(place + 1, other._replace(score=score, partner=None, others=()))
    # of a long memory the passage that answers: {"mem_1": "… The fern needs water twice a week. …"}
    shown_texts = await _shown_texts(kept, retrieved.word_weights, request.budget)
    kept = within_half(kept, shown_texts, request.budget)
    return SourceResult(
        [item for hit in kept for item in _memory_items(hit, shown_texts, request)],
        warnings=retrieved.warnings,
        judged=[JudgedStatement.of_replaced(statement) for statement in statements],
        query_evidence=query_evidence,
        left_out=left_out,
    )


RELATED, LEAST_RELATED, IN_COMMON = 5, 0.002, 0.25
"""So many statements get a related one, of at least this score and with this share of the shorter one's words."""


def related(
    hits: Sequence[Hit[MemoryRecord]], below: Sequence[Hit[MemoryRecord]]
) -> list[tuple[int, Hit[MemoryRecord]]]:
    """Returns (place, hit), the last place first, so that one may be put behind each place: of each of the first
    statements of a person, the one of another session with most words in common, of those `below` the minimum score.

    Asked "Who turns the beans?", "Dodong will turn the boxes" is found by its words, and "Dodong left for Saudi, his
    boxes are mine" is not: what changed is often told without the words that ask for it.
    """
    others = [(said, hit) for hit in below if hit.score >= LEAST_RELATED and (said := _words_stated(hit))]
    left_out = {id(hit) for hit in below}
    shown = ((place, hit) for place, hit in enumerate(hits) if id(hit) not in left_out)
    statements = [(place, said) for place, hit in shown if (said := _words_stated(hit))][:RELATED]
    found = list[tuple[int, Hit[MemoryRecord]]]()
    for place, own in statements:
        session = hits[place].doc["source"]["session_id"]
        alike = [
            (in_common, other.score, at)
            for at, (words_of_other, other) in enumerate(others)
            if (in_common := len(own & words_of_other)) > 1
            and in_common >= IN_COMMON * min(len(own), len(words_of_other))
            and (session is None or session != other.doc["source"]["session_id"])
        ]
        if alike:
            *_, nearest = max(alike)
            found.insert(0, (place, others.pop(nearest)[1]))
    return found


def _words_stated(hit: Hit[MemoryRecord]) -> frozenset[int]:
    """Returns the words of a person's statement; none of a question, of an assistant's line, and of a long text, which
    says many things."""

    def read(memory: MemoryRecord) -> frozenset[int]:
        text = memory["content"]
        no_statement = (
            len(text) > FULLY_READ_CHARACTERS
            or memory["source"].get("role") == "assistant"
            or is_question(text[-QUESTION_END:])
        )
        return frozenset() if no_statement else frozenset(text_ids(text).tolist())

    stated: frozenset[int] = hit.memo.once("words stated", read, hit.doc)
    return stated


def newest_first_of_equal(hits: Sequence[Hit[MemoryRecord]]) -> list[Hit[MemoryRecord]]:
    """Returns the hits, where of memories with one text of one speaker the newest has the best score and place, with
    the others behind it: one of them at most is packed. What happened (`event_at`) may have happened twice; of a
    message, `event_at` is when it was said."""
    ordered, equal = list(hits), dict[tuple[object, ...], list[int]]()
    hits_with = Counter(hit.doc["content_hash"] for hit in hits)
    for index, hit in enumerate(hits):
        memory = hit.doc
        if hits_with[memory["content_hash"]] == 1:
            continue
        if memory["event_at"] is None or speaker_of(memory["source"]) is not None:
            said_by = Utterance.in_memory(memory).by
            equal.setdefault((memory["content_hash"], memory["context"], said_by), []).append(index)
    repeated = set[int]()
    for best, *others in equal.values():
        if others:
            same = sorted((hits[at] for at in (best, *others)), key=lambda hit: told_at(hit.doc), reverse=True)
            docs = [memory for hit in same[1:] for memory in (hit.doc, *hit.others)]
            ordered[best] = same[0]._replace(score=hits[best].score, others=[*same[0].others, *docs])
            repeated.update(others)
    return [hit for at, hit in enumerate(ordered) if at not in repeated]


def within_half(
    hits: Sequence[Hit[MemoryRecord]], shown_texts: Mapping[str, str], budget: int
) -> list[Hit[MemoryRecord]]:
    """Returns the hits without the parts of a document that have no room in half of the budget: a manual of 2,000 parts
    has something near to every question."""
    left, kept = defaultdict[str, float](lambda: budget / 2), list[Hit[MemoryRecord]]()
    for hit in hits:
        document_place = hit.doc["source"].get("document")
        if document_place is not None:
            # any number of up to three digits stands for the citation: each is one token
            line = f"- [12] {shown_texts[hit.doc['memory_id']]} ({hit.doc['context']})"
            left[document_place["document_id"]] -= prompt_text.count(line)
        if document_place is None or left[document_place["document_id"]] >= 0:
            kept.append(hit)
    return kept


async def _shown_texts(hits: Sequence[Hit[MemoryRecord]], weights: Mapping[int, float], budget: int) -> dict[str, str]:
    """Returns what is shown of the content of each hit and partner, by id. Beside the event loop, if it is much.

    As many long texts are searched for their best passage as have room in the budget, best first. The others show their
    beginning: 130 messages of 32,000 characters are 4 MB, and 4,000 tokens have room for 33 passages.
    """
    memories = (memory for hit in hits for memory in (hit.doc, hit.partner, *hit.others) if memory is not None)
    texts = {memory["memory_id"]: _content(memory) for memory in memories}
    left, work = budget // LONGEST_PASSAGE + 1, list[tuple[str, Mapping[int, float]]]()
    for text in texts.values():
        is_long = len(text) > FULLY_READ_CHARACTERS
        work.append((text, {} if is_long and left <= 0 else weights))
        left -= is_long
    shown_texts = await in_parts(
        work,
        lambda pair: best_passage(*pair),
        lambda pair: len(pair[0]) if pair[1] else min(len(pair[0]), FULLY_READ_CHARACTERS),
    )
    return dict(zip(texts, shown_texts, strict=True))


def _content(memory: MemoryRecord) -> str:
    """Returns the content of a memory, that of a solution as "problem → fix" unless the content was changed since."""
    content = memory["content"]
    if memory["memory_type"] != "solution":
        return content
    problem, fix = (memory["metadata"].get(name) for name in ("problem", "fix"))
    return f"{problem} → {fix}" if content == f"{problem}\n{fix}" else content


def _memory_items(hit: Hit[MemoryRecord], shown_texts: Mapping[str, str], request: SourceRequest) -> list[Candidate]:
    """Returns the hit, its partner, which may be packed as well, and the memories that say the same as the hit: of the
    hit and these one at most is packed."""

    def item_of(memory: MemoryRecord, score: float) -> Candidate:
        return memory_item(memory, shown_texts[memory["memory_id"]], score, request)

    partner = None if hit.partner is None else item_of(hit.partner, hit.score * PARTNER_WORTH)
    item = item_of(hit.doc, hit.score)
    if partner is not None and partner.place < item.place and partner.prefix != item.prefix and _is_scrap(item.text):
        # `user, asked "How far away is it?": Four metres.`, and the question, which another asked (the prefix names who
        # speaks), does not stand behind it once more
        asked = one_line(sentences(partner.text[-QUESTION_END:])[-1], SHOWN_QUESTION)
        item = replace(item, prefix=f'{item.prefix.removesuffix(": ")}, asked "{asked}": ', says=partner.keys)
    equal = [item_of(memory, hit.score * PARTNER_WORTH) for memory in hit.others]
    if equal:
        item, *equal = (replace(one, keys=one.keys | {same_words_as(item.id)}) for one in (item, *equal))
    return [item, *([] if partner is None else [partner]), *equal]


def memory_item(memory: MemoryRecord, text: str, score: float | None, request: SourceRequest) -> Candidate:
    """Returns a memory as a candidate. `text`: its content, or a passage of it."""
    source, happened = memory["source"], memory["event_at"] or memory.get("due_at") or told_at(memory)
    shown_speaker = speaker_of(source)  # 'user "Ann"', where `utterance.by` is "ann"
    speaker = f"{shown_speaker}: " if shown_speaker else ""
    status = status_of(memory)
    issue = "" if status is None else f"issue ({status}): "
    condition = f" ({memory['context']})" if memory["context"] else ""  # "Answer briefly. (at work)"
    session, seq = source["session_id"], source["message_seq"]
    precision = memory.get("event_at_precision")  # "month": 2026-05
    day = happened[: DATE_CHARACTERS[precision]] if precision in DATE_CHARACTERS else request.day(happened)
    utterance, keys = Utterance.in_memory(memory), {same_memory(memory["memory_id"])}
    # not spoken: `text:<hash>`, an event `text:<hash>:2026-05-08`; spoken: `message:<session>:<seq>` and, from 12
    # characters on, `text:<hash>` of the user or `text:<hash>:ann` of another (`:assistant` of the assistant)
    spoken = session is not None and seq is not None and source["speaker"] is not None
    if spoken:
        keys.add(same_message(session or "", seq or 0))
        if len(memory["content"]) >= LEAST_REPEATED:
            by = "" if utterance.by == USER else utterance.by or shown_speaker or ""
            keys.add(same_content(memory["content_hash"], by))
    else:
        keys.add(same_content(memory["content_hash"], day if memory["event_at"] else ""))
    return Candidate(
        memory["memory_id"],
        memory["memory_type"],
        f"{text}{condition}",
        score,
        prefix=f"{issue}{speaker}",
        keys=frozenset(keys),
        factor=_factor_of(memory, text),
        derived=source["origin"] in ("extraction", "consolidation"),
        memory_id=memory["memory_id"],
        heading=Heading(f"{session}:{day}" if spoken else day, day, conversation=spoken),
        place=(happened, seq or 0),
        utterance=utterance,
    )


def _factor_of(memory: MemoryRecord, text: str) -> float:
    """Returns what a message counts for its kind. `text`: what is shown of it."""
    if memory["source"]["speaker"] is None:  # not spoken
        return 1.0
    factor = ASSISTANT if memory["source"].get("role") == "assistant" else 1.0
    if is_question(memory["content"][-QUESTION_END:]):
        factor *= QUESTION
    return factor * SCRAP if _is_scrap(text) else factor


def _is_scrap(text: str) -> bool:
    # to count the tokens of all that was found takes milliseconds
    return len(text) <= SCRAP_CHARACTERS and prompt_text.count(text) < SCRAP_TOKENS


MEMORIES_SOURCE = ContextSource(
    "memories", "Memories", gather_memories, MOST_MEMORIES, gets_marks=True, boosts={"recall": 1.25}
)


SCORED_FACTS = 100
"""Number of facts that the search scores, more than are shown: chains weigh facts by their scores."""
READ_FOR_NAMES = 1_000
"""Maximum characters of a query that are read for names of entities."""


async def gather_facts(request: SourceRequest) -> SourceResult:
    """Returns facts and chains of facts, best first. A fact that a chain has does not stand by itself."""
    body, store = request.body, request.resources.store
    trusted = None if body.min_trust is None else Range("trust", ge=body.min_trust)
    retrieved = await search(
        request, FACTS, both(request.facts_view.believed(), trusted), max(request.limit, SCORED_FACTS)
    )
    if not retrieved.hits:
        return SourceResult(warnings=retrieved.warnings, query_evidence=retrieved.evidence)
    aliases = await AliasRepository(store, request.scope).of_partitions(request.partitions, body.known_at)
    scores = {hit.doc["fact_id"]: hit.score for hit in retrieved.hits}
    facts = [aliases.resolved(hit.doc) for hit in retrieved.hits]
    # fewer hits than were asked for are all facts of the view, if none stands for others: the chains read no more.
    # Only with words and vectors (hybrid): by words alone a fact without a word of the query is no hit
    all_facts = None
    if (
        retrieved.mode_used == "hybrid"
        and len(retrieved.hits) < max(request.limit, SCORED_FACTS)
        and all(hit.repeated is None for hit in retrieved.hits)
    ):
        all_facts = [hit.doc for hit in retrieved.hits]
    reader = FactRepository(store, request.scope)
    graph = Graph(reader, request.partitions, request.facts_view, trusted, aliases, all_facts)
    seconds = request.resources.tuning.section_seconds / 4
    lines = lines_of(await chains_from(facts, scores, graph, _named_in(request, aliases), seconds), scores)
    chained = [fact for line in lines for fact in line.facts]
    chained_ids = {fact["fact_id"] for fact in chained}
    alone = [fact for fact in facts[: request.limit] if fact["fact_id"] not in chained_ids]
    items = [fact_item([fact], scores[fact["fact_id"]], request.zone) for fact in alone]
    items += [fact_item(line.facts, line.score, request.zone) for line in lines]
    return SourceResult(
        sorted(items, key=lambda item: -(item.score or 0.0)),
        warnings=retrieved.warnings,
        facts=[*alone, *chained],
        query_evidence=retrieved.evidence,
    )


def _named_in(request: SourceRequest, aliases: AliasMap) -> IsNamed:
    """Returns what says whether the query names an entity by half of the words of one of its names, or it is the
    user."""
    query_terms = set(terms(request.body.query[:READ_FOR_NAMES]))
    user = {USER, key_of(request.body.user_id or USER)}

    @cache
    def named(key: str) -> bool:
        names = aliases.keys(key)
        if not user.isdisjoint(names):
            return True
        terms_of_names = (set(terms(name)) for name in names)
        return any(2 * len(query_terms & of_name) >= len(of_name) > 0 for of_name in terms_of_names)

    return named


FACTS_SOURCE = ContextSource("facts", "Facts", gather_facts, default_limit=40, boosts={"recall": 1.25})


SPARE_PROCEDURES = 2
"""Factor of the limit. More items are returned because some repeat items of other sections."""
SHOWN_NOTES = 3
"""Number of notes that are shown, the latest ones."""


async def gather_procedures(request: SourceRequest) -> SourceResult:
    """Returns procedures, best first."""
    where = procedures.procedure_filter(min_trust=request.body.min_trust, until=request.body.as_of)
    k = max(procedures.LEAST_CANDIDATES, SPARE_PROCEDURES * request.limit)
    retrieved = await search(request, PROCEDURES, where, k)
    best = procedures.ranked_procedures(retrieved.hits, request.now)[: SPARE_PROCEDURES * request.limit]
    items = [_procedure_item(procedure) for procedure in best]
    return SourceResult(items, warnings=retrieved.warnings, query_evidence=retrieved.evidence)


def _procedure_item(procedure_hit: procedures.ProcedureHit) -> Candidate:
    """Returns the procedure as lines with labels.

    Each part is one line, so that none passes for another step or record.
    """
    procedure, record = procedures.as_served(procedure_hit.hit.doc), procedure_hit.track_record
    tried = procedures.record_sentence(procedure["success_count"], procedure["failure_count"], record)
    lines = [one_line(procedure["name"]), f"when: {one_line(procedure['trigger'])}"]
    lines += [f"needs: {one_line(need)}" for need in procedure["preconditions"]]
    lines += [f"{number}. {one_line(step)}" for number, step in enumerate(procedure["steps"], 1)]
    lines.append(f"record: {tried}{f', unused for {int(record.idle_days)} days' if record.stale else ''}")
    trial = procedure.get("trial")
    if trial is not None and procedures.served(trial) == "revised":  # old and revised steps take turns
        lines.append(f"trial: these steps are new, {procedures.trial_sentence(trial)}")
    lines += [f"note: {one_line(note)}" for note in procedure["notes"][-SHOWN_NOTES:]]
    keys = frozenset({same_text(" ".join([procedure["name"], *procedure["steps"]]))})
    return Candidate(procedure["procedure_id"], "procedure", "\n".join(lines), procedure_hit.score, keys=keys)


PROCEDURES_SOURCE = ContextSource(
    "procedures", "Procedures", gather_procedures, default_limit=5, boosts={"execute": 1.5}
)


async def gather_episodes(request: SourceRequest) -> SourceResult:
    """Returns actions of the agent, and its interactions with the user that share words with the query, up to `as_of`,
    best first."""
    until = Range("timestamp", le=request.as_of)
    retrieved, recorded = await asyncio.gather(search(request, ACTIONS, until, request.limit), interactions(request))
    texts = [item.text for item in recorded]
    overlapping = await off_loop(sum(map(len, texts)), overlaps, request.body.query, texts)
    sharing = [  # scored as lessons are
        replace(item, score=likely_helps(overlap.share))
        for item, overlap in zip(recorded, overlapping, strict=True)
        if overlap.share
    ]
    sharing.sort(key=lambda item: -(item.score or 0.0))
    items = [*(_episode_item(hit, request) for hit in retrieved.hits), *sharing[: request.limit]]
    items.sort(key=lambda item: -(item.score or 0.0))
    return SourceResult(items, warnings=retrieved.warnings, query_evidence=retrieved.evidence)


def _episode_item(hit: Hit[ActionRecord], request: SourceRequest) -> Candidate:
    """Returns an action such as "2026-05-01 refund (success, rated 2 of 5, not helpful): Refunded the parcel", with the
    user's correction behind it."""
    action, feedback = hit.doc, hit.doc["feedback"]
    judged: list[str] = [action["outcome"]] if action["outcome"] else []
    if (rating := feedback.get("user_rating")) is not None:
        judged.append(f"rated {rating} of 5")
    if (helpful := feedback.get("was_helpful")) is not None:
        judged.append("helpful" if helpful else "not helpful")
    # a content that was made from the call, such as "refund payments.refund {…}", says the type itself
    kind = words(action["action_type"])
    says_kind = bool(kind) and words(action["content"][: 2 * len(action["action_type"])])[: len(kind)] == kind
    named = "" if says_kind else f" {action['action_type']}"
    judgement = f" ({', '.join(judged)})" if judged else ""
    prefix = f"{request.day(action['timestamp'])}{named}{judgement}: "
    content, correction = one_line(action["content"]), one_line(feedback.get("correction") or "")
    text = f"{content}\ncorrection: {correction}" if correction else content
    keys = frozenset({same_text(action["content"])})
    return Candidate(action["action_id"], "action", text, hit.score, prefix, keys)


async def interactions(request: SourceRequest) -> list[Candidate]:
    """Returns the user's interactions with the agent of the context, and those for all agents, up to `as_of`, newest
    first, without scores. What the user said to another agent is not told. Nobody knows their trust, so there are none
    for a request that demands some. The last ones are told at a session's start (`gather_summary`)."""
    body = request.body
    if body.user_id is None or body.min_trust is not None:
        return []
    user = await Repository(request.resources.store, request.scope, USERS).find_one(body.user_id)
    recorded = [] if user is None else await recorded_interactions(user, request.scope)
    happened = [
        interaction
        for interaction in recorded
        if interaction["agent_id"] in {None, body.agent_id} and interaction["timestamp"] <= request.as_of
    ]
    happened.sort(key=lambda interaction: interaction["timestamp"], reverse=True)
    return [_interaction_item(interaction, request.day(interaction["timestamp"])) for interaction in happened]


def _interaction_item(interaction: Interaction, day: str) -> Candidate:
    """Returns a candidate such as "2026-05-28 interaction: Asked about an invoice → answered"."""
    at, summary, outcome = interaction["timestamp"], interaction["summary"], interaction["outcome"]
    text = summary if outcome is None else f"{summary} → {outcome}"
    return Candidate(
        f"interaction:{content_hash(f'{at} {text}')}",
        "interaction",
        text,
        prefix=f"{day} interaction: ",
        keys=frozenset({same_text(text)}),
        utterance=Utterance(at, USER),
        place=(at, 0),
    )


EPISODES_SOURCE = ContextSource("episodes", "Past actions", gather_episodes, default_limit=20, boosts={"execute": 1.25})
