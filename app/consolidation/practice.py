"""What is learned from what was done: facts, and ways of doing things. Each part asks the model once."""

from collections import Counter
from typing import Protocol

import orjson

from app.clock import rfc3339, to_ms
from app.consolidation import book, episodes, merge, prompts, shapes
from app.consolidation.deeds import Plan
from app.consolidation.episodes import Batch
from app.consolidation.tools import Tools
from app.llm.budget import Budget
from app.llm.llm import LLM
from app.memories.embeddings import Embeddings
from app.memories.lookup import Lookup, Wanted
from app.procedures.documents import new_procedure, passage
from app.procedures.models import PROCEDURES
from app.procedures.repository import ProcedureRepository
from app.procedures.schemas import ProcedureCreate
from app.profiles.models import USERS
from app.storage.collection import Change, Doc
from app.storage.filters import Eq
from app.storage.repository import Repository
from app.storage.scope import Pair
from app.storage.text import normalise_content

KNOWN_PROCEDURES = 20
QUERY_CHARS = 2_000


class Part(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def prompt(self) -> str: ...

    async def learn(self, tools: Tools, batch: Batch, llm: LLM, budget: Budget) -> Plan:
        """Asks the model. Raises what its client raises."""
        ...


class EpisodeFacts:
    name, prompt = "facts", "episode_facts"

    async def learn(self, tools: Tools, batch: Batch, llm: LLM, budget: Budget) -> Plan:
        prompt = prompts.load(self.prompt)
        known = await book.known(tools, batch.scope, _told(batch), _pair(batch))
        asked = _data(batch, user_name=await _user_name(tools, batch), known_facts=known)
        reply = await llm.reply(prompt.text, asked, shapes.FoundFacts, budget)
        origin = _source(prompt, llm)

        async def plan() -> tuple[Doc, list[Change]]:
            dropped: merge.Dropped = Counter()
            pairs = episodes.facts(reply.facts, batch, dropped)
            return await book.asserted(tools, batch.scope, pairs, dropped, origin, "action_ids")

        return plan


class EpisodeProcedures:
    name = prompt = "procedures"

    async def learn(self, tools: Tools, batch: Batch, llm: LLM, budget: Budget) -> Plan:
        prompt = prompts.load(self.prompt)
        known = await self._known(tools, batch)
        shown = [{name: doc[name] for name in ("procedure_id", "name", "trigger", "steps", "notes")} for doc in known]
        reply = await llm.reply(prompt.text, _data(batch, known_procedures=shown), shapes.FoundProcedures, budget)
        ids = [doc["procedure_id"] for doc in known]
        embeddings, origin = Embeddings(tools.embedder), _source(prompt, llm)

        async def plan() -> tuple[Doc, list[Change]]:
            merging = _Merging(tools, batch, embeddings, origin)
            await merging.take(reply.procedures, ids)
            return merging.result(), merging.changes

        return plan

    async def _known(self, tools: Tools, batch: Batch) -> list[Doc]:
        """Of the same pair: others' are not this one's to change."""
        lookup = Lookup(tools.store, batch.scope, tools.embedder, PROCEDURES)
        now_ms = to_ms(tools.clock.now())
        wanted = Wanted(_told(batch), _pair(batch), Eq("status", "active"), now_ms, KNOWN_PROCEDURES)
        return [hit.doc for hit in (await lookup.find(wanted)).hits]


class _Merging:
    """From what the model said of procedures to changes: each procedure is made or refined once."""

    def __init__(self, tools: Tools, batch: Batch, embeddings: Embeddings, origin: Doc) -> None:
        self._procedures = ProcedureRepository(tools.store, batch.scope)
        self._batch, self._embeddings, self._origin = batch, embeddings, origin
        self._now = rfc3339(tools.clock.now())
        self._dropped: merge.Dropped = Counter()
        self._made: list[str] = []
        self._refined: list[str] = []
        self.changes: list[Change] = []

    async def take(self, found: list[shapes.FoundProcedure], shown: list[str]) -> None:
        known = await self._procedures.get_many(shown)
        names: set[str] = set()
        for one in found:
            said = episodes.procedure(one, self._batch, self._dropped)
            if said is None:
                continue
            body, cited = said
            old = await self._old(one.procedure_id, body, known)
            key = normalise_content(body.name) if old is None else str(old["procedure_id"])
            if key in names:
                self._dropped["twice"] += 1
            elif old is not None:
                self._refine(old, body, cited)
            elif episodes.worked(cited):
                await self._make(body, cited)
            else:
                self._dropped["never_worked"] += 1
            names.add(key)

    async def _old(self, procedure_id: str | None, body: ProcedureCreate, known: dict[str, Doc]) -> Doc | None:
        """The one that the model was shown under that id, else the one of that name."""
        old = known.get(procedure_id) if procedure_id else None
        if old is not None and old["status"] == "active":
            return old
        if procedure_id:
            self._dropped["invented_ids"] += 1
        return await self._procedures.named(self._batch.agent_id, self._batch.user_id, normalise_content(body.name))

    def _refine(self, old: Doc, body: ProcedureCreate, cited: list[Doc]) -> None:
        changed = episodes.refined(old, body, cited, self._dropped)
        if changed:
            self.changes += self._procedures.revise(old, changed, self._now)
            self._refined.append(old["procedure_id"])

    async def _make(self, body: ProcedureCreate, cited: list[Doc]) -> None:
        source = {**self._origin, "action_ids": [doc["action_id"] for doc in cited]}
        doc = new_procedure(body.model_dump(), source, self._now)
        (entry,) = await self._embeddings.entries([passage(doc)])
        doc["embedding"] = self._embeddings.info(entry)
        self.changes += self._procedures.add(doc, entry)
        self._made.append(doc["procedure_id"])

    def result(self) -> Doc:
        return {"procedure_ids": self._made, "refined_ids": self._refined, "dropped": dict(self._dropped)}


PARTS: tuple[Part, ...] = (EpisodeFacts(), EpisodeProcedures())


def _source(prompt: prompts.Prompt, llm: LLM) -> Doc:
    return {"origin": "consolidation", "model": llm.model, "prompt_version": prompt.id}


def _data(batch: Batch, **known: object) -> str:
    return orjson.dumps({**known, "episodes": batch.shown()}).decode()


def _told(batch: Batch) -> str:
    """What was done, to look for what is near."""
    return "\n".join(episode["content"] for episode in batch.shown())[-QUERY_CHARS:]


def _pair(batch: Batch) -> tuple[Pair, ...]:
    return (Pair(batch.agent_id, batch.user_id),)


async def _user_name(tools: Tools, batch: Batch) -> str:
    if batch.user_id is None:
        return "user"
    user = await Repository(tools.store, batch.scope, USERS).find_one(batch.user_id)
    return (user and user["profile"]["name"]) or batch.user_id
