"""Extractors for a batch of episodes: facts, procedures and the agent's experience."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence

from app.actions.schemas import ACTIONS, ActionRecord
from app.core.clock import rfc3339, to_ms
from app.core.schemas import Json
from app.jobs.runner import Run
from app.jobs.skipping import handled
from app.learning import checks, episodes, learned_facts, prompts
from app.learning.dependencies import Tools
from app.learning.derivations import DerivationPlan, DerivationResult
from app.learning.episodes import Batch, chunks
from app.learning.extraction import DroppedCounts, Rules
from app.learning.learning_run import Extractor, LearningRun, ModelAnswer, PartRequest, Report
from app.learning.lessons import known_lessons, learned_experience, new_lessons, registered_agent, shown_lessons
from app.learning.sharing import SharingRule, of_same_user, sharing_rule, texts_of
from app.llm.base import LLM, Budget
from app.memories.embedding import Embeddings
from app.memories.records import SOURCE
from app.memories.repository import of_pair
from app.memories.schemas import Source
from app.procedures.schemas import PROCEDURES, ProcedureCreate, ProcedureRecord
from app.procedures.service import ProcedureRepository, new_procedure, passage
from app.retrieval.retriever import RetrievalQuery, Retriever
from app.storage.changes import Change, Update
from app.storage.schema import Absent, Eq, Filter, both
from app.storage.scope import Partition, Scope
from app.storage.text import normalise_content

KNOWN_PROCEDURES = 20
QUERY_CHARS = 2_000


class EpisodeFacts:
    """Learns facts from episodes."""

    name, prompt = "facts", "episode_facts"
    shape = prompts.FoundFacts

    async def request(self, tools: Tools, batch: Batch) -> PartRequest:
        """Returns the name of the user, and known facts near to the episodes."""
        name = await _user_name(tools, batch)
        known = await learned_facts.known_facts(tools, batch.scope, _query(batch), _partition(batch), name)
        return PartRequest({"user_name": name, "known_facts": known})

    def may_hold(self, batch: Batch, _: ModelAnswer, fact: prompts.StatedFact) -> bool:
        """Returns whether a fact cites an episode."""
        return bool(batch.cited(fact.episode_numbers))

    def plan(self, tools: Tools, batch: Batch, answer: ModelAnswer) -> DerivationPlan:
        """Returns the plan that asserts the facts of an answer."""
        origin = _source(prompts.load(self.prompt), answer.model)

        async def plan() -> tuple[DerivationResult, list[Change]]:
            dropped: DroppedCounts = Counter()
            names = [name for name in (batch.user_id, await _user_name(tools, batch)) if name]
            pairs = episodes.facts(answer.reply.facts, batch, dropped, names, looked=answer.looked)
            return await learned_facts.asserted(tools, batch.scope, pairs, dropped, origin)

        return plan


class EpisodeProcedures:
    """Learns procedures from episodes."""

    name = prompt = "procedures"
    shape = prompts.FoundProcedures

    async def request(self, tools: Tools, batch: Batch) -> PartRequest:
        """Returns known procedures near to the episodes: of the same partition, and those that the agent has for all
        users. The context has their ids."""
        lookup = Retriever(tools.store, batch.scope, tools.embedder, PROCEDURES)
        pairs = tuple(dict.fromkeys((*_partition(batch), Partition(batch.agent_id, None))))
        now_ms = to_ms(tools.clock.now())
        wanted = RetrievalQuery(_query(batch), pairs, Eq("status", "active"), now_ms, KNOWN_PROCEDURES)
        known = [hit.doc for hit in (await lookup.find(wanted)).hits]
        shown = [
            {
                "procedure_id": procedure["procedure_id"],
                "name": procedure["name"],
                "trigger": procedure["trigger"],
                "steps": procedure["steps"],
                "notes": procedure["notes"],
            }
            for procedure in known
        ]
        return PartRequest({"known_procedures": shown}, context=[procedure["procedure_id"] for procedure in known])

    def may_hold(self, batch: Batch, _: ModelAnswer, procedure: prompts.StatedProcedure) -> bool:
        """Returns whether a procedure cites an episode."""
        return bool(batch.cited(procedure.episode_numbers))

    def plan(self, tools: Tools, batch: Batch, answer: ModelAnswer) -> DerivationPlan:
        """Returns the plan that creates and refines procedures."""
        embeddings, origin = Embeddings(tools.embedder), _source(prompts.load(self.prompt), answer.model)

        async def plan() -> tuple[DerivationResult, list[Change]]:
            merging = _Merging(tools, batch, embeddings, origin, await sharing_rule(tools, batch))
            await merging.take(answer.reply.procedures, answer.request.context)
            return merging.result(), merging.changes

        return plan


class _Merging:
    """Turns the model's procedures into changes. Each procedure is created or refined at most once. With a `rule`,
    those that it allows are for all users of the agent."""

    def __init__(
        self, tools: Tools, batch: Batch, embeddings: Embeddings, origin: Source, rule: SharingRule | None
    ) -> None:
        self._tools, self._rule = tools, rule
        self._procedures = ProcedureRepository(tools.store, batch.scope)
        self._batch, self._embeddings, self._origin = batch, embeddings, origin
        self._now = rfc3339(tools.clock.now())
        self._dropped: DroppedCounts = Counter()
        self._made: list[str] = []
        self._refined: list[str] = []
        self.changes: list[Change] = []

    async def take(self, stated: list[prompts.StatedProcedure], shown: list[str]) -> None:
        """Adds the changes for the procedures that the model found. `shown` are the ids of those that it was shown."""
        known = await self._procedures.get_many(shown)
        names: set[str] = set()
        for procedure, body, cited in episodes.procedures(stated, self._batch, self._dropped):
            old = await self._old(procedure.procedure_id, body, known)
            key = normalise_content(body.name) if old is None else old["procedure_id"]
            if key in names:
                self._dropped["known"] += 1
            elif old is not None:
                await self._refine(old, body, cited)
            elif episodes.worked(cited):
                await self._make(body, cited)
            else:
                self._dropped["not_of_this_part"] += 1
            names.add(key)

    async def _old(
        self, procedure_id: str | None, body: ProcedureCreate, known: dict[str, ProcedureRecord]
    ) -> ProcedureRecord | None:
        """Returns the procedure that the model was shown under that id, or else the one with that name."""
        old = known.get(procedure_id) if procedure_id else None
        if old is not None and old["status"] == "active":
            return old
        if procedure_id:
            self._dropped["known"] += 1
        key = normalise_content(body.name)
        own = await self._procedures.named(self._batch.agent_id, self._batch.user_id, key)
        return own or await self._procedures.named(self._batch.agent_id, None, key)

    async def _refine(self, old: ProcedureRecord, body: ProcedureCreate, cited: list[ActionRecord]) -> None:
        shared = old["user_id"] != self._batch.user_id
        if shared and (self._rule is None or not await of_same_user(self._tools, self._batch, old)):
            self._dropped["known"] += 1
            return
        changed = episodes.refined(old, body, cited, self._dropped)
        if shared and self._rule is not None and not self._rule.allows(texts_of(changed)):
            self._dropped["not_of_this_part"] += 1
            return
        if shared and changed:
            ids = [*old["source"]["action_ids"], *episodes.ids_of(cited)]
            changed["source"] = {**old["source"], "action_ids": list(dict.fromkeys(ids))}
        if changed:
            self.changes += self._procedures.revise(old, changed, self._now)
            self._refined.append(old["procedure_id"])

    async def _make(self, body: ProcedureCreate, cited: list[ActionRecord]) -> None:
        source: Source = {**self._origin, "action_ids": episodes.ids_of(cited)}
        fields = PROCEDURES.as_record(body.model_dump())
        if self._rule is not None and self._rule.allows(texts_of(fields)):
            fields["user_id"] = None
        procedure = new_procedure(fields, source, self._now)
        (entry,) = await self._embeddings.entries([passage(procedure)])
        procedure["embedding"] = self._embeddings.info(entry)
        self.changes += self._procedures.add(procedure, entry)
        self._made.append(procedure["procedure_id"])

    def result(self) -> DerivationResult:
        """Returns the ids of created and refined procedures, and counts of what was dropped."""
        return {"procedure_ids": self._made, "refined_ids": self._refined, "dropped": dict(self._dropped)}


class EpisodeExperience:
    """Learns lessons of the agent from what it did, such as good ways to use its tools."""

    name, prompt = "experience", "episode_experience"
    shape = prompts.LearnedExperience

    async def request(self, tools: Tools, batch: Batch) -> PartRequest:
        """Returns known lessons. Raises Skipped if the agent is not registered."""
        agent = await registered_agent(tools, batch.scope, batch.agent_id)
        return PartRequest({"experience": shown_lessons(agent)}, context=agent)

    def may_hold(self, batch: Batch, _: ModelAnswer, lesson: prompts.LearnedLesson) -> bool:
        """Returns whether the checks of code let a lesson pass."""
        return checks.refusal("lesson", lesson, episodes.lines(batch)) is None

    def plan(self, tools: Tools, batch: Batch, answer: ModelAnswer) -> DerivationPlan:
        """Returns the plan that adds lessons. A lesson has to quote an episode."""
        agent = answer.request.context
        origin: Source = {
            **SOURCE,
            **_source(prompts.load(self.prompt), answer.model),
            "action_ids": batch.action_ids,
        }

        async def plan() -> tuple[DerivationResult, list[Change]]:
            rules = Rules(episodes.lines(batch), batch.owner, looked=answer.looked)
            texts = new_lessons(rules.lessons(answer.reply.lessons, known_lessons(agent)))
            names = [name for name in (batch.user_id, await _user_name(tools, batch)) if name]
            result, changes = await learned_experience(tools, batch.scope, agent["agent_id"], texts, origin, names)
            return {**result, "dropped": dict(rules.dropped)}, changes

        return plan


EXTRACTORS: tuple[Extractor[Batch], ...] = (EpisodeFacts(), EpisodeProcedures(), EpisodeExperience())


def _source(prompt: prompts.PromptTemplate, model: str) -> Source:
    return {"origin": "consolidation", "model": model, "prompt_version": prompt.id}


def _query(batch: Batch) -> str:
    """Returns the end of the episodes' text, as a query for related records."""
    return "\n".join(episode["content"] for episode in batch.shown())[-QUERY_CHARS:]


def _partition(batch: Batch) -> tuple[Partition, ...]:
    return (Partition(batch.agent_id, batch.user_id),)


async def _user_name(tools: Tools, batch: Batch) -> str:
    if batch.user_id is None:
        return "user"
    user = await tools.profiles(batch.scope).find(batch.user_id)
    name = None if user is None else user.profile["name"]
    return name or batch.user_id


PAGE = 50
"""The number of episodes that one query reads."""
EPISODE_PROMPTS = ("episodes", "episode_facts", "procedures", "episode_experience")
NEW = Absent("consolidated_at")
"""Filters episodes that no job has learned from."""


class EpisodeLearning:
    """Learns from the episodes of an agent and user."""

    def __init__(self, tools: Tools, llm: LLM) -> None:
        self._tools, self._llm = tools, llm

    async def learn(self, run: Run, scope: Scope, agent: str, user: str | None, budget: Budget, report: Report) -> int:
        """Returns the number of episodes that were learned from. If an extractor fails, earlier results stay, and its
        episodes are taken up by another run."""

        async def mark_learned(batch: Batch, _: int) -> None:
            await self._mark_learned(run, batch.actions)

        batches = self._batches(run, scope, agent, user)
        learning = LearningRun(self._tools, run, report)
        return await learning.learn_from(batches, lambda _: EXTRACTORS, mark_learned, self._llm, budget)

    async def _batches(self, run: Run, scope: Scope, agent: str, user: str | None) -> AsyncIterator[Batch]:
        """Yields batches of the episodes that are not marked as learned, the oldest first. Those that cannot be handled
        are skipped and marked, or they would be read again for ever."""
        where = both(of_pair(agent, user), NEW, scope.visible())
        while actions := await self._tools.store.find(ACTIONS, scope.tenant, where, order="asc", limit=PAGE):
            readable = [action for action, _ in handled(ACTIONS, actions, episodes.as_read)]
            if len(readable) < len(actions):
                await self._mark_learned(run, [action for action in actions if action not in readable])
            if readable:
                limit = prompts.stretch(self._llm.prompt_tokens, EPISODE_PROMPTS)
                yield next(chunks(Batch(scope, agent, user, readable), limit))

    async def _mark_learned(self, run: Run, actions: Sequence[ActionRecord]) -> None:
        """Marks episodes as learned. If one was deleted in the meantime, the others are still marked."""
        fields: ActionRecord = {"consolidated_at": rfc3339(self._tools.clock.now())}
        await run.commit_each([Update(ACTIONS, run.tenant, action["action_id"], set=fields) for action in actions])


def waiting(docs_of: Filter) -> Filter:
    """Filters those of the episodes that no job has learned from."""
    return both(docs_of, NEW)


def skipped(waiting: int, why: str) -> dict[str, Json]:
    """Returns the report of parts that were skipped, if any episodes wait."""
    return {part.name: {"status": "skipped", "reason": why} for part in EXTRACTORS} if waiting else {}
