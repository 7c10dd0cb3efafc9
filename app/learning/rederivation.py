"""The job that judges again what was learned from a message, once the message was edited or deleted.

It finds the derivations whose messages include the changed one, and of their records those that name it. With a
language model these go, and the conversation is learned from again, which brings back what the other messages say.
Without one nothing could bring them back: a record that names other messages, too, stays and no longer names this one.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from app.core.clock import new_id, rfc3339
from app.errors import NotFound
from app.facts.repository import FactRepository
from app.facts.schemas import FACTS, FactRecord
from app.jobs.queue import OPERATIONS, POST_CONVERSATION, SUMMARIZE, Job, OperationResult, handled, skipping
from app.jobs.runner import Done, Run
from app.learning.dependencies import Tools
from app.learning.derivations import DERIVATIONS, DerivationRecord
from app.memories.repository import MemoryRepository
from app.memories.schemas import MEMORIES, STATEMENTS, MemoryRecord, Source
from app.memories.service import Succession
from app.sessions.repository import SessionRepository
from app.sessions.schemas import SESSIONS, SessionRecord
from app.sessions.service import QUIET
from app.storage.changes import Change, Delete, DeleteWhere, Insert, Update
from app.storage.repository import pages
from app.storage.schema import Eq
from app.storage.scope import Scope

PAGE = 50


class Rederivation:
    """Runs the job. `learns`: a language model is configured."""

    def __init__(self, tools: Tools, *, learns: bool) -> None:
        self._tools, self._store, self._clock, self._learns = tools, tools.store, tools.clock, learns

    async def handle(self, run: Run) -> Done:
        """Judges what was learned from one message. Each record is a commit, so an interrupted run can be repeated."""
        scope, payload = Scope(run.tenant), run.payload
        session = await SessionRepository(self._store, scope).find_one(payload["session_id"])
        if session is None:
            return Done({"skipped": "the session is gone"})
        find = partial(self._store.find, DERIVATIONS, run.tenant, Eq("session_id", session["session_id"]))
        notes, covering = list[DerivationRecord](), list[DerivationRecord]()
        async for page in pages(find, DERIVATIONS, PAGE):
            covers = handled(
                DERIVATIONS,
                page,
                lambda note: _learned(note) and note["from_seq"] <= payload["seq"] <= note["to_seq"],
            )
            notes += [note for note, _ in covers if _learned(note)]
            covering += [note for note, covers_it in covers if covers_it]
        judge = _Judge(run, self._tools, scope, learns=self._learns)
        for note in covering:
            with skipping(DERIVATIONS, note["derivation_id"]):
                await judge.judge(note)
        summaries = [note for note in notes if "summary" in note["result"]]
        quoted = [note for note in covering if "quotes" in note["result"]]
        gone: list[Change] = [Delete(DERIVATIONS, run.tenant, note["derivation_id"]) for note in summaries]
        if payload["memory_id"] is not None:  # its quotes of what was learned before, too
            gone.append(DeleteWhere(STATEMENTS, run.tenant, Eq("learned_from", payload["memory_id"])))
        rekeyed = [change for note in covering if note not in summaries for change in _rekeyed(note)]
        unsaid = await self._unsaid(run, summaries, quoted)
        await run.commit([*gone, *unsaid, *rekeyed, *self._learn_again(run, session, judge)])
        return Done({"judged": judge.count})

    async def _unsaid(
        self, run: Run, summaries: Sequence[DerivationRecord], quoted: Sequence[DerivationRecord]
    ) -> list[Change]:
        """Returns the changes that remove texts of summaries and quotes of the profile from the operations of their
        derivations, one for each operation."""
        results: dict[str, OperationResult] = {}
        cleared: tuple[tuple[str, str, object, Sequence[DerivationRecord]], ...] = (
            ("summary", "summary", None, summaries),
            ("profile", "quotes", [], quoted),
        )
        for part, field, value, notes in cleared:
            for operation_id in {note["operation_id"] for note in notes}:
                if operation_id is None:
                    continue
                if operation_id not in results:
                    operation = await self._store.get(OPERATIONS, run.tenant, operation_id)
                    results[operation_id] = (None if operation is None else operation["result"]) or {}
                parts = results[operation_id].get("parts") or {}
                if field in parts.get(part, {}):
                    parts = parts | {part: parts[part] | {field: value}}
                    results[operation_id] = results[operation_id] | {"parts": parts}
        return [
            Update(OPERATIONS, run.tenant, operation_id, set={"result": result})
            for operation_id, result in results.items()
            if result
        ]

    def _learn_again(self, run: Run, session: SessionRecord, judge: "_Judge") -> list[Change]:
        """Returns the changes that queue a new summary, and learning from the messages that were judged."""
        changes, kinds = list[Change](), [SUMMARIZE] if run.payload["summarize"] else []
        learned_seq = session.get("learned_seq") or 0
        if self._learns and session["memorize"] != "none" and (judge.count or learned_seq >= judge.first_seq):
            same = {"created_at": session.get("created_at"), "learned_seq": session.get("learned_seq")}
            before: SessionRecord = {"learned_seq": min(learned_seq, judge.first_seq - 1)}
            changes.append(Update(SESSIONS, run.tenant, session["session_id"], set=before, expect=same))
            kinds.append(POST_CONVERSATION)
        bound = Scope.of_bindings(run.tenant, run.payload).bindings()
        payload = {"session_id": session["session_id"], **bound}
        return [*changes, *(Job(kind, run.tenant, payload).enqueue(self._clock.now() + QUIET) for kind in kinds)]


class _Judge:
    """Judges the records of derivations. `first_seq`: the first message that has to be learned from again."""

    def __init__(self, run: Run, tools: Tools, scope: Scope, *, learns: bool) -> None:
        self._run, self._tools, self._learns = run, tools, learns
        self._memories, self._facts = MemoryRepository(run.store, scope), FactRepository(run.store, scope)
        self._session_id, self._memory_id = run.payload["session_id"], run.payload["memory_id"]
        self.first_seq: int = run.payload["seq"]
        self.count = 0

    async def judge(self, note: DerivationRecord) -> None:
        """Judges the memories and facts of one derivation."""
        memories = await self._memories.get_many(note["result"].get("memory_ids") or [])
        facts = await self._facts.get_many(note["result"].get("fact_ids") or [])
        for memory in memories.values():
            with skipping(MEMORIES, memory["memory_id"]):
                if self._names(memory["source"]):
                    await self._judge_memory(memory, note)
        for fact in facts.values():
            with skipping(FACTS, fact["fact_id"]):
                if self._names(fact["source"]):
                    await self._judge_fact(fact, note)

    def _names(self, source: Source) -> bool:
        """Returns whether the record was learned from the message. Of a session without memories of its messages no
        record says which ones it was learned from."""
        learned = source["origin"] in ("extraction", "import") and source["session_id"] == self._session_id
        return learned and (not source["memory_ids"] or self._memory_id in source["memory_ids"])

    async def _judge_memory(self, memory: MemoryRecord, note: DerivationRecord) -> None:
        changes: list[Change]
        if (source := self._source_left(memory["source"])) is None:
            succession = Succession(self._memories, rfc3339(self._run.clock.now()))
            # what the memory had superseded comes back
            changes = await succession.deletion(memory)
        else:
            fields, same = MemoryRecord(source=source), {"version": memory["version"]}
            changes = [Update(MEMORIES, self._run.tenant, memory["memory_id"], set=fields, expect=same)]
        await self._commit(changes, memory["source"], note)

    async def _judge_fact(self, fact: FactRecord, note: DerivationRecord) -> None:
        changes: list[Change] = []
        if (source := self._source_left(fact["source"])) is not None:
            fields, same = FactRecord(source=source), {"version": fact["version"]}
            changes = [Update(FACTS, self._run.tenant, fact["fact_id"], set=fields, expect=same)]
        else:
            with suppress(NotFound):
                changes = await self._tools.facts(self._facts.scope).deletion(fact)
        await self._commit(changes, fact["source"], note)

    def _source_left(self, source: Source) -> Source | None:
        """Returns the source of a record that stays, without the message, or None if the record goes."""
        others = self._others(source)
        return {**source, "memory_ids": others} if others and not self._learns else None

    def _others(self, source: Source) -> list[str]:
        return [memory_id for memory_id in source["memory_ids"] if memory_id != self._memory_id]

    async def _commit(self, changes: list[Change], source: Source, note: DerivationRecord) -> None:
        await self._run.commit(changes)
        self.count += 1
        # what the record was learned from besides the changed message is learned from again, too
        if others := self._others(source):
            memories = await self._memories.get_many(others)
            seqs = [memory["source"]["message_seq"] for memory in memories.values()]
            self.first_seq = min([self.first_seq, *(seq for seq in seqs if seq is not None)])
        elif self._memory_id is None:
            self.first_seq = min(self.first_seq, note["from_seq"])


def _learned(note: DerivationRecord) -> bool:
    """Returns whether a derivation learned from messages."""
    return "from_seq" in note


def _rekeyed(note: DerivationRecord) -> list[Change]:
    """Returns the changes that give a derivation another id, so that its messages may be learned from again, and that
    remove the steps of its undo and its quotes, which may hold what the message said."""
    result = note["result"].copy()
    if "quotes" in result:
        result["quotes"] = []
    again: DerivationRecord = {**note, "derivation_id": new_id("der"), "undo": [], "result": result}
    return [Delete(DERIVATIONS, note["tenant_id"], note["derivation_id"]), Insert(DERIVATIONS, again)]
