"""Summaries of a session and of a day, as the language model writes them. Without one there are none."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from app.actions.roll_ups import DayDescription, DescribeDay
from app.actions.schemas import ActionRecord
from app.core.clock import rfc3339
from app.core.language import sentences, word_count
from app.core.served_text import strip_served
from app.errors import LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.learning import prompts
from app.learning.checks import numbers_said
from app.learning.conversation_extractors import Conversation, source
from app.learning.dependencies import Tools
from app.learning.derivations import DerivationPlan, DerivationResult
from app.learning.episodes import Batch, chunks
from app.learning.episodes import lines as lines_of
from app.learning.extraction import UNSUPPORTED
from app.learning.learning_run import ModelAnswer, PartRequest, Skipped, ask, looked_at
from app.learning.prompts import TranscriptLine
from app.llm.base import LLM, Budget
from app.memories.embedding import Embeddings
from app.memories.repository import MemoryRepository
from app.sessions.repository import SessionRepository, SessionSummaries, SummaryText, expected
from app.sessions.schemas import SESSIONS
from app.storage.changes import Change, CommitConflict, Update
from app.storage.scope import Scope

MAX_WORDS = 150
"""The most words of a summary. In scripts without spaces two characters count as a word."""

PROMPT = "day"
MOST_CHUNKS = 3
"""The limit of chunks of a day that the model reads. The counts cover the whole day."""

log = logging.getLogger(__name__)


def day_teller(llm: LLM, tools: Tools) -> DescribeDay:
    """Returns a function that describes days in one run, with one budget for all of them. A sentence with a number
    that no log has is left out."""
    budget, prompt = llm.budget(), prompts.load(PROMPT)

    async def tell(actions: Sequence[ActionRecord], earlier: str | None) -> DayDescription | None:
        """Returns a text that continues `earlier`, with `model` and `prompt_version`. Returns None if the model fails;
        the day is then described by its counts and not kept waiting."""
        first = actions[0]
        batch = Batch(Scope(first["tenant_id"]), first["agent_id"], first["user_id"], actions)
        text, budget.allowance = earlier, tools.allowance(first["tenant_id"])
        try:
            limit = prompts.stretch(llm.prompt_tokens, [PROMPT])
            for chunk in islice(chunks(batch, limit, len(actions)), MOST_CHUNKS):
                request = chunk.data({"earlier": text})
                reply = await llm.reply(prompt.text, request, prompts.DayText, budget)
                written, logged = sentences(strip_served(reply.text)), lines_of(chunk)
                text = " ".join(part for part in written if _numbers_said(part, logged, text, looked=False)) or text
        except (LLMUnavailable, LLMReplyInvalid, LLMBudgetSpent) as error:
            log.warning("a day was not told", extra={"code": error.code})
        if text is None or text == earlier:
            return None
        return {"text": text, "model": llm.model_for(prompts.DayText), "prompt_version": prompt.id}

    return tell


class SummaryExtractor:
    """Updates the session's summary with a part of the conversation."""

    name = prompt = "summary"
    shape = prompts.Summary

    async def request(self, _: Tools, talk: Conversation) -> PartRequest:
        """Returns the earlier summary. Raises Skipped if there is no session, or if the summary covers the messages."""
        if talk.session is None:
            raise Skipped("there is no session")
        earlier = talk.session["summary"]
        if earlier and (talk.session.get("summary_seq") or 0) >= talk.lines[-1].seq:
            raise Skipped("the summary covers these messages")
        return PartRequest({"earlier": earlier})

    def may_hold(self, talk: Conversation, answer: ModelAnswer, sentence: str) -> bool:
        """Returns whether a sentence has no number that nobody said."""
        return _numbers_said(sentence, talk.lines, answer.request.known["earlier"], looked=True)

    def plan(self, tools: Tools, talk: Conversation, answer: ModelAnswer) -> DerivationPlan:
        """Returns the plan that stores the summary of an answer. Raises Skipped if none of its sentences is kept."""
        earlier = answer.request.known["earlier"]
        summary = faithful(answer.reply.summary, talk.lines, earlier, looked=answer.looked)
        written = replace(written_by(answer.model, talk, summary.text), rolls=earlier is not None)
        return stored(tools, talk, written, summary.dropped)


async def ask_for(tools: Tools, talk: Conversation, earlier: str | None, llm: LLM, budget: Budget) -> str:
    """Returns a summary of `earlier` and the lines of `talk` after the second look, or `earlier` if nothing is kept.
    Raises what the model's client raises."""
    part, request = SummaryExtractor(), PartRequest({"earlier": earlier})
    answer = ModelAnswer(await ask(talk, [(part, request)], llm, budget), request, llm.model_for(prompts.Summary))
    if tools.settings.llm.verify:
        ((_, answer),) = await looked_at(talk, [(part, answer)], llm, budget)
    return faithful(answer.reply.summary, talk.lines, earlier, looked=answer.looked).text or earlier or ""


@dataclass(frozen=True, slots=True)
class Faithful:
    """What is kept of a model's summary, and how many of its sentences were dropped, by reason."""

    text: str
    dropped: Counter[str]


def faithful(
    written: Sequence[str], lines: Sequence[TranscriptLine], earlier: str | None, *, looked: bool = False
) -> Faithful:
    """Returns the sentences of a model's summary that the second look left and whose numbers were said: at most
    `MAX_WORDS` words of them, and no more words than were said."""
    spoken = "\n".join([*(f"{line.name or ''} {line.text} {line.at}" for line in lines), earlier or ""])
    left = min(MAX_WORDS, word_count(spoken))
    taken: list[str] = []
    dropped: Counter[str] = Counter()
    dropped["unsupported"] = sum(sentence == UNSUPPORTED for sentence in written)
    for sentence in sentences(strip_served("\n".join(part for part in written if part != UNSUPPORTED))):
        if sentence in taken:
            dropped["known"] += 1
        elif not _numbers_said(sentence, lines, earlier, looked=looked):
            dropped["not_said"] += 1
        elif word_count(sentence) > left:
            dropped["invalid"] += 1
        else:
            left -= word_count(sentence)
            taken.append(sentence)
    return Faithful(" ".join(taken), +dropped)


def _numbers_said(sentence: str, lines: Sequence[TranscriptLine], earlier: str | None, *, looked: bool) -> bool:
    """Returns whether the numbers of a sentence stand in the conversation, in its times or in the earlier summary. The
    second look may find them there as words."""
    before = replace(lines[0], text=earlier) if earlier else None
    times = replace(lines[0], text=" ".join(line.at for line in lines))
    return numbers_said(sentence, [*lines, times, *([before] if before else [])]).enough(looked=looked)


def written_by(model: str, talk: Conversation, text: str) -> SummaryText:
    """Returns the model's text as a summary of the lines of `talk`."""
    origin, last = source(talk, prompts.load(SummaryExtractor.prompt), model), talk.lines[-1]
    memories = talk.message_memories  # a message has the trust of the memory made of it, or else of its role
    trust = min(memories[line.seq]["trust"] if line.seq in memories else line.trust for line in talk.lines)
    return SummaryText(text, trust, origin, last.seq, last.at)


def stored(
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
            raise Skipped("no sentence of the summary is kept")
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
        now = rfc3339(tools.clock.now())
        fields, changes = await summaries.write(session, summary, now)
        expect = {**expected(session), "version": session["version"]}  # clearing the messages bumps the version
        fields["updated_at"] = now
        update = Update(SESSIONS, talk.scope.tenant, session["session_id"], set=fields, expect=expect)
        result: DerivationResult = {"summary": summary.text}
        if dropped:
            result["dropped"] = dict(dropped)
        return result, [*changes, update]

    return plan
