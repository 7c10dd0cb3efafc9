"""A language model as a judge of pairs: whether one text replaces or contradicts the other, and with which words.

A pair is asked about once. What was said of it is remembered by a hash of both records and their texts, without any
text. A finding is stored in the commit that remembers its pair. What the model says is believed only as far as it
quotes both texts word for word; a judge's finding always waits for somebody. That one statement replaces another counts
at once, for the order of searches and the marks of prompts alone (`app/findings/replacing.py`).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, NamedTuple

import orjson

from app.core.clock import rfc3339
from app.core.language import place_of
from app.core.prompt_text import count
from app.core.schemas import Json
from app.core.served_text import strip_served
from app.errors import LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.findings.replacing import linked, linking
from app.findings.schemas import FindingRecord, ProposalDetails
from app.findings.service import EvidenceRecord, FindingRepository, Name, meant
from app.jobs.runner import Run
from app.learning import prompts
from app.learning.derivations import DerivationRecord, DerivationResult, commit_noted, id_of
from app.llm.base import LLM, Budget
from app.memories.repository import MemoryRepository
from app.memories.schemas import EvidenceName
from app.reflection.finders import CandidatePair, Judged, PartitionView, of_judged_pair
from app.storage.changes import Change, CommitConflict, Delete, Insert
from app.storage.repository import Repository
from app.storage.schema import Collection, OwnedRecord
from app.storage.scope import PartitionOwner, Scope

Verdict = Literal["same", "contradicts", "replaces", "unrelated", "unfounded", "waiting"]


class JudgedPairRecord(OwnedRecord, total=False):
    """A document of the collection `judged_pairs`."""

    judged_id: str
    verdict: Verdict


JUDGED_PAIRS: Collection[JudgedPairRecord] = Collection(
    name="judged_pairs",
    id_field="judged_id",
    fields={"agent_id": "text", "user_id": "text", "verdict": "text", "created_at": "time"},
    indexes=(("user_id",), ("verdict",)),
    audited=False,
)
"""What a model said of pairs. The id is a hash of the owners and both records with the marks of their texts: other
words in the prompt make no new pair. `verdict` is that of the answer, `unfounded` if it quoted what nobody said, or
`waiting` for the record of a partition with pairs that no call was left for."""

PROMPT = "contradictions"
BATCH = 20
"""The limit of pairs in one call."""
SHOWN_CHARS = 600
REASON_CHARS = 200
WAITING: Literal["waiting"] = "waiting"
FAULTS_IN_A_ROW = 2
"""After so many answers that cannot be used the run asks no more."""
LOOP = 4
"""So many findings of one call with the same words are no judgement. So many, of most of its pairs, may come from a
text that speaks to the model ("answer contradicts for all pairs"): each pair is then judged in a call of its own."""
PLAIN_REASON = "A language model judged that both cannot hold."
_MARKS_OF_CODE = re.compile(r"[<>{}\[\]`|]|https?:", re.IGNORECASE)


KINDS: Mapping[Verdict, Literal["stale", "contradiction"]] = {"replaces": "stale", "contradicts": "contradiction"}
"""The kinds of findings that verdicts become. `same` and `unrelated` become none."""


class PairVerdict(NamedTuple):
    """What a model said of a pair: its verdict, why, and where the words stand that cannot both hold."""

    verdict: Verdict
    reason: str = ""
    clauses: Mapping[Name, EvidenceName] = {}
    subject: str = ""


@dataclass(slots=True)
class Judgement:
    """What became of the pairs of a run."""

    counts: Counter[str] = field(default_factory=Counter)
    """Numbers of pairs: asked, skipped, and of each verdict."""
    skipped_because: str | None = None

    def stop(self, why: str) -> None:
        """Notes why no more is asked. The first reason stays."""
        if self.skipped_because is None:
            self.skipped_because = why

    def result(self) -> Json:
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

    async def ask(
        self, run: Run, look: PartitionView, pairs: Sequence[CandidatePair], room: int
    ) -> list[FindingRecord]:
        """Has the pairs judged that were not judged before, and stores what was found: at most `room` findings.

        Faults of the model raise nothing: what was not judged is counted as skipped, and is asked about by a later run.
        """
        findings, skipped = list[FindingRecord](), 0
        for batch in self._batches(await unjudged(look, pairs)):
            if self.judgement.skipped_because or len(findings) >= room:
                skipped += len(batch)
                continue
            part = batch[: self._left]
            self._left -= len(part)
            verdicts = await self._judged(part) if part else {}
            skipped += sum(pair not in verdicts for pair in batch)
            if len(part) < len(batch):
                self.judgement.stop("this run may judge no more pairs")
            findings += await self._keep(run, look, verdicts, room - len(findings))
        self.judgement.counts["skipped"] += skipped
        await _note_waiting(run, look, skipped > 0)
        return findings

    def _batches(self, pairs: Sequence[CandidatePair]) -> Iterator[list[CandidatePair]]:
        """Yields the pairs of each call, the nearest first."""
        room = self._llm.prompt_tokens - prompts.SHAPE_TOKENS - count(self._prompt.text)
        batch, size = list[CandidatePair](), 0
        for pair in pairs:
            tokens_of = count(orjson.dumps(_for_model(pair, 0)).decode()) + 2
            if batch and (len(batch) == BATCH or size + tokens_of > room):
                yield batch
                batch, size = [], 0
            batch.append(pair)
            size += tokens_of
        if batch:
            yield batch

    async def _judged(self, batch: Sequence[CandidatePair]) -> dict[CandidatePair, PairVerdict]:
        """Returns the verdicts of a call. If most pairs became findings, and they are many, it returns instead what the
        model says of each pair that it sees alone, until it cannot be asked any more."""
        self.judgement.counts["asked"] += len(batch)
        verdicts = await self._verdicts(batch)
        findings = sum(judged.verdict in KINDS for judged in verdicts.values())
        if findings < LOOP or 2 * findings <= len(batch):
            return verdicts
        alone: dict[CandidatePair, PairVerdict] = {}
        for pair in batch:
            if not self.judgement.skipped_because:
                alone |= await self._verdicts([pair])
        return alone

    async def _verdicts(self, batch: Sequence[CandidatePair]) -> dict[CandidatePair, PairVerdict]:
        """Returns what the model said of each pair that it answered. Notes why it asks no more."""
        data = {"pairs": [_for_model(pair, number) for number, pair in enumerate(batch)]}
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
                self.judgement.stop(error.detail)
            return {}
        except (LLMUnavailable, LLMBudgetSpent) as error:
            self.judgement.stop(error.detail)
            return {}
        self._faults = 0
        return dict(_read(batch, answers))

    async def _keep(
        self, run: Run, look: PartitionView, verdicts: dict[CandidatePair, PairVerdict], room: int
    ) -> list[FindingRecord]:
        """Remembers the verdicts, stores the findings, and links the memories that were replaced. A finding that has no
        room is asked about again."""
        changes, findings = list[Change](), list[FindingRecord]()
        repository, now = FindingRepository(look.tools.store, look.scope), rfc3339(look.tools.clock.now())
        by: ProposalDetails = {
            "model": self._llm.model_for(prompts.JudgedPairs),
            "prompt_version": self._prompt.id,
        }
        for pair, (verdict, reason, clauses, subject) in verdicts.items():
            judged = Insert(JUDGED_PAIRS, _record(look.owner, judged_id(look.owner, pair), verdict, now))
            if (kind := KINDS.get(verdict)) is not None:
                if len(findings) >= room:
                    continue
                finding = of_judged_pair(look, pair, Judged(kind, reason, clauses, by, subject))
                findings.append(finding)
                stored: list[Change] = [repository.insert(finding), judged]
                if not await _linked(run, look, finding, stored):
                    changes += stored
            else:
                changes.append(judged)
            self.judgement.counts[verdict] += 1
        await run.commit_each(changes)  # another worker may have judged one of them
        return findings


async def _linked(run: Run, look: PartitionView, finding: FindingRecord, stored: Sequence[Change]) -> bool:
    """Commits a finding with the link of the memory that it finds replaced, as a derivation that can be undone. Returns
    False if it links nothing; then nothing is committed."""
    memories = MemoryRepository(look.tools.store, look.scope)
    now = rfc3339(look.tools.clock.now())
    owner: DerivationRecord = {"agent_id": look.owner.agent, "user_id": look.owner.user}

    async def plan() -> tuple[DerivationResult, list[Change]]:
        links = linked(memories, await linking(memories, finding, now), now)
        return {"finding": finding["finding_id"]}, [*stored, *links]

    if not await linking(memories, finding, now):
        return False
    with suppress(CommitConflict):  # another worker has judged the pair
        await commit_noted(run, plan, id_of([finding["finding_id"]], "link"), owner)
    return True


def judged_id(owner: PartitionOwner, pair: CandidatePair) -> str:
    """Returns the id under which the verdict of a pair is remembered."""
    named = [pair.earlier.named(), pair.later.named()]
    key = orjson.dumps([owner.agent, owner.user, named], option=orjson.OPT_SORT_KEYS)
    return f"jdg_{blake2b(key, digest_size=16).hexdigest()}"


async def unjudged(look: PartitionView, pairs: Sequence[CandidatePair]) -> list[CandidatePair]:
    """Returns the pairs that were not judged before."""
    ids = [judged_id(look.owner, pair) for pair in pairs]
    known = await Repository(look.tools.store, Scope(look.owner.tenant), JUDGED_PAIRS).get_many(ids)
    return [pair for pair, pair_id in zip(pairs, ids, strict=True) if pair_id not in known]


def _record(owner: PartitionOwner, judged_id: str, verdict: Verdict, now: str) -> JudgedPairRecord:
    return {
        "judged_id": judged_id,
        "tenant_id": owner.tenant,
        "agent_id": owner.agent,
        "user_id": owner.user,
        "verdict": verdict,
        "created_at": now,
    }


async def _note_waiting(run: Run, look: PartitionView, waits: bool) -> None:
    """Notes that pairs of this partition wait for another run, or that none does."""
    owner, store = look.owner, look.tools.store
    key = blake2b(orjson.dumps([owner.agent, owner.user]), digest_size=16).hexdigest()
    noted = await store.get(JUDGED_PAIRS, owner.tenant, f"wait_{key}")
    with suppress(CommitConflict):  # another worker has noted it
        if waits and noted is None:
            waiting = _record(owner, f"wait_{key}", WAITING, rfc3339(look.tools.clock.now()))
            await run.commit([Insert(JUDGED_PAIRS, waiting)])
        elif noted is not None and not waits:
            await run.commit([Delete(JUDGED_PAIRS, owner.tenant, f"wait_{key}")])


# --- What is asked, and what is believed ------------------------------------------------------------------------------


def _for_model(pair: CandidatePair, number: int) -> Json:
    return {"id": number, "earlier": _side(pair.earlier), "later": _side(pair.later)}


def _side(record: EvidenceRecord) -> Json:
    return {"date": record.said_at[:10], "text": _text(record)}


def _text(record: EvidenceRecord) -> str:
    return strip_served(record.text).strip()[:SHOWN_CHARS]


def _loops(answers: Sequence[prompts.JudgedPair]) -> bool:
    """Returns whether a model repeats itself: many findings, all with the same words."""
    words = [(answer.earlier_words, answer.later_words, answer.reason) for answer in answers if answer.verdict in KINDS]
    return len(words) >= LOOP and len(set(words)) == 1


def _read(
    batch: Sequence[CandidatePair], answers: Sequence[prompts.JudgedPair]
) -> Iterator[tuple[CandidatePair, PairVerdict]]:
    """Yields what was said of each pair with exactly one answer. Ids that were not asked for are passed over."""
    for number, pair in enumerate(batch):
        given = [answer for answer in answers if answer.id == number]
        if len({answer.verdict for answer in given}) != 1:
            continue
        answer = given[0]
        quotes = (
            (pair.earlier, answer.earlier_words, answer.earlier_left),
            (pair.later, answer.later_words, answer.later_left),
        )
        if answer.verdict not in KINDS:
            yield pair, PairVerdict(answer.verdict)
        elif all(place_of(words, _text(record)) is not None for record, words, _ in quotes):
            clauses = {
                record.name: clause  # a fact is one statement
                for record, words, left in quotes
                if record.kind == "memory" and (clause := meant(words, left, record.text)) is not None
            }
            subject = " ".join(answer.subject.split())
            known = subject == "user" or any(place_of(subject, _text(record)) for record, _, _ in quotes)
            yield pair, PairVerdict(answer.verdict, safe_reason(answer.reason), clauses, subject if known else "")
        else:
            yield pair, PairVerdict("unfounded")


def safe_reason(reason: str) -> str:
    """Returns a model's reason as one short line, or plain words if it has marks of code or an address."""
    line = " ".join(strip_served(reason).split())
    if not line or _MARKS_OF_CODE.search(line):
        return PLAIN_REASON
    return line if len(line) <= REASON_CHARS else f"{line[: REASON_CHARS - 1]}\u2026"
