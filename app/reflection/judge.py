"""A language model as a judge of pairs: which of them cannot both hold, and why.

A pair is asked about once. What was said of it is remembered by a hash of both records and their texts, without any
text. A finding is stored in the commit that remembers its pair. What the model says is believed only as far as it
quotes both texts; a judge's finding always waits for somebody.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b

import orjson

from app.core.clock import rfc3339
from app.core.prompt_text import count
from app.core.served_text import strip_served
from app.errors import LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.findings.service import EvidenceRecord, FindingRepository
from app.jobs.runner import Run
from app.learning import prompts
from app.learning.words import tokens
from app.llm.base import LLM, Budget
from app.reflection.candidates import CandidatePair
from app.reflection.finders import JUDGED, NewFinding, Owner, PartitionView, of_near_pair
from app.storage.changes import Change, CommitConflict, Delete, Insert
from app.storage.repository import Repository
from app.storage.schema import Collection, Doc
from app.storage.search import Scope

JUDGED_PAIRS = Collection(
    name="judged_pairs",
    id_field="judged_id",
    fields={"agent_id": "text", "user_id": "text", "verdict": "text", "created_at": "time"},
    indexes=(("user_id",), ("verdict",)),
    audited=False,
)
"""What a model said of pairs. The id is a hash of the owners, both records with the marks of their texts, and the
prompt. `verdict` is that of the answer, `unfounded` if it quoted what nobody said, or `waiting` for the record of a
partition with pairs that no call was left for."""

PROMPT = "contradictions"
BATCH = 20
"""The limit of pairs in one call."""
SHOWN_CHARS = 600
REASON_CHARS = 200
WAITING = "waiting"
FAULTS_IN_A_ROW = 2
"""After so many answers that cannot be used the run asks no more."""
LOOP = 4
"""So many findings of one call with the same words are no judgement."""
PLAIN_REASON = "A language model judged that both cannot hold."
_TO_THE_MODEL = re.compile(
    r"\b(?:ignor\w*|disregard|overrid\w*|vergiss|missacht\w*|olvida)\b.{0,40}\b(?:previous|above|all|instruct\w*|rules?|"
    r"vorherig\w*|bisherig\w*|alle\w*|anweisung\w*|regeln|anterior\w*|todo\w*|todas|instruccion\w*|reglas)\b"
    r"|\b(?:contradiction|both_hold|verdict|json|system prompt|prompt|instructions?|language model|"
    r"anweisung\w*|instrucciones|instrucción)\b|[<{\[]\s*/?\w+\s*[>}\]]",
    re.IGNORECASE | re.DOTALL,
)
"""Words by which a text speaks to the model. Such a text is judged in a call of its own, so that it reaches no other
pair."""
_NO_REASON = re.compile(
    r"[<>{}\[\]`|]|https?:|\b(?:ignore|disregard|instructions?|prompt|you (?:must|should)|please|assistant|system)\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Judgement:
    """What became of the pairs of a run."""

    found: list[NewFinding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Numbers of pairs: asked, both_hold, changed, contradiction, unfounded, unanswered, skipped."""
    skipped_because: str | None = None

    def stop(self, why: str) -> None:
        """Notes why no more is asked. The first reason stays."""
        if self.skipped_because is None:
            self.skipped_because = why

    def result(self) -> Doc:
        """Returns the report of the run's result."""
        why = {} if self.skipped_because is None else {"reason": self.skipped_because}
        return {**dict(sorted(self.counts.items())), **why}


class Judge:
    """Asks the model about pairs, within the bounds of one run."""

    def __init__(self, llm: LLM, budget: Budget, most_pairs: int) -> None:
        self._llm, self._budget, self._left = llm, budget, most_pairs
        self._prompt = prompts.load(PROMPT)
        self._faults = 0
        self.judgement = Judgement()

    @property
    def spent(self) -> dict[str, int]:
        """Calls and tokens of the run."""
        return self._budget.spent

    async def ask(self, run: Run, look: PartitionView, pairs: Sequence[CandidatePair], room: int) -> list[NewFinding]:
        """Has the pairs judged that were not judged before, and stores what was found: at most `room` findings.

        Faults of the model raise nothing: what was not judged is counted as skipped, and is asked about by a later run.
        """
        said, found, skipped = self.judgement, list[NewFinding](), 0
        for batch in self._batches(await unjudged(look, pairs)):
            if said.skipped_because or len(found) >= room:
                skipped += len(batch)
                continue
            part = batch[: self._left]
            self._left -= len(part)
            verdicts = await self._verdicts(part) if part else {}
            skipped += sum(pair not in verdicts for pair in batch)
            if len(part) < len(batch):
                said.stop("this run may judge no more pairs")
            found += await self._keep(run, look, verdicts, room - len(found))
        said.counts["skipped"] += skipped
        said.found += found
        await _note_waiting(run, look, skipped > 0)
        return found

    def _batches(self, pairs: Sequence[CandidatePair]) -> Iterator[list[CandidatePair]]:
        """Yields the pairs of each call, the likeliest first. A text that speaks to the model gets its own call."""
        room = self._llm.prompt_tokens - prompts.SHAPE_TOKENS - count(self._prompt.text)
        batch, size = list[CandidatePair](), 0
        for pair in pairs:
            if _speaks_to_the_model(pair):
                yield [pair]
                continue
            tokens_of = count(orjson.dumps(_shown(pair, 0)).decode()) + 2
            if batch and (len(batch) == BATCH or size + tokens_of > room):
                yield batch
                batch, size = [], 0
            batch.append(pair)
            size += tokens_of
        if batch:
            yield batch

    async def _verdicts(self, batch: Sequence[CandidatePair]) -> dict[CandidatePair, tuple[str, str]]:
        """Returns verdict and reason of each pair that the model answered. Notes why it asks no more."""
        said = self.judgement
        said.counts["asked"] += len(batch)
        data = {"pairs": [_shown(pair, number) for number, pair in enumerate(batch)]}
        try:
            reply = await self._llm.reply(
                self._prompt.text, orjson.dumps(data).decode(), prompts.JudgedPairs, self._budget
            )
            answers = list(filter(None, reply.pairs))
            if _loops(answers):
                raise LLMReplyInvalid("The model gave the same answer for all pairs.")
        except LLMReplyInvalid as error:
            self._faults += 1
            if self._faults >= FAULTS_IN_A_ROW:
                said.stop(error.detail)
            return {}
        except (LLMUnavailable, LLMBudgetSpent) as error:
            said.stop(error.detail)
            return {}
        self._faults = 0
        return dict(_read(batch, answers))

    async def _keep(
        self, run: Run, look: PartitionView, verdicts: dict[CandidatePair, tuple[str, str]], room: int
    ) -> list[NewFinding]:
        """Remembers the verdicts and stores the findings. A finding that has no room is asked about again."""
        changes, found = list[Change](), list[NewFinding]()
        findings, now = FindingRepository(look.tools.store, look.scope), rfc3339(look.tools.clock.now())
        for pair, (verdict, reason) in verdicts.items():
            if verdict in ("changed", "contradiction"):
                if len(found) >= room:
                    continue
                kind = "stale" if verdict == "changed" else "contradiction"
                one = of_near_pair(look, pair, kind, reason, JUDGED)
                found.append(one)
                changes.append(findings.insert(one.finding))
            self.judgement.counts[verdict] += 1
            changes.append(Insert(JUDGED_PAIRS, _record(look.owner, judged_id(look.owner, pair), verdict, now)))
        try:
            await run.commit(changes)
        except CommitConflict:  # another worker has judged one of them
            for change in changes:
                with suppress(CommitConflict):
                    await run.commit([change])
        return found


def judged_id(owner: Owner, pair: CandidatePair) -> str:
    """Returns the id under which the verdict of a pair is remembered."""
    named = [pair.earlier.named(), pair.later.named()]
    key = orjson.dumps([owner.agent, owner.user, named, prompts.load(PROMPT).id], option=orjson.OPT_SORT_KEYS)
    return f"jdg_{blake2b(key, digest_size=16).hexdigest()}"


async def unjudged(look: PartitionView, pairs: Sequence[CandidatePair]) -> list[CandidatePair]:
    """Returns the pairs that were not judged before."""
    ids = [judged_id(look.owner, pair) for pair in pairs]
    docs = await Repository(look.tools.store, Scope(look.owner.tenant), JUDGED_PAIRS).get_many(ids)
    return [pair for pair, judged in zip(pairs, ids, strict=True) if judged not in docs]


def _record(owner: Owner, judged: str, verdict: str, now: str) -> Doc:
    owners = {"tenant_id": owner.tenant, "agent_id": owner.agent, "user_id": owner.user}
    return {"judged_id": judged, **owners, "verdict": verdict, "created_at": now}


async def _note_waiting(run: Run, look: PartitionView, waits: bool) -> None:
    """Notes that pairs of this partition wait for another run, or that none does."""
    owner, store = look.owner, look.tools.store
    key = blake2b(orjson.dumps([owner.agent, owner.user]), digest_size=16).hexdigest()
    noted = await store.get(JUDGED_PAIRS, owner.tenant, f"wait_{key}")
    with suppress(CommitConflict):  # another worker has noted it
        if waits and noted is None:
            doc = _record(owner, f"wait_{key}", WAITING, rfc3339(look.tools.clock.now()))
            await run.commit([Insert(JUDGED_PAIRS, doc)])
        elif noted is not None and not waits:
            await run.commit([Delete(JUDGED_PAIRS, owner.tenant, f"wait_{key}")])


# --- What is asked, and what is believed ------------------------------------------------------------------------------


def _shown(pair: CandidatePair, number: int) -> Doc:
    return {"id": number, "earlier": _side(pair.earlier), "later": _side(pair.later)}


def _side(record: EvidenceRecord) -> Doc:
    return {"date": record.said_at[:10], "text": _text(record)}


def _text(record: EvidenceRecord) -> str:
    return strip_served(record.text).strip()[:SHOWN_CHARS]


def _speaks_to_the_model(pair: CandidatePair) -> bool:
    return any(_TO_THE_MODEL.search(each.text) for each in (pair.earlier, pair.later))


def _loops(answers: Sequence[prompts.JudgedPair]) -> bool:
    """Returns whether a model repeats itself: many findings, all with the same words."""
    said = [(one.earlier_words, one.later_words, one.reason) for one in answers if one.verdict != "both_hold"]
    return len(said) >= LOOP and len(set(said)) == 1


def _read(
    batch: Sequence[CandidatePair], answers: Sequence[prompts.JudgedPair]
) -> Iterator[tuple[CandidatePair, tuple[str, str]]]:
    """Yields verdict and reason of each pair with exactly one answer. Ids that were not asked for are passed over."""
    for number, pair in enumerate(batch):
        given = [one for one in answers if one.id == number]
        if len({one.verdict for one in given}) != 1:
            continue
        one = given[0]
        if one.verdict == "both_hold":
            yield pair, ("both_hold", "")
        elif _quotes(one.earlier_words, pair.earlier) and _quotes(one.later_words, pair.later):
            yield pair, (one.verdict, safe_reason(one.reason))
        else:
            yield pair, ("unfounded", "")


def _quotes(words: str, record: EvidenceRecord) -> bool:
    """Returns whether a record says these words, in this order."""
    wanted = f" {' '.join(token.word for token in tokens(words))} "
    return bool(wanted.strip()) and wanted in f" {' '.join(token.word for token in tokens(_text(record)))} "


def safe_reason(reason: str) -> str:
    """Returns a model's reason as one short line, or plain words if it has marks of code or speaks to a model."""
    line = " ".join(strip_served(reason).split())
    if not line or _NO_REASON.search(line):
        return PLAIN_REASON
    return line if len(line) <= REASON_CHARS else f"{line[: REASON_CHARS - 1]}\u2026"
