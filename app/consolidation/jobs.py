"""Learning from a conversation when it ends, now and then while it goes on, or when a summary is asked for."""

import logging
from collections.abc import Sequence
from functools import partial

from app.consolidation import prompts, transcript
from app.consolidation.deeds import commit_noted, undo_of
from app.consolidation.models import DERIVATIONS
from app.consolidation.parts import PARTS, Part, Skipped, Summary, Talk
from app.consolidation.told import NO_LLM, Told, Unfinished
from app.consolidation.tools import ALWAYS, Tools
from app.errors import Forbidden, LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.jobs.runner import Done, Run
from app.llm.budget import Budget
from app.llm.llm import LLM, configured
from app.memories.models import MEMORIES
from app.memories.repository import MemoryRepository
from app.offload import off_loop
from app.profiles.schemas import InteractionIn
from app.sessions.models import MESSAGES, SESSIONS
from app.sessions.repository import SessionRepository
from app.storage.collection import Change, CommitConflict, Doc, Update
from app.storage.filters import Eq, both
from app.storage.repository import pages
from app.storage.scope import Scope

PAGE = 500
SAID_CHARS = 200
INTERACTION = "interaction"

log = logging.getLogger(__name__)


class ConversationJobs:
    def __init__(self, tools: Tools, llm: LLM | None, undo_days: float) -> None:
        self._tools, self._llm, self._undo_days = tools, llm, undo_days

    async def learn(self, run: Run) -> Done:
        """What came since the last time, part by part. What is done stays done when another part fails: the job is
        then tried again, and ends as `partial` with the reasons."""
        scope = Scope.of_bindings(run.tenant, run.payload)
        session = await self._session(run, scope)
        lines = [] if session is None else await self._lines(scope, session, session.get("learned_seq") or 0)
        told, done = Told(), 0
        budget = None if self._llm is None else self._llm.budget()
        for chunk in await transcript.chunked(lines):
            session = await self._session(run, scope)
            if session is None:
                return Done({"skipped": "the session is gone"})
            talk = await self._talk(scope, session, chunk)
            for part in PARTS:
                await self._learn(run, part, talk, budget, told)
            if told.failed:
                break
            await self._learned(run, session, chunk[-1].seq)
            done += len(chunk)
            await run.progress(done, len(lines))
        if run.payload.get("ended") and lines:
            await self._note_interaction(run, scope, lines, told)
        return await self._over(run, told, {"messages": done, "llm": None if budget is None else budget.spent})

    async def _over(self, run: Run, told: Told, result: Doc) -> Done:
        if told.failed and (not told.done or not run.lease.last_attempt):
            raise Unfinished("; ".join(f"{name}: {why}" for name, why in told.failed.items()))
        whole = not told.failed and self._llm is not None
        undo = await undo_of(run, self._undo_days)
        return Done({**result, "parts": told.parts}, undo, "succeeded" if whole else "partial")

    async def summarize(self, run: Run) -> Done:
        """A summary of all that the session holds, made anew. Raises what the model's client raises."""
        scope = Scope.of_bindings(run.tenant, run.payload)
        session = await self._session(run, scope)
        lines = [] if session is None else await self._lines(scope, session, 0)
        if session is None or not lines:
            return Done({"skipped": "there is nothing to summarize"})
        llm = configured(self._llm)
        budget, earlier = llm.budget(), None
        chunks = await transcript.chunked(lines)
        for number, chunk in enumerate(chunks, start=1):
            talk = await self._talk(scope, session | {"summary": earlier}, chunk)
            plan = await Summary().learn(self._tools, talk, llm, budget)
            result, changes = await plan()
            earlier = result["summary"]
            await run.commit(changes if number == len(chunks) else [])
            await run.progress(number, len(chunks))
        return Done({"summary": earlier, "llm": budget.spent})

    # --- What is read -------------------------------------------------------------------------------------------------

    async def _session(self, run: Run, scope: Scope) -> Doc | None:
        """None where it is gone, or is not `of` whom a task named it for."""
        session = await SessionRepository(self._tools.store, scope).find_one(run.payload["session_id"])
        named = {name: owner for name, owner in (run.payload.get("of") or {}).items() if owner is not None}
        return session if session and all(session[name] == owner for name, owner in named.items()) else None

    async def _lines(self, scope: Scope, session: Doc, after: int) -> list[transcript.Line]:
        """What was said after that message."""
        sessions = SessionRepository(self._tools.store, scope)
        lines: list[transcript.Line] = []
        async for docs in pages(partial(sessions.messages.find, sessions.within(session, after)), MESSAGES, PAGE):
            size, trust = sum(len(doc["text"]) for doc in docs), self._tools.settings.trust
            lines += await off_loop(size, transcript.read, docs, trust)
        return lines

    async def _talk(self, scope: Scope, session: Doc, lines: Sequence[transcript.Line]) -> Talk:
        of_session = both(Eq("source.session_id", session["session_id"]), Eq("memory_type", "message"))
        said: dict[int, Doc] = {}
        memories = MemoryRepository(self._tools.store, scope)
        async for docs in pages(partial(memories.find, of_session), MEMORIES, PAGE, "desc"):
            said |= {doc["source"]["message_seq"]: doc for doc in docs}
            if min(said) <= lines[0].seq:
                break
        return Talk(scope, session["agent_id"], session["user_id"], lines, said, session)

    # --- One part -----------------------------------------------------------------------------------------------------

    async def _learn(self, run: Run, part: Part, talk: Talk, budget: Budget | None, told: Told) -> None:
        if self._llm is None or budget is None:
            told.skip(part.name, NO_LLM)
            return
        if talk.session is not None and talk.session["memorize"] == "none" and part.name != Summary.name:
            told.skip(part.name, "the session remembers nothing")
            return
        made_of = _derivation_id(part.name, prompts.load(part.prompt).id, talk)
        if await self._tools.store.get(DERIVATIONS, run.tenant, made_of) is not None:
            told.skip(part.name, "learned before")
            return
        try:
            plan = await part.learn(self._tools, talk, self._llm, budget)
            told.add(part.name, await commit_noted(run, plan, made_of, self._stretch(talk)) or {})
        except Skipped as why:
            told.skip(part.name, str(why))
        except Forbidden as fault:
            told.skip(part.name, fault.detail)
        except (LLMUnavailable, LLMReplyInvalid, LLMBudgetSpent) as fault:
            log.warning("a part was not learned", extra={"part": part.name, "code": fault.code})
            told.fail(part.name, fault.detail)

    def _stretch(self, talk: Talk) -> Doc:
        """Whose it is, and of what, for the note."""
        assert talk.session is not None
        seqs = {"from_seq": talk.lines[0].seq, "to_seq": talk.lines[-1].seq}
        return {**talk.owner, "session_id": talk.session["session_id"], **seqs}

    async def _learned(self, run: Run, session: Doc, seq: int) -> None:
        """Without a model nothing was learned: what was said waits for one."""
        if self._llm is None:
            return
        same = {"created_at": session["created_at"]}
        change = Update(SESSIONS, run.tenant, session["session_id"], set={"learned_seq": seq}, expect=same)
        try:
            await run.commit([change])
        except CommitConflict:
            log.info("the session is gone")

    async def _note_interaction(self, run: Run, scope: Scope, lines: Sequence[transcript.Line], told: Told) -> None:
        """Needs no model: without a summary, the user's first words stand for the conversation."""
        session = await self._session(run, scope)
        if session is None or session["memorize"] == "none":
            return
        user_id, users = session["user_id"], self._tools.users(scope)
        talk = Talk(scope, session["agent_id"], user_id, lines, {}, session)
        made_of = _derivation_id(INTERACTION, "", talk)
        if await self._tools.store.get(DERIVATIONS, run.tenant, made_of) is not None:
            return
        said = session["summary"] or next((line.text for line in lines if line.role == "user"), lines[0].text)
        entry = InteractionIn(summary=" ".join(said.split())[:SAID_CHARS], timestamp=lines[-1].at)

        async def plan() -> tuple[Doc, list[Change]]:
            outcome = await users.interact(user_id, entry, ALWAYS)
            return {"noted": 1}, list(outcome.changes)

        try:
            told.add(INTERACTION, await commit_noted(run, plan, made_of, self._stretch(talk)) or {})
        except Forbidden as fault:
            told.skip(INTERACTION, fault.detail)


def _derivation_id(part: str, prompt_id: str, talk: Talk) -> str:
    assert talk.session is not None
    of = (part, prompt_id, talk.session["session_id"], talk.session["created_at"])
    return f"der_{transcript.digest(talk.lines, *of)}"
