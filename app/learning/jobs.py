"""Jobs that learn from a conversation: when it ends, periodically while it continues, or when a summary is requested.
Without a language model there is no summary."""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial

from app.core.schemas import Json
from app.core.work import off_loop
from app.jobs.queue import handled, skipping
from app.jobs.runner import Done, Run
from app.learning import conversation_extractors, learning_run, prompts
from app.learning.dependencies import Tools
from app.learning.derivations import commit_planned, undo_of
from app.learning.extraction import summary_of
from app.llm.base import LLM, configured
from app.memories.repository import MemoryRepository
from app.memories.schemas import MEMORIES, MemoryRecord
from app.sessions.repository import SessionRepository, was_said_in
from app.sessions.schemas import MESSAGES, SESSIONS, SessionRecord
from app.storage.changes import CommitConflict, Update
from app.storage.repository import pages
from app.storage.schema import Eq, both, value_at
from app.storage.scope import Scope

# --- Jobs -------------------------------------------------------------------------------------------------------------


STATEMENT_EXTRACTOR = conversation_extractors.StatementExtractor(("memories", "profile", "facts", "summary"))
EXTRACTORS: tuple[learning_run.Extractor[conversation_extractors.Conversation], ...] = (
    STATEMENT_EXTRACTOR,
    conversation_extractors.ExperienceExtractor(),
)
"""The extractors in the order in which they run."""
PAGE = 500
"""The number of records that one query reads."""

log = logging.getLogger(__name__)


class _SessionGone(Exception):
    """The session was deleted while the job was learning from it."""


class ConversationJobs:
    """Runs jobs on conversations."""

    def __init__(self, tools: Tools, llm: LLM | None) -> None:
        self._tools, self._llm = tools, llm

    async def learn(self, run: Run) -> Done:
        """Learns from the messages since the last run, extractor by extractor. If one fails, the results of the others
        stay; the job is retried and finally ends as `partial` with the reasons."""
        scope = Scope.of_bindings(run.tenant, run.payload)
        session = await self._session(run, scope)
        lines = [] if session is None else await self._lines(scope, session, session.get("learned_seq") or 0)
        report = learning_run.Report()
        if self._llm is None:
            result: Json | None = {"messages": len(lines), "llm": None}  # they wait for a model: `learned_seq` stays
            if lines:
                _skip_all_but("", report, learning_run.NO_LLM)
        else:
            result = await self._learn_with(self._llm, run, scope, lines, report)
        if result is None:
            return Done({"skipped": "the session is gone"})
        # partial: the last attempt learned some parts. Any other is tried again, or has failed, or waits for a time
        if report.failed and (report.waits or not report.advanced or not run.lease.last_attempt):
            raise report.unfinished()
        undo = await undo_of(run, self._tools)
        return Done({**result, "parts": report.parts}, undo, "partial" if report.failed else "succeeded")

    async def _learn_with(
        self, llm: LLM, run: Run, scope: Scope, lines: Sequence[prompts.TranscriptLine], report: learning_run.Report
    ) -> Json | None:
        """Returns None if the session is gone."""
        budget = llm.budget(self._tools.allowance(run.tenant))

        async def learned(talk: conversation_extractors.Conversation, done: int) -> None:
            await self._mark_learned(run, talk)
            await run.progress(done, len(lines))

        try:
            chunks = self._chunks(run, scope, lines, llm.prompt_tokens)
            learning = learning_run.LearningRun(self._tools, run, report)
            done = await learning.learn_from(chunks, lambda talk: _allowed(talk, report), learned, llm, budget)
        except _SessionGone:
            return None
        return {"messages": done, "small_talk": len(lines) - len(prompts.heard(lines)), "llm": budget.spent}

    async def _chunks(
        self, run: Run, scope: Scope, lines: Sequence[prompts.TranscriptLine], prompt_tokens: int
    ) -> AsyncIterator[conversation_extractors.Conversation]:
        """Yields the conversation in chunks. Raises _SessionGone if the session was deleted meanwhile."""
        for chunk in await prompts.chunked(lines, prompt_tokens):
            session = await self._session(run, scope)
            if session is None:
                raise _SessionGone
            yield await self._talk(scope, session, chunk)

    async def summarize(self, run: Run) -> Done:
        """Writes a new summary of the whole session. Raises what the model's client raises."""
        scope = Scope.of_bindings(run.tenant, run.payload)
        if self._llm is None and run.lease.job.operation_id is None:
            return Done({"skipped": learning_run.NO_LLM})  # queued while there was a model
        session = await self._session(run, scope)
        lines = [] if session is None else await self._lines(scope, session, 0)
        if session is None or not prompts.heard(lines):
            return Done({"skipped": "there is nothing to summarize"})
        llm = configured(self._llm)
        budget, talk = llm.budget(self._tools.allowance(run.tenant)), await self._talk(scope, session, lines)
        with skipping(SESSIONS, session["session_id"]):
            chunks, summary = await prompts.chunked(talk.lines, llm.prompt_tokens), ""
            for number, chunk in enumerate(chunks, start=1):
                of_chunk = replace(talk, lines=chunk)
                answer = await replace(STATEMENT_EXTRACTOR, names=("summary",)).ask(self._tools, of_chunk, llm, budget)
                _, statements = await conversation_extractors.accepted(self._tools, of_chunk, [answer])
                summary = summary_of(summary, statements, {}, ()) or summary
                await run.progress(number, len(chunks))
            written = conversation_extractors.written_by(llm.model, talk, summary)
            try:
                result = await commit_planned(run, conversation_extractors.summary_plan(self._tools, talk, written))
            except learning_run.Skipped as why:
                return Done({"skipped": str(why), "llm": budget.spent})
            return Done({"summary": result["summary"], "llm": budget.spent})
        return Done({"skipped": "what the session holds cannot be handled", "llm": budget.spent})

    # --- Reading ------------------------------------------------------------------------------------------------------

    async def _session(self, run: Run, scope: Scope) -> SessionRecord | None:
        """Returns the session, or None if it is gone or does not belong to the owners in `of`, which a task named."""
        session = await SessionRepository(self._tools.store, scope).find_one(run.payload["session_id"])
        named = {name: owner for name, owner in (run.payload.get("of") or {}).items() if owner is not None}
        return session if session and all(value_at(session, name) == owner for name, owner in named.items()) else None

    async def _lines(self, scope: Scope, session: SessionRecord, after: int) -> list[prompts.TranscriptLine]:
        """Returns the messages after that number."""
        sessions = SessionRepository(self._tools.store, scope)
        lines: list[prompts.TranscriptLine] = []
        async for page in pages(partial(sessions.messages.find, sessions.within(session, after)), MESSAGES, PAGE):
            size = sum(len(str(message.get("text"))) for message in page)
            lines += await off_loop(size, prompts.read, page)
        return lines

    async def _talk(
        self, scope: Scope, session: SessionRecord, lines: Sequence[prompts.TranscriptLine]
    ) -> conversation_extractors.Conversation:
        of_session = both(Eq("source.session_id", session["session_id"]), Eq("memory_type", "message"))
        by_seq: dict[int, MemoryRecord] = {}
        memories = MemoryRepository(self._tools.store, scope)
        async for page in pages(partial(memories.find, of_session), MEMORIES, PAGE, "desc"):
            # the number of the message that a memory was made of; None if it was said in another session of this name
            numbered = handled(
                MEMORIES,
                page,
                lambda memory: memory["source"]["message_seq"] if was_said_in(session, memory) else None,
            )
            by_seq |= {seq: memory for memory, seq in numbered if seq is not None}
            if by_seq and min(by_seq) <= lines[0].seq:
                break
        return conversation_extractors.Conversation(
            scope, session["agent_id"], session["user_id"], lines, by_seq, session
        )

    # --- Writing ------------------------------------------------------------------------------------------------------

    async def _mark_learned(self, run: Run, talk: conversation_extractors.Conversation) -> None:
        session, seq = talk.session, talk.lines[-1].seq
        assert session is not None
        same = {"created_at": session.get("created_at"), "revised": session.get("revised")}
        learned: SessionRecord = {"learned_seq": seq}
        change = Update(SESSIONS, run.tenant, session["session_id"], set=learned, expect=same)
        try:
            await run.commit([change])
        except CommitConflict:
            log.info("the session is gone, or messages were changed meanwhile")


def _allowed(
    talk: conversation_extractors.Conversation, report: learning_run.Report
) -> Sequence[learning_run.Extractor[conversation_extractors.Conversation]]:
    """Returns the extractors for the session. If it remembers nothing, only its summary is written. Of small talk
    alone, only the agent may learn: from the tools that it called."""
    remembers = talk.session is None or talk.session["memorize"] != "none"
    if not prompts.heard(talk.lines):
        return _skip_all_but("experience" if remembers else "", report, learning_run.SMALL_TALK_ONLY)
    if remembers:
        return EXTRACTORS
    _skip_all_but("summary", report, "the session remembers nothing")
    return [replace(STATEMENT_EXTRACTOR, names=("summary",))]


def _skip_all_but(
    name: str, report: learning_run.Report, why: str
) -> Sequence[learning_run.Extractor[conversation_extractors.Conversation]]:
    """Notes that the other extractors are skipped, and returns those of that name."""
    for skipped in (one for extractor in EXTRACTORS for one in extractor.names if one != name):
        report.skip(skipped, why)
    return [extractor for extractor in EXTRACTORS if name in extractor.names]
