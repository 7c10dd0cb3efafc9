"""What is learned from episodes: batches of them, rules for what may be learned, and the extractors.

An episode is logged by a caller, as a message is. A derived record has the lowest trust of its episodes, which is 1.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import orjson
from pydantic import ValidationError

from app.actions.roll_ups import DayDescription, DescribeDay
from app.actions.schemas import ACTIONS, ActionRecord
from app.core import prompt_text
from app.core.clock import rfc3339, to_ms
from app.core.language import sentences, words
from app.core.schemas import Json
from app.core.served_text import strip_served
from app.errors import Forbidden, Invalid, LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.facts.profile import UserProfile
from app.facts.schemas import FactCreate
from app.jobs.queue import handled
from app.jobs.runner import Run
from app.learning import checks, conversation_extractors, derivations, prompts
from app.learning.dependencies import Tools, log
from app.learning.derivations import DerivationPlan, DerivationRecord, DerivationResult
from app.learning.extraction import UNSUPPORTED, DroppedCounts, Rules, fact_fields, is_user
from app.learning.learning_run import Extractor, LearningRun, ModelAnswer, PartRequest, Report, Skipped
from app.llm.base import LLM, Budget
from app.memories.repository import SOURCE, Embeddings, of_partition
from app.memories.schemas import Source
from app.procedures.schemas import PROCEDURES, ProcedureCreate, ProcedureRecord
from app.procedures.service import ProcedureRepository, ended_trial, learned, new_procedure
from app.profiles.agents import names_one
from app.profiles.users import ProfileReader
from app.retrieval.retriever import RetrievalRequest, Retriever
from app.storage.changes import Change, Update
from app.storage.repository import Repository
from app.storage.schema import Absent, Collection, Eq, Filter, OwnedRecord, both
from app.storage.scope import Partition, Scope
from app.storage.text import normalise_content

T = TypeVar("T", prompts.StatedFact, prompts.StatedProcedure)

TRUST = 1.0
CHUNK_TOKENS = 6_000
MOST = 50
"""The limit of episodes in one request to the model."""
CONTENT_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes of one partition in order of time. The model refers to them by number, from 1."""

    scope: Scope
    agent_id: str | None
    user_id: str | None
    actions: Sequence[ActionRecord]

    @property
    def owner(self) -> OwnedRecord:
        """The agent and user of the episodes, as fields."""
        return {"agent_id": self.agent_id, "user_id": self.user_id}

    @property
    def prompt(self) -> str:
        """The name of the prompt that the parts' prompts follow."""
        return "episodes"

    def data(self, known: Json) -> str:
        """Returns the episodes, and further data, as JSON for the model."""
        return orjson.dumps({"episodes": self.shown(), **known}).decode()

    def shown(self) -> list[Json]:
        """Returns the episodes as the model sees them."""
        return [_shown(number, action) for number, action in enumerate(self.actions, start=1)]

    def cited(self, numbers: Sequence[int]) -> list[ActionRecord]:
        """Returns the episodes with these numbers, in order. Unknown numbers are ignored."""
        return [self.actions[number - 1] for number in sorted({*numbers}) if 1 <= number <= len(self.actions)]

    @property
    def size(self) -> int:
        return len(self.actions)

    @property
    def action_ids(self) -> list[str]:
        return ids_of(self.actions)

    def derivation_id(self, extractor: str, prompt_id: str) -> str:
        """Returns an id that is the same for the same episodes, extractor and prompt."""
        return derivations.id_of(self.action_ids, extractor, prompt_id)

    @property
    def record(self) -> tuple[Collection, str]:
        """The first episode."""
        return ACTIONS, self.actions[0]["action_id"]

    def described(self) -> DerivationRecord:
        """Returns owner and episodes, as fields of a derivation."""
        return {"agent_id": self.agent_id, "user_id": self.user_id, "action_ids": self.action_ids}

    def unchanged(self) -> list[Change]:
        """Returns no changes: what was logged does not change."""
        return []


def ids_of(actions: Iterable[ActionRecord]) -> list[str]:
    return [action["action_id"] for action in actions]


def _shown(number: int, action: ActionRecord) -> Json:
    feedback = {name: value for name, value in action["feedback"].items() if value is not None}
    # what the action holds of its call: input, output, duration and any other key that is set
    call = {
        name: value
        if name == "duration_ms"
        else conversation_extractors.as_text(value, conversation_extractors.RESULT_CHARS)
        for name, value in action["action"].items()
        if value is not None and name != "tool"
    }
    return {
        "number": number,
        "at": action["timestamp"],
        "event_type": action["event_type"],
        "action_type": action["action_type"],
        "actor": action["actor"],
        "outcome": action["outcome"],
        "entities": action["entities"],
        "tool": action["action"].get("tool"),
        "content": strip_served(action["content"]).strip()[:CONTENT_CHARS],
        **({"call": call} if call else {}),
        **({"feedback": feedback} if feedback else {}),
    }


def chunks(batch: Batch, limit: int = CHUNK_TOKENS, max_episodes: int = MOST) -> Iterator[Batch]:
    """Splits a batch into batches of at most `limit` tokens and `max_episodes` episodes. A longer episode is a batch of
    its own."""
    for actions in prompt_text.in_chunks(batch.actions, _as_prompted, limit, max_episodes):
        yield replace(batch, actions=actions)


def _as_prompted(action: ActionRecord) -> str:
    return orjson.dumps(_shown(0, action)).decode()


def as_read(action: ActionRecord) -> tuple[str, str]:
    """Returns an episode as the model is shown it, and as a lesson may quote it."""
    return _as_prompted(action), _quotable(action)


def lines(batch: Batch) -> list[prompts.TranscriptLine]:
    """Returns the episodes as lines that a lesson may quote."""
    return [
        prompts.TranscriptLine(number, "tool", None, action["timestamp"], _quotable(action))
        for number, action in enumerate(batch.actions, start=1)
    ]


def _quotable(action: ActionRecord) -> str:
    shown = _shown(0, action)
    return " ".join([shown["content"], *(str(value) for value in shown.get("call", {}).values())])


def facts(
    stated: Sequence[prompts.StatedFact],
    batch: Batch,
    dropped: DroppedCounts,
    names: Sequence[str] = (),
    *,
    looked: bool = True,
) -> list[tuple[FactCreate, Source]]:
    """Returns the facts to assert with the ids of their episodes, as a field of the source. Facts that cite no episode,
    or whose object none of them contains, are dropped. A fact without a time, or with one that its episodes do not
    say, is valid from its first episode on. `names` are the user's."""
    lines_of = {line.seq: line for line in lines(batch)}
    result: list[tuple[FactCreate, Source]] = []
    for fact, cited in _citing(stated, batch, dropped):
        texts = {name: strip_served(getattr(fact, name)).strip() for name in ("subject", "predicate", "object")}
        if not checks.stands(texts["object"], " ".join(map(_as_prompted, cited))):
            dropped["not_said"] += 1
            continue
        logged = [lines_of[number] for number in fact.episode_numbers if number in lines_of]
        begun = checks.time_said(fact.valid_from, logged, looked=looked)
        if fact.valid_from is not None and begun is None:
            dropped["not_said"] += 1
        user = batch.scope.agents is None and is_user(texts["subject"], names)
        try:
            fields = fact_fields({**texts, "cardinality": fact.cardinality}, batch.owner, user=user)
            fields["valid_from"] = cited[0]["timestamp"] if begun is None else begun.at
            body = FactCreate.model_validate({**batch.owner, **fields, "trust": TRUST})
        except (ValidationError, Invalid):
            dropped["invalid"] += 1
            continue
        result.append((body, {"action_ids": ids_of(cited), "said_at": cited[0]["timestamp"]}))
    return result


def procedures(
    stated: Sequence[prompts.StatedProcedure], batch: Batch, dropped: DroppedCounts
) -> Iterator[tuple[prompts.StatedProcedure, ProcedureCreate, list[ActionRecord]]]:
    """Yields the procedures that cite episodes, each as a body and with its episodes. Their numbers stand there."""
    lines_of = {line.seq: line for line in lines(batch)}
    for procedure, cited in _citing(stated, batch, dropped):
        fields = {
            "name": strip_served(procedure.name).strip(),
            "trigger": strip_served(procedure.trigger).strip(),
            "preconditions": without_served(procedure.preconditions),
            "steps": without_served(procedure.steps),
            "notes": without_served(procedure.notes),
        }
        try:
            body = ProcedureCreate.model_validate({**batch.owner, **fields, "trust": TRUST})
        except ValidationError:
            dropped["invalid"] += 1
            continue
        text = " ".join([body.trigger, *body.preconditions, *body.steps, *body.notes])
        if checks.numbers_said(
            text, [lines_of[number] for number in procedure.episode_numbers if number in lines_of]
        ).stands:
            yield procedure, body, cited
        else:
            dropped["not_said"] += 1


def _citing(stated: Sequence[T], batch: Batch, dropped: DroppedCounts) -> Iterator[tuple[T, list[ActionRecord]]]:
    """Yields the items that cite episodes and that the second look left, each with its episodes."""
    for item in stated:
        if item == UNSUPPORTED:
            dropped["unsupported"] += 1
        elif cited := batch.cited(item.episode_numbers):
            yield item, cited
        else:
            dropped["not_quoted"] += 1


def without_served(texts: Sequence[str]) -> list[str]:
    """Returns texts without what the service itself served, as far as something is left of them."""
    return [text for text in (strip_served(text).strip() for text in texts) if text]


def worked(cited: Sequence[ActionRecord]) -> bool:
    """Returns True if an episode succeeded. New steps are learned only from success."""
    return any(action["outcome"] == "success" for action in cited)


def refined(
    old: ProcedureRecord, body: ProcedureCreate, cited: Sequence[ActionRecord], dropped: DroppedCounts
) -> ProcedureRecord:
    """Returns the changed fields of a known procedure. It gains notes. Its steps change only if they were derived, have
    no more trust, and the new ones have worked. Name, trigger and preconditions stay."""
    changed: ProcedureRecord = {}
    notes, _ = learned(old["notes"], body.notes)
    if {*notes} - {*old["notes"]}:
        changed["notes"] = notes
    if body.steps != old["steps"]:
        derived = old["source"]["origin"] == "consolidation" and old["trust"] <= TRUST
        if derived and worked(cited):
            changed |= {"steps": body.steps, **ended_trial(old, {"steps": body.steps})}
        else:
            dropped["known"] += 1
    return changed


# --- Sharing: a procedure learned from a user's episodes that serves all users of the agent ---------------------------

# It is the rule of the agent's experience: the agent is registered, the key may write for all its users, and no text
# names the user. No text quotes the user, either.

QUOTED_WORDS = 4
"""So many words in a row that the user said are a quote."""


@dataclass(frozen=True, slots=True)
class SharingRule:
    """What no shared procedure may say: `names` of the user, and the words of the user's `utterances`."""

    names: Sequence[str]
    utterances: Sequence[str] = ()

    def allows(self, texts: Iterable[str]) -> bool:
        """Returns True if none of the texts names or quotes the user."""
        for text in texts:
            runs = _runs(text)
            if names_one(text, self.names) or any(runs & _runs(utterance) for utterance in self.utterances):
                return False
        return True


def _runs(text: str) -> set[tuple[str, ...]]:
    spoken = words(text)
    return {tuple(spoken[at : at + QUOTED_WORDS]) for at in range(len(spoken) - QUOTED_WORDS + 1)}


def texts_of(fields: ProcedureRecord) -> list[str]:
    lines = [text for text in (fields.get("name"), fields.get("trigger")) if text]
    return [*lines, *fields.get("preconditions", ()), *fields.get("steps", ()), *fields.get("notes", ())]


async def sharing_rule(tools: Tools, batch: Batch) -> SharingRule | None:
    """Returns the rule for what is learned from a user's episodes, or None if it stays with the user: by the setting,
    because the agent is not registered, or because the key may not write for all of its users."""
    if batch.user_id is None or not tools.settings.procedures.share:
        return None
    try:
        await conversation_extractors.registered_agent(tools, batch.scope, batch.agent_id)
    except (Skipped, Forbidden):
        return None
    user = await ProfileReader(tools.store, batch.scope, tools.clock).find(batch.user_id)
    profile: UserProfile = {} if user is None else user.profile
    names = [name for name in (batch.user_id, profile.get("name"), profile.get("home")) if name]
    # what the user said in the episodes: their feedback, and what the user did
    corrections = [text for action in batch.actions if isinstance(text := action["feedback"].get("correction"), str)]
    did = [action["content"] for action in batch.actions if action["actor"] == "user" and action["content"]]
    return SharingRule(names, corrections + did)


async def of_same_user(tools: Tools, batch: Batch, shared: ProcedureRecord) -> bool:
    """Returns True if all episodes that a shared procedure was learned from are known to be of the batch's user. What
    came of another user's episodes is not mixed with this one's, so that erasing a user takes all that came of him."""
    ids = shared["source"].get("action_ids") or []
    actions = await Repository(tools.store, batch.scope, ACTIONS).get_many(ids)
    return (
        bool(ids)
        and len(actions) == len(ids)
        and all(action["user_id"] == batch.user_id for action in actions.values())
    )


# --- Extractors -------------------------------------------------------------------------------------------------------

KNOWN_PROCEDURES = 20
QUERY_CHARS = 2_000


class EpisodeFacts:
    """Learns facts from episodes."""

    names, prompt = ("facts",), "episode_facts"
    shape = prompts.FoundFacts

    async def request(self, tools: Tools, batch: Batch) -> PartRequest:
        """Returns the name of the user, and known facts near to the episodes."""
        name = await _user_name(tools, batch)
        known = await conversation_extractors.known_facts(tools, batch.scope, _query(batch), _partition(batch), name)
        return PartRequest({"user_name": name, "known_facts": known})

    def may_be_stored(self, batch: Batch, _: ModelAnswer, fact: prompts.StatedFact) -> bool:
        return bool(batch.cited(fact.episode_numbers))

    def plans(self, tools: Tools, batch: Batch, answer: ModelAnswer) -> Mapping[str, DerivationPlan]:
        """Returns the plan that asserts the facts of an answer."""
        origin = _source(prompts.load(self.prompt), answer.model)

        async def plan() -> tuple[DerivationResult, list[Change]]:
            dropped: DroppedCounts = Counter()
            names = [name for name in (batch.user_id, await _user_name(tools, batch)) if name]
            pairs = facts(answer.reply.facts, batch, dropped, names, looked=answer.looked)
            return await conversation_extractors.asserted(tools, batch.scope, pairs, dropped, origin)

        return {"facts": plan}


class EpisodeProcedures:
    """Learns procedures from episodes."""

    names, prompt = ("procedures",), "procedures"
    shape = prompts.FoundProcedures

    async def request(self, tools: Tools, batch: Batch) -> PartRequest:
        """Returns known procedures near to the episodes: of the same partition, and those that the agent has for all
        users. The context has their ids."""
        retriever = Retriever(tools.store, batch.scope, tools.embedder, PROCEDURES)
        partitions = tuple(dict.fromkeys((*_partition(batch), Partition(batch.agent_id, None))))
        now_ms = to_ms(tools.clock.now())
        wanted = RetrievalRequest(_query(batch), partitions, Eq("status", "active"), now_ms, KNOWN_PROCEDURES)
        known = [hit.doc for hit in (await retriever.find(wanted)).hits]
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

    def may_be_stored(self, batch: Batch, _: ModelAnswer, procedure: prompts.StatedProcedure) -> bool:
        return bool(batch.cited(procedure.episode_numbers))

    def plans(self, tools: Tools, batch: Batch, answer: ModelAnswer) -> Mapping[str, DerivationPlan]:
        """Returns the plan that creates and refines procedures."""
        embeddings, origin = Embeddings(tools.embedder), _source(prompts.load(self.prompt), answer.model)

        async def plan() -> tuple[DerivationResult, list[Change]]:
            merging = _Merging(tools, batch, embeddings, origin, await sharing_rule(tools, batch))
            await merging.take(answer.reply.procedures, answer.request.context)
            return merging.result(), merging.changes

        return {"procedures": plan}


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
        for procedure, body, cited in procedures(stated, self._batch, self._dropped):
            old = await self._old(procedure.procedure_id, body, known)
            key = normalise_content(body.name) if old is None else old["procedure_id"]
            if key in names:
                self._dropped["known"] += 1
            elif old is not None:
                await self._refine(old, body, cited)
            elif worked(cited):
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
        changed = refined(old, body, cited, self._dropped)
        if shared and self._rule is not None and not self._rule.allows(texts_of(changed)):
            self._dropped["not_of_this_part"] += 1
            return
        if shared and changed:
            ids = [*old["source"]["action_ids"], *ids_of(cited)]
            changed["source"] = {**old["source"], "action_ids": list(dict.fromkeys(ids))}
        if changed:
            self.changes += self._procedures.revise(old, changed, self._now)
            self._refined.append(old["procedure_id"])

    async def _make(self, body: ProcedureCreate, cited: list[ActionRecord]) -> None:
        source: Source = {**self._origin, "action_ids": ids_of(cited)}
        fields = PROCEDURES.as_record(body.model_dump())
        if self._rule is not None and self._rule.allows(texts_of(fields)):
            fields["user_id"] = None
        procedure, changes = await self._procedures.add(new_procedure(fields, source, self._now), self._embeddings)
        self.changes += changes
        self._made.append(procedure["procedure_id"])

    def result(self) -> DerivationResult:
        """Returns the ids of created and refined procedures, and counts of what was dropped."""
        return {"procedure_ids": self._made, "refined_ids": self._refined, "dropped": dict(self._dropped)}


class EpisodeExperience:
    """Learns lessons of the agent from what it did, such as good ways to use its tools."""

    names, prompt = ("experience",), "episode_experience"
    shape = prompts.LearnedExperience

    async def request(self, tools: Tools, batch: Batch) -> PartRequest:
        """Returns known lessons. Raises Skipped if the agent is not registered."""
        agent = await conversation_extractors.registered_agent(tools, batch.scope, batch.agent_id)
        return PartRequest({"experience": conversation_extractors.shown_lessons(agent)}, context=agent)

    def may_be_stored(self, batch: Batch, _: ModelAnswer, lesson: prompts.LearnedLesson) -> bool:
        """Returns whether the checks of code let a lesson pass."""
        return isinstance(checks.quoted(lesson, lines(batch)), checks.Quote)

    def plans(self, tools: Tools, batch: Batch, answer: ModelAnswer) -> Mapping[str, DerivationPlan]:
        """Returns the plan that adds lessons. A lesson has to quote an episode."""
        agent = answer.request.context
        origin: Source = {
            **SOURCE,
            **_source(prompts.load(self.prompt), answer.model),
            "action_ids": batch.action_ids,
        }

        async def plan() -> tuple[DerivationResult, list[Change]]:
            rules = Rules(lines(batch), batch.owner, looked=answer.looked)
            texts = conversation_extractors.new_lessons(
                rules.lessons(answer.reply.lessons, conversation_extractors.known_lessons(agent))
            )
            names = [name for name in (batch.user_id, await _user_name(tools, batch)) if name]
            result, changes = await conversation_extractors.learned_experience(
                tools, batch.scope, agent["agent_id"], texts, origin, names
            )
            return {**result, "dropped": dict(rules.dropped)}, changes

        return {"experience": plan}


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
        are skipped and marked, or they would be read again without end."""
        where = both(of_partition(agent, user), NEW, scope.visible())
        while actions := await self._tools.store.find(ACTIONS, scope.tenant, where, order="asc", limit=PAGE):
            readable = [action for action, _ in handled(ACTIONS, actions, as_read)]
            if len(readable) < len(actions):
                await self._mark_learned(run, [action for action in actions if action not in readable])
            if readable:
                limit = prompts.chunk_tokens(self._llm.prompt_tokens, EPISODE_PROMPTS)
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
    return {name: {"status": "skipped", "reason": why} for part in EXTRACTORS for name in part.names} if waiting else {}


# --- The text of a day whose actions are rolled up --------------------------------------------------------------------

DAY_PROMPT = "day"
MOST_CHUNKS = 3
"""The limit of chunks of a day that the model reads. The counts cover the whole day."""


def day_teller(llm: LLM, tools: Tools) -> DescribeDay:
    """Returns a function that describes days in one run, with one budget for all of them. A sentence with a number
    that no log has is left out."""
    budget, prompt = llm.budget(), prompts.load(DAY_PROMPT)

    async def tell(actions: Sequence[ActionRecord], earlier: str | None) -> DayDescription | None:
        """Returns a text that continues `earlier`, with `model` and `prompt_version`. Returns None if the model fails;
        the day is then described by its counts and not kept waiting."""
        first = actions[0]
        batch = Batch(Scope(first["tenant_id"]), first["agent_id"], first["user_id"], actions)
        text, budget.allowance = earlier, tools.allowance(first["tenant_id"])
        try:
            limit = prompts.chunk_tokens(llm.prompt_tokens, [DAY_PROMPT])
            for chunk in islice(chunks(batch, limit, len(actions)), MOST_CHUNKS):
                request = chunk.data({"earlier": text})
                reply = await llm.reply(prompt.text, request, prompts.DayText, budget)
                written, logged = sentences(strip_served(reply.text)), lines(chunk)
                text = " ".join(part for part in written if checks.sentence_said(part, logged, text)) or text
        except (LLMUnavailable, LLMReplyInvalid, LLMBudgetSpent) as error:
            log.warning("a day was not told", extra={"code": error.code})
        if text is None or text == earlier:
            return None
        return {"text": text, "model": llm.model_for(prompts.DayText), "prompt_version": prompt.id}

    return tell
