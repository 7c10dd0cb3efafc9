"""Extractors for a part of a conversation: memories, the user's profile, facts, the agent's experience."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from app.core.clock import rfc3339, to_ms
from app.learning import deduplication, derivations, extraction, prompts, tool_calls
from app.learning.dependencies import ALWAYS, Tools
from app.learning.derivations import DerivationPlan
from app.learning.extraction import Skipped, known_lessons, learned_experience, registered_agent
from app.learning.prompts import TranscriptLine, data
from app.llm.base import LLM, Budget
from app.memories.create import MemoryWriter
from app.memories.decay_settings import Decays
from app.memories.indexing import Embeddings
from app.memories.models import MEMORIES
from app.memories.records import SOURCE
from app.memories.repository import MemoryRepository
from app.profiles.merge import EMPTY_PROFILE
from app.profiles.schemas import AGENTS, USERS, ProfilePatch
from app.retrieval.retriever import RetrievalQuery, Retriever
from app.sessions.repository import SessionRepository
from app.sessions.schemas import MESSAGES, SESSIONS
from app.storage.changes import Change, Update
from app.storage.filters import Eq, In, Not, both
from app.storage.repository import Repository, pages, unexpired
from app.storage.schema import Doc
from app.storage.scope import Partition, Scope

KNOWN_MEMORIES = 20
QUERY_CHARS = 2_000
PAGE = 500
"""The number of messages that one query reads."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A part of a conversation with its owners. `said` maps message numbers to the memories made of the messages."""

    scope: Scope
    agent_id: str | None
    user_id: str | None
    lines: Sequence[TranscriptLine]
    said: Mapping[int, Doc] = field(default_factory=dict)
    session: Doc | None = None

    @property
    def owner(self) -> dict[str, str | None]:
        """The agent and user of the conversation, as fields."""
        return {"agent_id": self.agent_id, "user_id": self.user_id}

    @property
    def size(self) -> int:
        """The number of messages."""
        return len(self.lines)

    def derivation_id(self, extractor: str, prompt_id: str) -> str:
        """Returns an id that is the same for the same messages of the session, extractor and prompt."""
        assert self.session is not None
        of = (extractor, prompt_id, self.session["session_id"], self.session["created_at"])
        return derivations.id_of([line.shown() for line in self.lines], *of)

    def described(self) -> Doc:
        """Returns owner, session and message numbers, as fields of a derivation."""
        assert self.session is not None
        seqs = {"from_seq": self.lines[0].seq, "to_seq": self.lines[-1].seq}
        return {**self.owner, "session_id": self.session["session_id"], **seqs}

    def unchanged(self) -> list[Change]:
        """Returns a change that conflicts if a message was edited or deleted since the session was read."""
        assert self.session is not None
        same = {name: self.session.get(name) for name in ("created_at", "revised")}
        return [Update(SESSIONS, self.scope.tenant, self.session["session_id"], expect=same)]


@dataclass(frozen=True, slots=True)
class Extraction:
    """Memories in the model's answer, and the ids of the memories that it was shown."""

    memories: Sequence[prompts.LearnedMemory]
    known: Sequence[str]


def source(talk: Conversation, prompt: prompts.PromptTemplate, llm: LLM) -> Doc:
    """Returns the source fields of records that are learned from a conversation."""
    session_id = None if talk.session is None else talk.session["session_id"]
    return {"origin": "extraction", "session_id": session_id, "model": llm.model, "prompt_version": prompt.id}


class MemoryExtractor:
    """Learns memories."""

    name = prompt = "memories"

    async def learn(self, tools: Tools, talk: Conversation, llm: LLM, budget: Budget) -> DerivationPlan:
        """Asks the model and returns the plan."""
        return self.plan(tools, talk, llm, [await self.ask(tools, talk, llm, budget)])

    async def ask(self, tools: Tools, talk: Conversation, llm: LLM, budget: Budget) -> Extraction:
        """Asks the model for memories. Raises what the model's client raises."""
        known = await self._known(tools, talk)
        shown = [{name: doc[name] for name in ("memory_id", "content", "memory_type", "context")} for doc in known]
        request = data(talk.lines, profile=await _profile(tools, talk), known_memories=shown)
        instructions = prompts.load(self.prompt).with_wishes(await _wishes(tools, talk))
        reply = await llm.reply(instructions, request, prompts.LearnedMemories, budget)
        return Extraction(reply.memories, [doc["memory_id"] for doc in known])

    def plan(self, tools: Tools, talk: Conversation, llm: LLM, extractions: Sequence[Extraction]) -> DerivationPlan:
        """Returns one plan for all extractions of a conversation."""
        repository = MemoryRepository(tools.store, talk.scope)
        origin = source(talk, prompts.load(self.prompt), llm)

        async def plan() -> tuple[Doc, list[Change]]:
            current = await repository.get_many([memory_id for each in extractions for memory_id in each.known])
            active = {memory_id: doc for memory_id, doc in current.items() if doc["status"] == "active"}
            dropped: extraction.DroppedCounts = Counter()
            learned = [one for each in extractions for one in each.memories]
            pairs = extraction.memories(learned, active, talk.lines, talk.said, talk.owner, dropped)
            decays = Decays(tools.agents, talk.scope.tenant)
            remember = MemoryWriter(repository, Embeddings(tools.embedder), decays, tools.clock.now(), ALWAYS)
            sources = [{**origin, **more} for _, more in pairs]
            answers, changes, created = await remember.plan([body for body, _ in pairs], "", sources)
            disputed = [answer["status"] == "disputed" for answer in answers]
            result = {
                "memory_ids": list(dict.fromkeys(answer["memory_id"] for answer in answers)),
                "created": sum(created),
                "superseded": sum(
                    len(body.supersedes) for (body, _), apart in zip(pairs, disputed, strict=True) if not apart
                ),
                "disputed": sum(disputed),
                "dropped": dict(dropped),
                "items": answers,
            }
            return result, changes

        return plan

    async def _known(self, tools: Tools, talk: Conversation) -> list[Doc]:
        """Returns memories of this user that are near to the user's messages, so that the model can supersede them."""
        said, pairs = _said(talk), _own_pairs(talk)
        if not said or not pairs:
            return []
        now = tools.clock.now()
        kinds = (Not(Eq("memory_type", kind)) for kind in ("message", "summary"))  # only a summary replaces a summary
        where = both(Eq("status", "active"), *kinds, unexpired(rfc3339(now)))
        lookup = Retriever(tools.store, talk.scope, tools.embedder, MEMORIES)
        retrieved = await lookup.find(RetrievalQuery(said, pairs, where, to_ms(now), KNOWN_MEMORIES))
        return [hit.doc for hit in retrieved.hits]


class ProfileExtractor:
    """Learns the user's profile."""

    name = prompt = "profile"

    async def learn(self, tools: Tools, talk: Conversation, llm: LLM, budget: Budget) -> DerivationPlan:
        """Asks the model and returns the plan. Raises Skipped if the conversation has no user."""
        prompt = prompts.load(self.prompt)
        if talk.user_id is None:
            raise Skipped("the conversation is nobody's")
        talk.scope.require_write(None, talk.user_id)
        profile = await _profile(tools, talk)
        reply = await llm.reply(prompt.text, data(talk.lines, profile=profile), prompts.LearnedProfile, budget)
        users, user_id = tools.users(talk.scope), talk.user_id

        async def plan() -> tuple[Doc, list[Change]]:
            patch = extraction.profile_patch(reply, await _profile(tools, talk))
            if not patch:
                return {"changed": []}, []
            outcome = await users.patch_profile(user_id, ProfilePatch(**patch), ALWAYS)
            return {"changed": sorted(patch) if outcome.changes else []}, list(outcome.changes)

        return plan


class FactExtractor:
    """Learns facts."""

    name = prompt = "facts"

    async def learn(self, tools: Tools, talk: Conversation, llm: LLM, budget: Budget) -> DerivationPlan:
        """Asks the model and returns the plan."""
        prompt = prompts.load(self.prompt)
        profile = await _profile(tools, talk)
        spoke = next((line.name for line in talk.lines if line.role == "user" and line.name), None)
        user_name = profile["name"] or spoke or talk.user_id or "user"
        known = await self._known(tools, talk)
        request = data(talk.lines, user_name=user_name, known_facts=known)
        reply = await llm.reply(prompt.text, request, prompts.LearnedFacts, budget)
        origin = source(talk, prompt, llm)

        async def plan() -> tuple[Doc, list[Change]]:
            dropped: extraction.DroppedCounts = Counter()
            pairs = extraction.facts(reply.facts, talk.lines, talk.said, talk.owner, dropped)
            return await deduplication.asserted(tools, talk.scope, pairs, dropped, origin, "memory_ids")

        return plan

    async def _known(self, tools: Tools, talk: Conversation) -> list[Doc]:
        said, pairs = _said(talk), _own_pairs(talk)
        if not said or not pairs:
            return []
        return await deduplication.known(tools, talk.scope, said, pairs)


class ExperienceExtractor:
    """Learns lessons of the agent, also from the tools that it called."""

    name = prompt = "experience"

    async def learn(self, tools: Tools, talk: Conversation, llm: LLM, budget: Budget) -> DerivationPlan:
        """Asks the model and returns the plan. Raises Skipped if the agent is not registered."""
        prompt = prompts.load(self.prompt)
        agent = await registered_agent(tools, talk.scope, talk.agent_id)
        request = data(talk.lines, experience=known_lessons(agent), tool_calls=await self._calls(tools, talk))
        reply = await llm.reply(prompt.text, request, prompts.LearnedExperience, budget)
        origin, names = {**SOURCE, **source(talk, prompt, llm)}, await self._names(tools, talk)

        async def plan() -> tuple[Doc, list[Change]]:
            return await learned_experience(tools, talk.scope, agent["agent_id"], reply, origin, names)

        return plan

    async def _calls(self, tools: Tools, talk: Conversation) -> list[Doc]:
        """Returns the calls up to the last message of this part that no earlier part had."""
        if talk.session is None:
            return []
        sessions = SessionRepository(tools.store, talk.scope)
        where = sessions.within(talk.session, talk.session.get("learned_seq") or 0, talk.lines[-1].seq)
        roles = both(where, In("role", ("assistant", "tool")))
        found = [doc async for docs in pages(partial(sessions.messages.find, roles), MESSAGES, PAGE) for doc in docs]
        return tool_calls.of_messages(found)

    async def _names(self, tools: Tools, talk: Conversation) -> list[str]:
        """Returns the names that no lesson may contain."""
        profile = await _profile(tools, talk)
        spoke = [line.name for line in talk.lines if line.role == "user"]
        named = {talk.user_id, profile["name"], profile["home"], *spoke}
        return sorted(name for name in named if name)


def _said(talk: Conversation) -> str:
    """Returns the end of what the user said, as a query for related records."""
    return "\n".join(line.text for line in talk.lines if line.role == "user")[-QUERY_CHARS:].strip()


def _own_pairs(talk: Conversation) -> tuple[Partition, ...]:
    """Returns the partitions of the user, without those that the agent shares among all users."""
    pairs = talk.scope.pairs(talk.agent_id, talk.user_id, include_shared=True)
    return tuple(pair for pair in pairs if talk.user_id is None or pair.user == talk.user_id)


async def _profile(tools: Tools, talk: Conversation) -> Doc:
    user = None
    if talk.user_id is not None:
        user = await Repository(tools.store, talk.scope, USERS).find_one(talk.user_id)
    return dict(EMPTY_PROFILE) if user is None else user["profile"]


async def _wishes(tools: Tools, talk: Conversation) -> str | None:
    """Returns the extraction instructions that the agent's owner has set, or None."""
    if talk.agent_id is None:
        return None
    agent = await Repository(tools.store, talk.scope, AGENTS).find_one(talk.agent_id)
    return None if agent is None else agent["settings"]["extraction_instructions"]
