"""Extractors for a part of a conversation: statements, of which memories, facts and the user's profile are made, and
the agent's experience. What a tool gave back is nobody's word: no statement is learned from it."""

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypedDict, TypeVar

import orjson

from app.core.clock import new_id, rfc3339, to_ms
from app.core.schemas import Json
from app.core.served_text import strip_served
from app.core.work import off_loop
from app.facts.profile import EMPTY_PROFILE, UserProfile, field_of
from app.facts.repository import View
from app.facts.schemas import FACTS, USER, FactCreate
from app.findings.replacing import Links, carried_over, linked, links_of
from app.findings.schemas import Proposal
from app.findings.service import FindingRepository, new_finding, of_memory
from app.learning import checks, derivations, prompts
from app.learning.dependencies import NO_PRECONDITION, Tools
from app.learning.derivations import DerivationPlan, DerivationRecord, DerivationResult
from app.learning.extraction import Accepted, DroppedCounts, Replaced, Rules, is_user, profile_patch, summary_of
from app.learning.learning_run import SMALL_TALK_ONLY, ModelAnswer, PartRequest, Skipped, ask, looked_at
from app.learning.prompts import LearnedLesson, LearnedStatement, TranscriptLine, data
from app.llm.base import LLM, Budget
from app.memories.agents import AGENTS, AgentRecord
from app.memories.create import MemoryPlan, MemoryPlanner
from app.memories.repository import SOURCE, Embeddings, MemoryRepository, is_rule
from app.memories.schemas import (
    KEPT_AS_IS,
    MEMORIES,
    STATEMENTS,
    MemoryCreated,
    MemoryRecord,
    Source,
    StatementRecord,
)
from app.profiles.agents import LESSONS, merge_experience
from app.retrieval.retriever import RetrievalRequest, Retriever
from app.sessions.repository import SessionRepository, SessionSummaries, SummaryText, expected
from app.sessions.schemas import MESSAGES, SESSIONS, MessageRecord, SessionRecord
from app.storage.changes import Change, CommitConflict, Insert, Update
from app.storage.repository import Repository, pages, unexpired
from app.storage.schema import Collection, Eq, In, Not, OwnedRecord, both
from app.storage.scope import Partition, Scope

T = TypeVar("T")

KNOWN_MEMORIES = 10
REPLACED_REASON = "What was learned later replaces a part of it."
QUERY_CHARS = 2_000
PAGE = 500
"""The number of messages that one query reads."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A part of a conversation with its owners. `message_memories` has the memories made of messages, by their
    numbers."""

    scope: Scope
    agent_id: str | None
    user_id: str | None
    lines: Sequence[TranscriptLine]
    message_memories: Mapping[int, MemoryRecord] = field(default_factory=dict)
    session: SessionRecord | None = None
    metadata: Json = field(default_factory=dict)
    """Of each memory that is made of it."""

    @property
    def prompt(self) -> str:
        """The prompt that comes first: `prompts/conversation.md`."""
        return "conversation"

    @property
    def owner(self) -> OwnedRecord:
        """The agent and user of the conversation, as fields."""
        return {"agent_id": self.agent_id, "user_id": self.user_id}

    @property
    def size(self) -> int:
        return len(self.lines)

    def derivation_id(self, extractor: str, prompt_id: str) -> str:
        """Returns an id that is the same for the same messages of the session, extractor and prompt."""
        assert self.session is not None
        of = (extractor, prompt_id, self.session["session_id"], self.session["created_at"])
        return derivations.id_of([line.shown() for line in self.lines], *of)

    @property
    def record(self) -> tuple[Collection, str]:
        assert self.session is not None
        return SESSIONS, self.session["session_id"]

    def described(self) -> DerivationRecord:
        """Returns owner, session and message numbers, as fields of a derivation."""
        assert self.session is not None
        return {
            "agent_id": self.agent_id,
            "user_id": self.user_id,
            "session_id": self.session["session_id"],
            "from_seq": self.lines[0].seq,
            "to_seq": self.lines[-1].seq,
        }

    def unchanged(self) -> list[Change]:
        """Returns a change that conflicts if a message was edited or deleted since the session was read."""
        assert self.session is not None
        same = {"created_at": self.session.get("created_at"), "revised": self.session.get("revised")}
        return [Update(SESSIONS, self.scope.tenant, self.session["session_id"], expect=same)]

    def data(self, known: Json) -> str:
        """Returns the messages without small talk, and further data, as JSON for the model."""
        return data(prompts.heard(self.lines), **known)


def source(talk: Conversation, prompt: str, model: str) -> Source:
    """Returns the source fields of records that are learned from a conversation. `prompt`: its name."""
    session_id = None if talk.session is None else talk.session["session_id"]
    return {"origin": "extraction", "session_id": session_id, "model": model, "prompt_version": prompts.load(prompt).id}


@dataclass(frozen=True, slots=True)
class StoredMemories:
    """What a plan of memories does: a result for the report, the memories as callers see them, and the changes."""

    result: DerivationResult
    items: list[MemoryCreated]
    changes: list[Change]


class StatementsContext(NamedTuple):
    """What a request for statements was made with: the names of the user, the ids of the known memories, and which of
    these the session itself has led to."""

    names: Sequence[str]
    memory_ids: Sequence[str]
    own: Container[str]


@dataclass(frozen=True, slots=True)
class StatementExtractor:
    """Learns statements, and makes of them what `names` says: memories, values of the profile, facts, the summary."""

    names: Sequence[str] = ("memories", "profile", "facts")
    prompt = "statements"
    shape = prompts.Statements

    async def request(self, tools: Tools, talk: Conversation) -> PartRequest:
        """Returns the user's name and profile, and known memories and facts near to what the user said, so that the
        model can supersede them and reuse names and predicates. A summary alone is made of all that was said."""
        profile = await _profile(tools, talk)
        names = _names_of_user(talk, profile)
        query, partitions = _query(talk), _own_partitions(talk)
        known, facts = list[MemoryRecord](), list[KnownFact]()
        if query and partitions and "memories" in self.names:
            now = tools.clock.now()
            kinds = (
                Not(Eq("memory_type", kind)) for kind in ("message", "summary", *KEPT_AS_IS)
            )  # only a summary replaces one
            where = both(Eq("status", "active"), *kinds, unexpired(rfc3339(now)))
            retriever = Retriever(tools.store, talk.scope, tools.embedder, MEMORIES)
            retrieved = await retriever.find(RetrievalRequest(query, partitions, where, to_ms(now), KNOWN_MEMORIES))
            known = [hit.doc for hit in retrieved.hits]
            facts = await known_facts(tools, talk.scope, query, partitions, names[0] if names else "user")
        shown: Json = {
            "user_name": names[0] if names else "user",
            "profile": {name: value for name, value in profile.items() if value},
            "known_memories": [{"memory_id": one["memory_id"], "content": one["content"]} for one in known],
            "known_facts": facts,
        }
        session_id = None if talk.session is None else talk.session["session_id"]
        own = {one["memory_id"] for one in known if session_id and one["source"].get("session_id") == session_id}
        context = StatementsContext(names, [memory["memory_id"] for memory in known], own)
        return PartRequest(shown, await _wishes(tools, talk), context)

    def may_be_stored(self, talk: Conversation, answer: ModelAnswer, item: LearnedStatement) -> bool:
        """Returns whether the checks of code let a statement pass."""
        of_user = is_user(item.subject, answer.request.context.names)
        return isinstance(checks.quoted(item, talk.lines, of_user=of_user), checks.Quote)

    async def ask(self, tools: Tools, talk: Conversation, llm: LLM, budget: Budget) -> ModelAnswer:
        """Asks the model for statements alone, and looks at them for a second time. Raises what the model's client
        raises."""
        request = await self.request(tools, talk)
        reply = await ask(talk, [(self, request)], llm, budget)
        answer = ModelAnswer(reply, request, llm.model)
        if tools.settings.llm.verify:
            ((_, answer),) = await looked_at(talk, [(self, answer)], llm, budget)
        return answer

    def plans(self, tools: Tools, talk: Conversation, answer: ModelAnswer) -> Mapping[str, DerivationPlan]:
        """Returns the plans that store what is made of the statements."""

        async def memories() -> tuple[DerivationResult, list[Change]]:
            planned = await self.memories(tools, talk, answer.model, [answer])()
            return planned.result, planned.changes

        async def facts() -> tuple[DerivationResult, list[Change]]:
            rules, statements = await accepted(tools, talk, [answer])
            known = (f"{fact['subject']} {fact['predicate']}" for fact in answer.request.known["known_facts"])
            rules.dropped.clear()  # what no statement was made of is counted once, by the memories
            pairs = await _by_rule(talk, rules.facts, statements, "\n".join(known))
            return await asserted(tools, talk.scope, pairs, rules.dropped, source(talk, self.prompt, answer.model))

        async def profile() -> tuple[DerivationResult, list[Change]]:
            if talk.user_id is None:
                raise Skipped("the conversation is nobody's")
            talk.scope.require_write(None, talk.user_id)
            rules, statements = await accepted(tools, talk, [answer])
            rules.dropped.clear()  # as for the facts
            patches = await _by_rule(talk, rules.profile, statements)
            result: DerivationResult = {"changed": [], "dropped": dict(rules.dropped), "quotes": []}
            if not patches:
                return result, []
            patch = profile_patch([patch for patch, _ in patches])
            changes = (await tools.users(talk.scope).patch_profile(talk.user_id, patch, NO_PRECONDITION)).changes
            if not changes:
                return result, []
            result["changed"] = sorted(patch.model_fields_set)
            result["quotes"] = [
                {"field": name, "value": value, "quote": quote.text}
                for patched, quote in patches
                for name, values in patched.items()
                for value in (values.values() if isinstance(values, dict) else values)
            ]
            return result, list(changes)

        async def summary() -> tuple[DerivationResult, list[Change]]:
            if talk.session is None:
                raise Skipped("there is no session")
            earlier = talk.session["summary"]
            if earlier and (talk.session.get("summary_seq") or 0) >= talk.lines[-1].seq:
                raise Skipped("the summary covers these messages")
            rules, statements = await accepted(tools, talk, [answer])
            known = {one["memory_id"]: one["content"] for one in answer.request.known["known_memories"]}
            # memories of this session do not say it yet: a job that stopped before the summary has stored them
            text = summary_of(earlier or "", statements, known, answer.request.context.own)
            written = replace(written_by(answer.model, talk, text), rolls=earlier is not None)
            return await summary_plan(tools, talk, written, {} if "memories" in self.names else rules.dropped)()

        plans = {"memories": memories, "profile": profile, "facts": facts, "summary": summary}
        return {name: plans[name] for name in self.names}

    def memories(
        self, tools: Tools, talk: Conversation, model: str, answers: Sequence[ModelAnswer]
    ) -> Callable[[], Awaitable[StoredMemories]]:
        """Returns the plan that stores the memories of all answers about a conversation."""
        repository = MemoryRepository(tools.store, talk.scope)
        origin = source(talk, self.prompt, model)

        async def plan() -> StoredMemories:
            current = await repository.get_many(
                [memory_id for answer in answers for memory_id in answer.request.context.memory_ids]
            )
            active = {
                memory_id: memory
                for memory_id, memory in current.items()
                if memory["status"] == "active" and (talk.scope.rules or not is_rule(memory))
            }
            rules, statements = await accepted(tools, talk, answers)
            pairs = await _by_rule(talk, rules.memories, statements, active)
            pairs = [(body.model_copy(update={"metadata": talk.metadata}), more) for body, more in pairs]
            if not talk.scope.rules:  # a model appended the conversation: it could have made up who said what
                preference = {"memory_type": "preference"}
                pairs = [
                    (body.model_copy(update=preference) if body.memory_type == "instruction" else body, more)
                    for body, more in pairs
                ]
            planner = MemoryPlanner(repository, Embeddings(tools.embedder), tools.clock.now(), NO_PRECONDITION)
            sources: list[Source] = [{**origin, **more} for _, more in pairs]
            planned = await planner.plan([body for body, _ in pairs], "", sources)
            whole = [
                Replaced(active[memory_id], {}, by)
                for by, (body, _) in enumerate(pairs)
                for memory_id in body.supersedes
            ]
            replaced = [*whole, *rules.replaced.values()]
            now = rfc3339(tools.clock.now())
            made = {  # of what a message says twice, and what became one memory, one statement is kept
                (memory["memory_id"], one.quote.line.seq): _statement(talk, one, memory["memory_id"], now)
                for one, memory in zip(statements, planned.answers, strict=True)
            }
            links = await _links(repository, replaced, planned, sources, now)
            disputed = [memory["status"] == "disputed" for memory in planned.answers]
            result: DerivationResult = {
                "memory_ids": list(dict.fromkeys(memory["memory_id"] for memory in planned.answers)),
                "created": len(planned.created),
                "superseded": sum(
                    len(body.supersedes) for (body, _), apart in zip(pairs, disputed, strict=True) if not apart
                ),
                "disputed": sum(disputed),
                "dropped": dict(rules.dropped),
            }
            return StoredMemories(result, planned.answers, [*planned.changes, *links, *made.values()])

        return plan


# --- The summary of a session -----------------------------------------------------------------------------------------


def written_by(model: str, talk: Conversation, text: str) -> SummaryText:
    """Returns the model's text as a summary of the lines of `talk`."""
    origin, last = source(talk, StatementExtractor.prompt, model), talk.lines[-1]
    memories = talk.message_memories  # a message has the trust of the memory made of it, or else of its role
    trust = min(memories[line.seq]["trust"] if line.seq in memories else line.trust for line in talk.lines)
    return SummaryText(text, trust, origin, last.seq, last.at)


def summary_plan(
    tools: Tools, talk: Conversation, summary: SummaryText, dropped: Mapping[str, int] | None = None
) -> DerivationPlan:
    """Returns the plan that stores the summary of `talk`. It reads the session each time, and raises Skipped if the
    session or its messages are gone, or if a later summary exists."""
    sessions = SessionRepository(tools.store, talk.scope)
    begun = talk.session
    assert begun is not None
    summaries = SessionSummaries(MemoryRepository(tools.store, talk.scope), Embeddings(tools.embedder))

    async def plan() -> tuple[DerivationResult, list[Change]]:
        if not summary.text:
            raise Skipped("nothing changed")
        session = await sessions.find_one(begun["session_id"])
        if session is None or session["created_at"] != begun["created_at"]:
            raise Skipped("the session is gone")
        if session.get("revised") != begun.get("revised"):
            raise CommitConflict(SESSIONS.name, session["session_id"], "revised")  # the job runs again
        if (session.get("summary_seq") or 0) > (summary.seq or 0):
            raise Skipped("a later summary stands")
        last = None if summary.seq is None else sessions.within(session, summary.seq - 1, summary.seq + 1)
        if last is not None and not await sessions.messages.find(last, limit=1):
            raise Skipped("the messages are gone")
        now, old = rfc3339(tools.clock.now()), await summaries.stored(session)
        links = [] if old is None else carried_over(old, summary.text)
        fields, changes = await summaries.write(session, replace(summary, replaced_by=links), now)
        expect = {**expected(session), "version": session["version"]}  # clearing the messages bumps the version
        fields["updated_at"] = now
        update = Update(SESSIONS, talk.scope.tenant, session["session_id"], set=fields, expect=expect)
        result: DerivationResult = {"summary": summary.text}
        if dropped:
            result["dropped"] = dict(dropped)
        return result, [*changes, update]

    return plan


# --- Lessons ----------------------------------------------------------------------------------------------------------


class ExperienceExtractor:
    """Learns lessons of the agent, also from the tools that it called."""

    names = ("experience",)
    prompt = "experience"
    shape = prompts.LearnedExperience

    async def request(self, tools: Tools, talk: Conversation) -> PartRequest:
        """Returns known lessons and tool calls. What a tool gave back is shown to no other part.

        Raises Skipped if the agent is not registered, or if there is nothing but small talk.
        """
        agent = await registered_agent(tools, talk.scope, talk.agent_id)
        calls = await self._calls(tools, talk)
        if not calls and not prompts.heard(talk.lines):
            raise Skipped(SMALL_TALK_ONLY)
        known = {"experience": shown_lessons(agent), **({"tool_calls": calls} if calls else {})}
        return PartRequest(known, context=(agent, calls), apart=bool(calls))

    def may_be_stored(self, talk: Conversation, answer: ModelAnswer, item: LearnedLesson) -> bool:
        """Returns whether the checks of code let an item pass."""
        return isinstance(checks.quoted(item, self._quotable(talk, answer)), checks.Quote)

    def plans(self, tools: Tools, talk: Conversation, answer: ModelAnswer) -> Mapping[str, DerivationPlan]:
        """Returns the plan that adds lessons. A lesson may quote a message or a tool call."""
        agent, _ = answer.request.context
        origin: Source = {**SOURCE, **source(talk, self.prompt, answer.model)}

        async def plan() -> tuple[DerivationResult, list[Change]]:
            profile = await _profile(tools, talk)
            rules = _rules(talk, profile, looked=answer.looked)
            heard = replace(rules, lines=self._quotable(talk, answer))
            learned = await _by_rule(talk, heard.lessons, answer.reply.lessons, known_lessons(agent))
            # no lesson may contain one of these
            names = sorted({*rules.names, *([profile["home"]] if profile["home"] else [])})
            texts = new_lessons(learned)
            result, changes = await learned_experience(tools, talk.scope, agent["agent_id"], texts, origin, names)
            return {**result, "dropped": dict(rules.dropped)}, changes

        return {"experience": plan}

    def _quotable(self, talk: Conversation, answer: ModelAnswer) -> list[TranscriptLine]:
        """Returns the messages, and the tool calls as lines that a lesson may quote."""
        _, calls = answer.request.context
        texts = (" ".join(str(value) for value in call.values()) for call in calls)
        return [*talk.lines, *(TranscriptLine(0, "tool", None, "", text) for text in texts)]

    async def _calls(self, tools: Tools, talk: Conversation) -> "list[EpisodeCall]":
        """Returns the calls up to the last message of this part that no earlier part had."""
        if talk.session is None:
            return []
        sessions = SessionRepository(tools.store, talk.scope)
        where = sessions.within(talk.session, talk.session.get("learned_seq") or 0, talk.lines[-1].seq)
        roles = both(where, In("role", ("assistant", "tool")))
        messages = pages(partial(sessions.messages.find, roles), MESSAGES, PAGE)
        return of_messages([message async for page in messages for message in page])


def _statement(talk: Conversation, one: Accepted, memory_id: str, now: str) -> Insert[StatementRecord]:
    """Returns the change that keeps a statement beside the memory that is made of it."""
    given: StatementRecord = {
        "tenant_id": talk.scope.tenant,
        **talk.owner,
        "statement_id": new_id("stm"),
        "memory_id": memory_id,
        "learned_from": next(iter(one.source["memory_ids"]), None),
        "session_id": None if talk.session is None else talk.session["session_id"],
        "message_seq": one.quote.line.seq,
        "said_at": one.quote.line.at,
        "subject": one.statement.subject,
        "text": one.text,
        "quote": one.quote.text,
        "kind": one.statement.kind,
        "holds": one.statement.holds,
        "at": None if one.at is None else one.at.at,
        "until": None if one.until is None else one.until.last,
        "predicate": one.statement.predicate,
        "object": one.statement.object,
        "profile_field": one.statement.profile_field,
        "created_at": now,
    }
    return Insert(STATEMENTS, given)


JUDGED = 0.75
"""Confidence of a finding that a language model has judged."""


async def _links(
    memories: MemoryRepository, replaced: Iterable[Replaced], planned: MemoryPlan, sources: Sequence[Source], now: str
) -> list[Change]:
    """Returns the changes that mark what was replaced wherever it stands. Of a memory that says other things, too, a
    finding proposes the shortened text."""
    findings, changes, links = FindingRepository(memories.store, memories.scope), list[Change](), Links()
    changed = {change.id for change in planned.changes if isinstance(change, Update)}
    for old, clause, by in replaced:
        new, source = MEMORIES.as_record(planned.answers[by]), sources[by]
        if new["status"] != "active" or new["memory_id"] == old["memory_id"]:
            continue
        earlier, later, finding_id = of_memory(old), of_memory(new), ""
        if clause and old["memory_id"] not in changed:
            proposal: Proposal = {
                "action": "supersede",
                "keep": {"kind": "memory", "id": later.id},
                "retire": [{"kind": "memory", "id": earlier.id}],
                "details": {
                    "aspect": "statement",
                    "model": source["model"] or "",
                    "prompt_version": source["prompt_version"] or "",
                },
            }
            finding = new_finding(
                *(new["agent_id"], new["user_id"], "stale", REPLACED_REASON, [earlier, later]),
                *(proposal, JUDGED, now, {earlier.name: clause}),
            )
            if finding["evidence"][0]["id"] == earlier.id and not await findings.find_one(finding["finding_id"]):
                finding_id = finding["finding_id"]
                changes.append(findings.insert(finding))
        links += await links_of(memories, {**earlier.named(), **clause}, later.named(), finding_id, now)
    return [*changes, *linked(memories, [one for one in links if one[0]["memory_id"] not in changed], now)]


async def _by_rule(talk: Conversation, rule: Callable[..., list[T]], *args: Any) -> list[T]:
    """Runs a rule, in a thread if the conversation is long."""
    return await off_loop(sum(len(line.text) for line in talk.lines), rule, *args)


async def accepted(tools: Tools, talk: Conversation, answers: Sequence[ModelAnswer]) -> tuple[Rules, list[Accepted]]:
    """Returns the statements of answers about a conversation that may be stored, and the rules that say so."""
    rules = _rules(talk, await _profile(tools, talk), looked=all(answer.looked for answer in answers))
    statements = [statement for answer in answers for statement in answer.reply.statements]
    return rules, await _by_rule(talk, rules.accepted, statements)


def _rules(talk: Conversation, profile: UserProfile, *, looked: bool) -> Rules:
    names, profiled = _names_of_user(talk, profile), talk.scope.agents is None
    return Rules(talk.lines, talk.owner, talk.message_memories, names, profiled=profiled, looked=looked)


def _names_of_user(talk: Conversation, profile: UserProfile) -> list[str]:
    """Returns the names that the user goes by: in the profile, in the conversation, and the id."""
    spoke = [line.name for line in talk.lines if line.role == "user"]
    return list(dict.fromkeys(name for name in (profile["name"], *spoke, talk.user_id) if name))


def _query(talk: Conversation) -> str:
    """Returns the end of what the user said, as a query for related records."""
    return "\n".join(line.text for line in talk.lines if line.role == "user")[-QUERY_CHARS:].strip()


def _own_partitions(talk: Conversation) -> tuple[Partition, ...]:
    """Returns the partitions of the user, without those that the agent shares among all users."""
    partitions = talk.scope.partitions(talk.agent_id, talk.user_id, include_shared=True)
    return tuple(partition for partition in partitions if talk.user_id is None or partition.user == talk.user_id)


async def _profile(tools: Tools, talk: Conversation) -> UserProfile:
    user = None if talk.user_id is None else await tools.profiles(talk.scope).find(talk.user_id)
    return EMPTY_PROFILE if user is None else user.profile


async def _wishes(tools: Tools, talk: Conversation) -> str | None:
    """Returns the extraction instructions that the agent's owner has set, or None."""
    if talk.agent_id is None:
        return None
    agent = await Repository(tools.store, talk.scope, AGENTS).find_one(talk.agent_id)
    return None if agent is None else agent["settings"]["extraction_instructions"]


# --- Facts and lessons, of conversations and of episodes --------------------------------------------------------------

KNOWN_FACTS = 30


class KnownFact(TypedDict):
    """A fact as the model is shown it."""

    subject: str
    predicate: str
    object: str


async def known_facts(
    tools: Tools, scope: Scope, near: str, partitions: tuple[Partition, ...], user_name: str
) -> list[KnownFact]:
    """Returns facts of the partitions that are near to a text, so that the model reuses names and predicates. Those
    about the user have `user_name` as subject."""
    now = tools.clock.now()
    retriever = Retriever(tools.store, scope, tools.embedder, FACTS)
    retrieved = await retriever.find(
        RetrievalRequest(near, partitions, View(rfc3339(now), None).believed(), to_ms(now), KNOWN_FACTS)
    )
    return [
        {
            "subject": user_name if hit.doc["subject"] == USER else hit.doc["subject"],
            "predicate": hit.doc["predicate"],
            "object": hit.doc["object"],
        }
        for hit in retrieved.hits
        if field_of(hit.doc) != "name"
    ]


async def asserted(
    tools: Tools,
    scope: Scope,
    drawn: Sequence[tuple[FactCreate, Source]],
    dropped: DroppedCounts,
    source: Source,
) -> tuple[DerivationResult, list[Change]]:
    """Returns a result for the report and the changes that assert `drawn`: facts, each with further fields of its
    source."""
    if not drawn:
        return {"fact_ids": [], "dropped": dict(dropped)}, []
    service = tools.facts(scope)
    sources: list[Source] = [{**source, **more} for _, more in drawn]
    outcome = await service.assert_all([body for body, _ in drawn], NO_PRECONDITION, sources)
    fact_ids = list(dict.fromkeys(fact["fact_id"] for fact in outcome.body["items"]))
    return {"fact_ids": fact_ids, "dropped": dict(dropped)}, list(outcome.changes)


async def registered_agent(tools: Tools, scope: Scope, agent_id: str | None) -> AgentRecord:
    """Returns an agent that lessons can be learned for. Raises Skipped if it is not registered, and Forbidden if the
    scope may not write for all of its users."""
    agent = None if agent_id is None else await Repository(tools.store, scope, AGENTS).find_one(agent_id)
    if agent is None:
        raise Skipped("the agent is not registered")
    scope.require_write(agent["agent_id"], None)
    return agent


def known_lessons(agent: AgentRecord) -> dict[str, list[str]]:
    return {name: [lesson["text"] for lesson in agent["experience"][name]] for name in LESSONS}


def shown_lessons(agent: AgentRecord) -> dict[str, list[str]]:
    """Returns the lessons as the model sees them: without empty lists, which cost tokens and say nothing."""
    return {name: texts for name, texts in known_lessons(agent).items() if texts}


async def learned_experience(
    tools: Tools,
    scope: Scope,
    agent_id: str,
    learned: Mapping[str, Sequence[str]],
    source: Source,
    names: Sequence[str],
) -> tuple[DerivationResult, list[Change]]:
    """Returns a result for the report and the changes that add lessons (texts by list) to an agent's experience.
    Lessons that contain one of `names` are not learned."""
    agents = Repository(tools.store, scope, AGENTS)
    agent = await agents.find_one(agent_id)
    if agent is None:
        return {"learned": 0}, []
    old, now = agent["experience"], rfc3339(tools.clock.now())
    experience = merge_experience(old, learned, source, now, names)
    if experience == old:
        return {"learned": 0}, []
    grown = sum(len(experience[name]) - len(old[name]) for name in LESSONS)
    return {"learned": grown}, [agents.update(agent, {"experience": experience}, now=now)]


def new_lessons(lessons: Sequence[LearnedLesson]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for lesson in lessons:
        texts.setdefault(lesson.kind, []).append(lesson.text)
    return texts


# --- Calls of tools, as the model sees them where an agent learns its work. No memory, fact or profile comes of them --

MAX_CALLS = 40
"""The limit of calls in one request to the model: the last ones."""
ARGUMENT_CHARS, RESULT_CHARS = 300, 500


class EpisodeCall(TypedDict):
    """A call of a tool as the model sees it. Of a result whose call is not known, there are no arguments."""

    seq: int
    tool: str | None
    arguments: str | None
    result: str | None


def of_messages(messages: Iterable[MessageRecord]) -> list[EpisodeCall]:
    """Returns the calls in messages, in their order, each with its result, or None where none came. A result whose call
    is not among the messages stands alone."""
    calls: list[EpisodeCall] = []
    waiting: dict[str, EpisodeCall] = {}
    for message in messages:
        for made in message.get("tool_calls") or ():
            function = made.get("function")
            arguments = as_text(function and function.get("arguments"), ARGUMENT_CHARS)
            call: EpisodeCall = {
                "seq": message["seq"],
                "tool": function and function.get("name"),
                "arguments": arguments,
                "result": None,
            }
            waiting[str(made.get("id"))] = call
            calls.append(call)
        if message["role"] == "tool":
            answered = waiting.get(str(message.get("tool_call_id")))
            if answered is None:
                answered = {"seq": message["seq"], "tool": message["name"], "arguments": None, "result": None}
                calls.append(answered)
            answered["result"] = as_text(message["text"] or message.get("result"), RESULT_CHARS)
    return calls[-MAX_CALLS:]


def as_text(value: object, most: int) -> str | None:
    """Returns a value as text of at most `most` characters, without text that the service itself served."""
    if value is None:
        return None
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return strip_served(text).strip()[:most]
