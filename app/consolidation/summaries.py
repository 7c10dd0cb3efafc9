"""The summary of a session: written by the language model, or quoted from the conversation where there is none."""

from dataclasses import replace

from app.clock import rfc3339
from app.consolidation import extracts, prompts, shapes
from app.consolidation.deeds import Plan
from app.consolidation.parts import Skipped, Talk, source
from app.consolidation.tools import Tools
from app.consolidation.transcript import data
from app.llm.budget import Budget
from app.llm.llm import LLM
from app.memories.embeddings import Embeddings
from app.memories.repository import MemoryRepository
from app.offload import off_loop
from app.sessions.models import SESSIONS
from app.sessions.repository import SessionRepository
from app.sessions.summaries import EXTRACT, SessionSummaries, SummaryText, expected, is_extract
from app.storage.collection import Change, Doc, Update

EXTRACT_SOURCE = {"origin": "consolidation", "prompt_version": extracts.VERSION}


class Summary:
    """A part of what is learned: the summary so far goes on with a stretch of the conversation."""

    name = prompt = "summary"

    async def learn(self, tools: Tools, talk: Talk, llm: LLM, budget: Budget) -> Plan:
        if talk.session is None:
            raise Skipped("there is no session")
        earlier = talk.session["summary"]
        text = await ask(talk, earlier, llm, budget)
        return stored(tools, talk, replace(written_by(llm, talk, text), rolls=earlier is not None))


async def ask(talk: Talk, earlier: str | None, llm: LLM, budget: Budget) -> str:
    """A summary of `earlier` and the lines of `talk`. Raises what the model's client raises."""
    prompt = prompts.load(Summary.prompt)
    reply = await llm.reply(prompt.text, data(talk.lines, earlier=earlier), shapes.Summary, budget)
    return reply.summary.strip()


def written_by(llm: LLM, talk: Talk, text: str) -> SummaryText:
    """What the model wrote of the lines of `talk`."""
    origin, last = source(talk, prompts.load(Summary.prompt), llm), talk.lines[-1]
    return SummaryText(text, least_trust(talk), origin, last.seq, last.at)


async def extracted(tools: Tools, talk: Talk) -> Plan:
    """The plan of an extract of all lines of `talk`. Raises Skipped where a summary stands that is no extract: one that
    a model or a caller wrote says more."""
    session, lines = talk.session, talk.lines
    assert session is not None
    if session["summary"] and not is_extract(session):
        raise Skipped("a summary stands that was written")
    quoted = await off_loop(sum(len(line.text) for line in lines), extracts.extract, lines)
    if not quoted:
        raise Skipped("nothing was said that can be quoted")
    trust, last = least_trust(talk), lines[-1]
    return stored(tools, talk, SummaryText(EXTRACT + quoted, trust, dict(EXTRACT_SOURCE), last.seq, last.at))


def least_trust(talk: Talk) -> float:
    """Of the messages: of the memory that a message left, else by its role."""
    return min(float(talk.said[line.seq]["trust"]) if line.seq in talk.said else line.trust for line in talk.lines)


def stored(tools: Tools, talk: Talk, summary: SummaryText) -> Plan:
    """The plan that stores the summary of `talk`. It reads the session again each time, and raises Skipped where the
    summary has nothing to stand for any more."""
    sessions = SessionRepository(tools.store, talk.scope)
    begun = talk.session
    assert begun is not None
    summaries = SessionSummaries(MemoryRepository(tools.store, talk.scope), Embeddings(tools.embedder))

    async def plan() -> tuple[Doc, list[Change]]:
        session = await sessions.find_one(begun["session_id"])
        if session is None or session["created_at"] != begun["created_at"]:
            raise Skipped("the session is gone")
        if (session.get("summary_seq") or 0) > (summary.seq or 0):
            raise Skipped("a later summary stands")
        if not await _covered(sessions, session, summary.seq):
            raise Skipped("the messages are gone")
        now = rfc3339(tools.clock.now())
        fields, changes = await summaries.write(session, summary, now)
        expect = {**expected(session), "version": session["version"]}  # clearing the messages moves the version
        fields["updated_at"] = now
        update = Update(SESSIONS, talk.scope.tenant, session["session_id"], set=fields, expect=expect)
        return {"summary": summary.text}, [*changes, update]

    return plan


async def _covered(sessions: SessionRepository, session: Doc, seq: int | None) -> bool:
    """Whether the last message that the summary covers is still there."""
    if seq is None:
        return True
    return bool(await sessions.messages.find(sessions.within(session, seq - 1, seq + 1), limit=1))
