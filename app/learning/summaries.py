"""Summaries of a session and of a day: written by the language model, or extracts if there is none."""

import logging
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from app.core.clock import rfc3339
from app.core.served_text import strip_served
from app.core.work import off_loop
from app.errors import LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.learning import prompts
from app.learning.conversation_extractors import Conversation, source
from app.learning.dependencies import Tools
from app.learning.derivations import DerivationPlan
from app.learning.episodes import Batch, chunks
from app.learning.learning_run import Answer, PartRequest, Skipped, ask
from app.learning.output_validation import borne_out
from app.learning.prompts import SENTENCE_END, TranscriptLine
from app.llm.base import LLM, Budget
from app.memories.models import Embeddings
from app.memories.repository import MemoryRepository
from app.sessions.repository import EXTRACT, SessionRepository, SessionSummaries, SummaryText, expected, is_extract
from app.sessions.schemas import SESSIONS
from app.storage.changes import Change, CommitConflict, Update
from app.storage.schema import Doc
from app.storage.search import Scope
from app.storage.text import UNSPACED, terms

VERSION = "extract.1"
"""The version of extracts. It takes the place of a prompt's version in the source of a summary."""
MAX_WORDS = 150
FIRST_WORDS = 50
"""The limit for the user's first message."""
SENTENCE_WORDS = 40
"""A longer sentence is cut, so that one log line or table does not fill the whole extract."""
SAID_AGAIN = 1 / 3
"""The factor for the weight of a term that the extract already contains."""
SHORT_TERMS = 4
"""The worth of a sentence is its weight divided by its number of terms, but at least by this: "Yes, Berlin." alone says
little."""
CONSIDERED = 2_000
"""The number of last sentences that are considered, since each choice compares all of them."""

_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of a message, with its distinct terms and its number of words."""

    line: int
    """The index of its message."""
    text: str
    terms: tuple[str, ...]
    words: int


def extract(lines: Sequence[TranscriptLine], words: int = MAX_WORDS) -> str:
    """Returns at most `words` words of the conversation, with the name or role of the speaker before each run of
    sentences. In scripts without spaces two characters count as a word. Returns an empty string if the lines have no
    text."""
    first = next((at for at, line in enumerate(lines) if line.role == "user"), 0)
    sentences = list(_sentences(lines, first))
    opening = list(_opening(sentences, first, min(FIRST_WORDS, words)))
    chosen = [*opening, *_choice(sentences, opening, lines, words - sum(one.words for one in opening))]
    return _joined(lines, sorted(chosen, key=sentences.index))


def _sentences(lines: Sequence[TranscriptLine], first: int) -> Iterator[_Sentence]:
    """Yields the sentences of the message `first`, and the last `CONSIDERED` of all sentences."""
    found = [
        (at, text)
        for at, line in enumerate(lines)
        for part in SENTENCE_END.split(line.text)
        if (text := _cut(" ".join(part.split()), SENTENCE_WORDS))
    ]
    early = [(at, text) for at, text in found[:-CONSIDERED] if at == first][:CONSIDERED]
    for at, text in [*early, *found[-CONSIDERED:]]:
        yield _Sentence(at, text, tuple(dict.fromkeys(terms(text))), _count(text))


def _opening(sentences: Sequence[_Sentence], first: int, words: int) -> Iterator[_Sentence]:
    """Yields the first sentences of the message `first` that fit into `words`."""
    left = words
    for one in (one for one in sentences if one.line == first):
        if one.words > left:
            return
        left -= one.words
        yield one


def _choice(
    sentences: Sequence[_Sentence], opening: Sequence[_Sentence], lines: Sequence[TranscriptLine], words: int
) -> Iterator[_Sentence]:
    """Yields the best sentences that fit, best first. A sentence is weighted by the trust of its message. Equal
    sentences are chosen once."""
    weights = _weights(sentences)
    said = {one.text for one in opening}
    for one in opening:
        _say(one, weights)
    waiting = [one for one in sentences if one.text not in said and one.terms]
    while waiting:
        waiting = [one for one in waiting if one.words <= words and one.text not in said]
        if not waiting:
            return
        best = max(waiting, key=lambda one: (_worth(one, weights) * lines[one.line].trust, -one.line))
        said.add(best.text)
        _say(best, weights)
        words -= best.words
        yield best


def _weights(sentences: Sequence[_Sentence]) -> dict[str, float]:
    often = Counter(term for one in sentences for term in one.terms)
    messages: dict[str, set[int]] = {}
    for one in sentences:
        for term in one.terms:
            messages.setdefault(term, set()).add(one.line)
    total = len({one.line for one in sentences})
    return {term: (1 + math.log(count)) * math.log(1 + total / len(messages[term])) for term, count in often.items()}


def _worth(one: _Sentence, weights: dict[str, float]) -> float:
    return sum(weights[term] for term in one.terms) / max(len(one.terms), SHORT_TERMS)


def _say(one: _Sentence, weights: dict[str, float]) -> None:
    for term in one.terms:
        weights[term] *= SAID_AGAIN


def _joined(lines: Sequence[TranscriptLine], chosen: Sequence[_Sentence]) -> str:
    """Joins sentences to one paragraph, so that no line can pose as a turn of the conversation."""
    parts: list[str] = []
    before: str | None = None
    for one in chosen:
        speaker = " ".join((lines[one.line].name or lines[one.line].role).split())
        parts.append(one.text if speaker == before else f"{speaker}: {one.text}")
        before = speaker
    return " ".join(parts)


def _count(text: str) -> int:
    return sum(1 for _ in _WORD.finditer(text))


def _cut(text: str, words: int) -> str:
    """Returns the first words, with `…` if the text was cut."""
    for number, found in enumerate(_WORD.finditer(text)):
        if number == words:
            return text[: found.start()].rstrip() + " …"
    return text


PROMPT = "day"
MOST_CHUNKS = 3
"""The limit of chunks of a day that the model reads. The counts cover the whole day."""

log = logging.getLogger(__name__)


def day_teller(llm: LLM, tools: Tools) -> Callable[[Sequence[Doc], str | None], Awaitable[Doc | None]]:
    """Returns a function that describes days in one run, with one budget for all of them."""
    budget, prompt = llm.budget(), prompts.load(PROMPT)

    async def tell(actions: Sequence[Doc], earlier: str | None) -> Doc | None:
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
                text = strip_served(reply.text).strip() or text
        except (LLMUnavailable, LLMReplyInvalid, LLMBudgetSpent) as error:
            log.warning("a day was not told", extra={"code": error.code})
        if text is None or text == earlier:
            return None
        return {"text": text, "model": llm.model_for(prompts.DayText), "prompt_version": prompt.id}

    return tell


EXTRACT_SOURCE = {"origin": "consolidation", "prompt_version": VERSION}


class SummaryExtractor:
    """Updates the session's summary with a part of the conversation."""

    name = prompt = "summary"
    shape = prompts.Summary

    async def request(self, _: Tools, talk: Conversation) -> PartRequest:
        """Returns the earlier summary. Raises Skipped if there is no session, or if the summary covers the messages."""
        if talk.session is None:
            raise Skipped("there is no session")
        if (talk.session.get("summary_seq") or 0) >= talk.lines[-1].seq:
            raise Skipped("the summary covers these messages")
        return PartRequest({"earlier": talk.session["summary"]})

    def plan(self, tools: Tools, talk: Conversation, answer: Answer) -> DerivationPlan:
        """Returns the plan that stores the summary of an answer."""
        earlier = answer.request.known["earlier"]
        kept = faithful(answer.reply.summary, talk.lines, earlier)
        written = replace(written_by(answer.model, talk, kept.text), rolls=earlier is not None)
        return stored(tools, talk, written, kept.dropped)


async def ask_for(talk: Conversation, earlier: str | None, llm: LLM, budget: Budget) -> str:
    """Returns a summary of `earlier` and the lines of `talk`. Raises what the model's client raises."""
    reply = await ask(talk, [(SummaryExtractor(), PartRequest({"earlier": earlier}))], llm, budget)
    return faithful(reply.summary, talk.lines, earlier).text


@dataclass(frozen=True, slots=True)
class Faithful:
    """What is kept of a model's summary, and how many of its sentences were dropped, by reason."""

    text: str
    dropped: Counter[str]


def faithful(told: Sequence[str], lines: Sequence[TranscriptLine], earlier: str | None) -> Faithful:
    """Returns the sentences of a model's summary that what it sums up bears out: at most `MAX_WORDS` words of them, and
    no more words than were said. If nothing is left, it is an extract of the lines."""
    said = "\n".join([*(f"{line.name or ''} {line.text} {line.at}" for line in lines), earlier or ""])
    left = min(MAX_WORDS, _count(said))
    kept: list[str] = []
    dropped: Counter[str] = Counter()
    for sentence in filter(None, (part.strip() for part in SENTENCE_END.split(strip_served("\n".join(told)).strip()))):
        if sentence in kept:
            dropped["repeated"] += 1
        elif not borne_out(sentence, lines, earlier):
            dropped["not_borne_out"] += 1
        elif _count(sentence) > left:
            dropped["too_long"] += 1
        else:
            left -= _count(sentence)
            kept.append(sentence)
    return Faithful(" ".join(kept) or EXTRACT + extract(lines), dropped)


def written_by(model: str, talk: Conversation, text: str) -> SummaryText:
    """Returns the model's text as a summary of the lines of `talk`."""
    origin, last = source(talk, prompts.load(SummaryExtractor.prompt), model), talk.lines[-1]
    return SummaryText(text, least_trust(talk), origin, last.seq, last.at)


async def extracted(tools: Tools, talk: Conversation) -> DerivationPlan:
    """Returns the plan that stores an extract of all lines of `talk`. Raises Skipped if the session has a summary that
    a model or a caller wrote, since that says more."""
    session, lines = talk.session, talk.lines
    assert session is not None
    if session["summary"] and not is_extract(session):
        raise Skipped("a summary stands that was written")
    quoted = await off_loop(sum(len(line.text) for line in lines), extract, lines)
    if not quoted:
        raise Skipped("nothing was said that can be quoted")
    trust, last = least_trust(talk), lines[-1]
    return stored(tools, talk, SummaryText(EXTRACT + quoted, trust, dict(EXTRACT_SOURCE), last.seq, last.at))


def least_trust(talk: Conversation) -> float:
    """Returns the lowest trust of the messages: of the memory made of a message, or else by its role."""
    return min(float(talk.said[line.seq]["trust"]) if line.seq in talk.said else line.trust for line in talk.lines)


def stored(
    tools: Tools, talk: Conversation, summary: SummaryText, dropped: Mapping[str, int] | None = None
) -> DerivationPlan:
    """Returns the plan that stores the summary of `talk`. It reads the session each time, and raises Skipped if the
    session or its messages are gone, or if a later summary exists."""
    sessions = SessionRepository(tools.store, talk.scope)
    begun = talk.session
    assert begun is not None
    summaries = SessionSummaries(MemoryRepository(tools.store, talk.scope), Embeddings(tools.embedder))

    async def plan() -> tuple[Doc, list[Change]]:
        session = await sessions.find_one(begun["session_id"])
        if session is None or session["created_at"] != begun["created_at"]:
            raise Skipped("the session is gone")
        if session.get("revised") != begun.get("revised"):
            raise CommitConflict(SESSIONS.name, session["session_id"], "revised")  # the job runs again
        if (session.get("summary_seq") or 0) > (summary.seq or 0):
            raise Skipped("a later summary stands")
        if not await _covered(sessions, session, summary.seq):
            raise Skipped("the messages are gone")
        now = rfc3339(tools.clock.now())
        fields, changes = await summaries.write(session, summary, now)
        expect = {**expected(session), "version": session["version"]}  # clearing the messages bumps the version
        fields["updated_at"] = now
        update = Update(SESSIONS, talk.scope.tenant, session["session_id"], set=fields, expect=expect)
        result: Doc = {"summary": summary.text} | ({"dropped": dict(dropped)} if dropped else {})
        return result, [*changes, update]

    return plan


async def _covered(sessions: SessionRepository, session: Doc, seq: int | None) -> bool:
    """Returns True if the last message that the summary covers still exists."""
    if seq is None:
        return True
    return bool(await sessions.messages.find(sessions.within(session, seq - 1, seq + 1), limit=1))
