"""Creates, changes and searches procedures. Methods that write return a `WriteResult` and commit nothing."""

from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from typing import Literal, TypeAlias, cast

from app.core.clock import Clock, new_id, parse_rfc3339, rfc3339, to_ms
from app.core.schemas import Page, differing
from app.errors import AlreadyExists
from app.jobs import queue
from app.memories import repository
from app.memories.schemas import NOT_EMBEDDED, HistoryRecord, Source
from app.procedures import schemas
from app.retrieval.retriever import Hit, RetrievalRequest, RetrievalResult, Retriever, TookMs
from app.storage.changes import Change, IndexEntry
from app.storage.protocol import Store
from app.storage.repository import Listing, between, having
from app.storage.schema import Eq, Filter, Has, Or, Range, both, value_at
from app.storage.scope import Scope
from app.storage.text import content_hash, normalise_content
from app.writes.executor import Precondition, WriteResult, etag

# --- The track record: how well a procedure works, the trial of better steps, when it is reviewed, and its rank -------
#
#     {"success_count": 7, "failure_count": 2, "recent_outcomes": […, failed, failed]} unused for three days
#     → works .64, freshness .995: `worked 7 of 9 times, failed the last 2`
#
# Each outcome counts for the steps that were served.

PRIOR = 1.0
"""The number of successes and of failures assumed in advance: Beta(1, 1), Laplace's rule of succession (1774)."""
RECENT_HALF_LIFE = 3.0
"""The number of later outcomes after which an outcome counts half (forgetting factor of Jøsang & Ismail, The Beta
Reputation System, 2002)."""
RECENT_SHARE = 0.5
"""The share of `works` that the recent outcomes decide; all outcomes alike decide the rest."""
FRESH_HALF_LIFE_DAYS = 90.0
LEAST_FRESH = 0.8
"""The smallest factor of freshness, for a procedure that was never used."""
STALE_DAYS = 180.0
"""A procedure unused for this many days gets a warning."""
FAILURES_IN_A_ROW = 2
"""A procedure that fails so often in a row is failing."""
FAILURES_OF_LAST = (3, 5)
"""It is said to fail lately, too, if at least 3 of its last 5 outcomes failed."""
KEPT_OUTCOMES = 20
"""The number of recent outcomes that are stored; the oldest of them counts 1/80 of the newest."""
DAY_SECONDS = 86_400.0
Z = 1.96
"""Standard deviations of a 95 % interval."""


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """How well a procedure works. `success_rate`, `recent`, `works` and `freshness` are 0 to 1; `idle_days` counts days
    since the last use or change."""

    success_rate: float
    recent: float
    works: float
    freshness: float
    failed_in_a_row: int
    failed_of_last: tuple[int, int]
    """Failures and total of the recent outcomes, five at most."""
    idle_days: float

    @property
    def failing_lately(self) -> bool:
        """True if the recent outcomes mostly failed."""
        least, _ = FAILURES_OF_LAST
        return self.failed_in_a_row >= FAILURES_IN_A_ROW or self.failed_of_last[0] >= least

    @property
    def stale(self) -> bool:
        """True if the procedure was not used or changed for `STALE_DAYS`."""
        return self.idle_days >= STALE_DAYS


def smoothed(successes: float, failures: float) -> float:
    """Returns the mean of the Beta posterior: 0.5 without outcomes, and never 0 or 1."""
    return (successes + PRIOR) / (successes + failures + 2 * PRIOR)


def track_record(successes: int, failures: int, recent: Sequence[bool], idle_days: float) -> TrackRecord:
    """Computes the track record. `recent` are the last outcomes, the oldest first; negative `idle_days` count as 0."""
    last = recent[-KEPT_OUTCOMES:]
    weights = [0.5 ** (age / RECENT_HALF_LIFE) for age in range(len(last))]
    succeeded = sum(weight for weight, success in zip(weights, reversed(last), strict=True) if success)
    latest = last[-FAILURES_OF_LAST[1] :]
    rate, lately = smoothed(successes, failures), smoothed(succeeded, sum(weights) - succeeded)
    idle = max(0.0, idle_days)
    return TrackRecord(
        success_rate=rate,
        recent=lately,
        works=(1 - RECENT_SHARE) * rate + RECENT_SHARE * lately,
        freshness=LEAST_FRESH + (1 - LEAST_FRESH) * 0.5 ** (idle / FRESH_HALF_LIFE_DAYS),
        failed_in_a_row=next((age for age, success in enumerate(reversed(last)) if success), len(last)),
        failed_of_last=(latest.count(False), len(latest)),
        idle_days=idle,
    )


def record_sentence(successes: int, failures: int, record: TrackRecord) -> str:
    """Returns a sentence such as `worked 7 of 9 times, failed the last 2`."""
    tried = successes + failures
    if not tried:
        return "not tried yet"
    summary = f"worked {successes} of {tried} time{'s' if tried > 1 else ''}"
    return f"{summary}, {_lately(record)}" if record.failing_lately and record.failed_in_a_row < tried else summary


def warnings(record: TrackRecord) -> list[schemas.ProcedureWarning]:
    """Returns the warnings for a caller who wants to use the procedure."""
    listed: list[schemas.ProcedureWarning] = []
    if record.failing_lately:
        listed.append({"code": "failing_lately", "detail": f"It {_lately(record)}."})
    if record.stale:
        listed.append({"code": "stale", "detail": f"Neither used nor changed for {int(record.idle_days)} days."})
    return listed


def _lately(record: TrackRecord) -> str:
    if record.failed_in_a_row >= FAILURES_IN_A_ROW:
        return f"failed the last {record.failed_in_a_row}"
    failed, latest = record.failed_of_last
    return f"failed {failed} of the last {latest}"


def track_record_of(procedure: schemas.ProcedureRecord, now: datetime) -> TrackRecord:
    """Returns the track record of a procedure. A change makes it as fresh as a use."""
    idle = now - parse_rfc3339(max(procedure["last_used"] or "", procedure["updated_at"]))
    recent = [outcome["success"] for outcome in procedure["recent_outcomes"]]
    return track_record(
        procedure["success_count"], procedure["failure_count"], recent, idle.total_seconds() / DAY_SECONDS
    )


def interval(successes: int, failures: int) -> tuple[float, float]:
    """Returns the 95 % Wilson interval of the success rate: 0 to 1 without outcomes."""
    tried = successes + failures
    if not tried:
        return 0.0, 1.0
    rate, square = successes / tried, Z * Z
    middle = (rate + square / (2 * tried)) / (1 + square / tried)
    half = Z / (1 + square / tried) * sqrt(rate * (1 - rate) / tried + square / (4 * tried * tried))
    return max(0.0, middle - half), min(1.0, middle + half)


# --- Trials: revised steps beside the current ones, both served in turn -----------------------------------------------

TRIAL_OUTCOMES = 5
"""Outcomes of the old and of the revised steps each, before a trial is decided."""
TRIAL_MOST = 20
"""Outcomes of the revised steps after which an undecided trial is dropped."""

TrialVerdict = Literal["adopt", "drop"]


def new_trial(
    trial_id: str, steps: list[str], action_ids: list[str], model: str, prompt_version: str, now: str
) -> schemas.ProcedureTrial:
    return {
        "trial_id": trial_id,
        "steps": steps,
        "current": {"success_count": 0, "failure_count": 0},
        "revised": {"success_count": 0, "failure_count": 0},
        "action_ids": action_ids,
        "model": model,
        "prompt_version": prompt_version,
        "started_at": now,
    }


def served(trial: schemas.ProcedureTrial | None) -> schemas.ProcedureVariant:
    """Returns the steps to serve: those with fewer outcomes in the trial; of equally many, the revised ones. So they
    take turns."""
    if trial is None:
        return "current"
    return "revised" if _tried(trial["revised"]) <= _tried(trial["current"]) else "current"


def counted(
    trial: schemas.ProcedureTrial, variant: schemas.ProcedureVariant, *, success: bool
) -> schemas.ProcedureTrial:
    if variant == "revised":
        return {**trial, "revised": with_outcome(trial["revised"], success=success)}
    return {**trial, "current": with_outcome(trial["current"], success=success)}


def with_outcome(counts: schemas.TrialCounts, *, success: bool) -> schemas.TrialCounts:
    return {
        "success_count": counts["success_count"] + success,
        "failure_count": counts["failure_count"] + (not success),
    }


def verdict(trial: schemas.ProcedureTrial) -> TrialVerdict | None:
    """Returns what becomes of the revised steps, or None as long as the trial goes on.

    With `TRIAL_OUTCOMES` each, they are adopted once the lower bound of their interval exceeds the smoothed success
    rate of the current steps, and dropped once their upper bound is less than it. After `TRIAL_MOST` outcomes of the
    revised steps, or twice as many of both, they are dropped: what is not better in so many tries is worth no change.
    """
    current, revised = trial["current"], trial["revised"]
    if min(_tried(current), _tried(revised)) >= TRIAL_OUTCOMES:
        rate = smoothed(current["success_count"], current["failure_count"])
        lower, upper = interval(revised["success_count"], revised["failure_count"])
        if lower > rate:
            return "adopt"
        if upper < rate:
            return "drop"
    is_over = _tried(revised) >= TRIAL_MOST or _tried(revised) + _tried(current) >= 2 * TRIAL_MOST
    return "drop" if is_over else None


def as_served(procedure: schemas.ProcedureRecord) -> schemas.ProcedureRecord:
    """Returns a procedure with the steps to serve."""
    trial = procedure.get("trial")
    return procedure if trial is None or served(trial) == "current" else {**procedure, "steps": trial["steps"]}


def restored(before: schemas.ProcedureRecord) -> schemas.ProcedureRecord:
    """Returns the fields that an undo restores. It brings no trial back: an adoption that was undone would be adopted
    again at the next outcome. What was tried then counts as tried in vain."""
    trial = before.get("trial")
    if trial is None:
        return before
    return {**before, "trial": None, "dropped_trials": [*(before.get("dropped_trials") or []), trial["steps"]]}


def trial_sentence(trial: schemas.ProcedureTrial) -> str:
    """Returns a sentence such as `worked 1 of 2 times` about the revised steps."""
    revised = trial["revised"]
    tried = _tried(revised)
    return f"worked {revised['success_count']} of {tried} time{'' if tried == 1 else 's'}" if tried else "not tried yet"


def _tried(counts: schemas.TrialCounts) -> int:
    return counts["success_count"] + counts["failure_count"]


# --- Reviews: of procedures that fail, and of trials that are decided -------------------------------------------------

FAILING_BELOW = 0.5
"""A procedure is failing, too, if the 95 % interval of its success rate lies below."""


@dataclass(frozen=True, slots=True)
class Failing:
    """Why a procedure is failing. `outcomes` are the failed ones of its current steps, the oldest first."""

    successes: int
    failures: int
    in_a_row: int
    outcomes: tuple[schemas.ProcedureOutcome, ...]

    @property
    def reason(self) -> str:
        """A sentence for people."""
        worked = f"It worked {self.successes} of {self.successes + self.failures} times"
        return f"{worked} and failed the last {self.in_a_row}." if self.in_a_row > 1 else f"{worked}."


def failing(procedure: schemas.ProcedureRecord) -> Failing | None:
    """Returns why a procedure is failing, or None.

    Only outcomes of the current version count, since an earlier one had other steps; outcomes of revised steps on trial
    do not. The procedure fails if the last `FAILURES_IN_A_ROW` of them failed, or if the upper bound of the interval of
    its success rate is less than `FAILING_BELOW`: it surely works less often.
    """
    outcomes = [
        outcome
        for outcome in procedure["recent_outcomes"]
        if outcome["version"] == procedure["version"] and outcome["variant"] == "current"
    ]
    failed = tuple(outcome for outcome in outcomes if not outcome["success"])
    successes = len(outcomes) - len(failed)
    in_a_row = next((age for age, outcome in enumerate(reversed(outcomes)) if outcome["success"]), len(outcomes))
    _, upper = interval(successes, len(failed))
    if in_a_row < FAILURES_IN_A_ROW and upper >= FAILING_BELOW:
        return None
    return Failing(successes, len(failed), in_a_row, failed)


def to_review(before: schemas.ProcedureRecord, after: schemas.ProcedureRecord) -> bool:
    """Returns True if an outcome calls for a review: its trial is decided, or the procedure began to fail, or failed as
    often again. A review that came too early for a better way, or found the model away, is so made up for."""
    trial = after.get("trial")
    if trial is not None:
        return verdict(trial) is not None
    why = failing(after)
    if why is None:
        return False
    again = why.in_a_row > 0 and why.in_a_row % FAILURES_IN_A_ROW == 0
    return again or failing(before) is None


# --- The ranking of a search: what fits, times how well it works ------------------------------------------------------

LEAST_CANDIDATES = 64

Find: TypeAlias = Callable[[int], Awaitable[list[Hit[schemas.ProcedureRecord]]]]
"""Returns the best k hits by relevance, best first."""


@dataclass(frozen=True, slots=True)
class ProcedureHit:
    """A hit with its score and track record."""

    hit: Hit[schemas.ProcedureRecord]
    score: float
    track_record: TrackRecord


def procedure_filter(
    status: str = "active",
    *,
    tags: list[str] | None = None,
    min_success_rate: float | None = None,
    min_trust: float | None = None,
    until: str | None = None,
) -> Filter:
    return both(
        Eq("status", status),
        None if tags is None else Or(tuple(Has("tags", tag) for tag in tags)),
        None if min_success_rate is None else Range("success_rate", ge=min_success_rate),
        None if min_trust is None else Range("trust", ge=min_trust),
        None if until is None else Range("created_at", le=until),
    )


async def best(find: Find, k: int, now: datetime) -> list[ProcedureHit]:
    """Returns the best k procedures of all that `find` can return. No score exceeds its relevance, so the search ends
    once the k-th score is at least the lowest relevance read."""
    candidates = max(LEAST_CANDIDATES, 4 * k)
    while True:
        hits = await find(candidates)
        best_hits = ranked_procedures(hits, now)[:k]
        if len(hits) < candidates or best_hits[-1].score >= hits[-1].score:
            return best_hits
        candidates *= 4


def ranked_procedures(hits: list[Hit[schemas.ProcedureRecord]], now: datetime) -> list[ProcedureHit]:
    """Returns the hits with their scores, best first."""
    scored = []
    for hit in hits:
        record = track_record_of(hit.doc, now)
        scored.append(ProcedureHit(hit, score(hit.score, record), record))
    return [scored[at] for at in order([(candidate.hit.doc, candidate.score) for candidate in scored])]


def score(relevance: float, record: TrackRecord) -> float:
    """Returns the score of a procedure: 0 to 1, like `relevance`, and never more than it."""
    return relevance * record.works * record.freshness


def order(scored: Sequence[tuple[schemas.ProcedureRecord, float]]) -> list[int]:
    """Returns the indices of (procedure, score) pairs, best first. Of equal scores the one created later comes
    first."""

    def place(at: int) -> tuple[float, str, str]:
        procedure, value = scored[at]
        return value, procedure["created_at"], procedure["procedure_id"]

    return sorted(range(len(scored)), key=place, reverse=True)


def new_procedure(fields: schemas.ProcedureRecord, source: Source, now: str) -> schemas.ProcedureRecord:
    """Returns a new procedure with `fields` (those of `ProcedureCreate`) and no outcomes."""
    procedure_id = new_id("proc")
    return {
        "procedure_id": procedure_id,
        **fields,
        "name_key": normalise_content(fields["name"]),
        "tags": list(dict.fromkeys(fields["tags"])),
        "notes": learned(fields["notes"])[0],
        "success_count": 0,
        "failure_count": 0,
        "success_rate": smoothed(0, 0),
        "recent_outcomes": [],
        "last_used": None,
        "trial": None,
        "dropped_trials": [],
        "status": "active",
        "source": {**repository.SOURCE, **source},
        "content_hash": content_hash(procedure_id),
        "embedding": NOT_EMBEDDED,
        "version": 1,
        "created_at": now,
        "updated_at": now,
    }


def revision(procedure: schemas.ProcedureRecord, fields: schemas.ProcedureRecord) -> schemas.ProcedureRecord:
    """Returns the fields that a caller's change sets; empty if nothing changes. Outcomes stay: they count for the
    refined steps, too."""
    fields = fields.copy()
    if "tags" in fields:
        fields["tags"] = list(dict.fromkeys(fields["tags"]))
    if "notes" in fields:
        fields["notes"], _ = learned(fields["notes"])
    changed = differing(procedure, fields)
    if "name" in changed:
        changed["name_key"] = normalise_content(changed["name"])
    return {**changed, **ended_trial(procedure, changed)}


def ended_trial(procedure: schemas.ProcedureRecord, changed: schemas.ProcedureRecord) -> schemas.ProcedureRecord:
    """Returns the fields that end a trial, if a change sets other steps: what was tried was tried beside the old
    ones."""
    if "steps" not in changed or not (procedure.get("trial") or procedure.get("dropped_trials")):
        return {}
    return {"trial": None, "dropped_trials": []}


def outcome(
    procedure: schemas.ProcedureRecord, reported: schemas.OutcomeIn, now: str
) -> tuple[schemas.ProcedureRecord, list[str]]:
    """Returns the fields that an outcome sets, including counts, and the notes that it displaces. During a trial it
    counts for the steps that it names, or else for those that are served now."""
    trial = procedure.get("trial")
    variant = reported.variant or served(trial)
    counts = with_outcome(
        {"success_count": procedure["success_count"], "failure_count": procedure["failure_count"]},
        success=reported.success,
    )
    entry: schemas.ProcedureOutcome = {
        "success": reported.success,
        "note": reported.note,
        "action_id": reported.action_id,
        "task_id": reported.task_id,
        "variant": variant,
        "at": now,
        "version": procedure["version"],
    }
    notes, dropped = learned(procedure["notes"], () if reported.note is None else (reported.note,))
    fields: schemas.ProcedureRecord = {
        "success_count": counts["success_count"],
        "failure_count": counts["failure_count"],
        "success_rate": smoothed(counts["success_count"], counts["failure_count"]),
        "recent_outcomes": [*procedure["recent_outcomes"], entry][-KEPT_OUTCOMES:],
        "last_used": max(now, procedure["last_used"] or now),
        "notes": notes,
    }
    if trial:
        fields["trial"] = counted(trial, variant, success=reported.success)
    return fields, dropped


def learned(notes: Sequence[str], new: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Returns each note once, whatever its spelling (a repeated note counts as the newest), and the oldest notes, which
    are dropped."""
    by_spelling: dict[str, str] = {}
    for note in reversed([*notes, *new]):
        by_spelling.setdefault(normalise_content(note), note)
    distinct = list(reversed(by_spelling.values()))
    return distinct[-schemas.MAX_NOTES :], distinct[: -schemas.MAX_NOTES]


def without_notes_of(procedure: schemas.ProcedureRecord, gone: Set[str]) -> schemas.ProcedureRecord:
    """Returns the fields of a procedure that change when nothing may be left of what `gone` (ids of actions and tasks)
    noted: their outcomes still count, without id and note. Empty if it has none of their outcomes."""

    def of_gone(outcome: schemas.ProcedureOutcome) -> bool:
        return not gone.isdisjoint((outcome["action_id"], outcome["task_id"]))

    def spellings(outcomes: Iterable[schemas.ProcedureOutcome]) -> set[str]:
        return {normalise_content(outcome["note"]) for outcome in outcomes if outcome["note"]}

    outcomes = procedure["recent_outcomes"]
    theirs = [outcome for outcome in outcomes if of_gone(outcome)]
    if not theirs:
        return {}
    lost = spellings(theirs) - spellings(outcome for outcome in outcomes if not of_gone(outcome))
    return {
        "recent_outcomes": [
            {**outcome, "action_id": None, "task_id": None, "note": None} if of_gone(outcome) else outcome
            for outcome in outcomes
        ],
        "notes": [note for note in procedure["notes"] if normalise_content(note) not in lost],
    }


def text_to_index(procedure: schemas.ProcedureRecord) -> repository.TextToIndex:
    return repository.TextToIndex(schemas.situation(procedure))


def needs_new_entry(changed: schemas.ProcedureRecord) -> bool:
    """Returns True if a changed field is part of the indexed text."""
    return not changed.keys().isdisjoint(("name", "trigger", "preconditions"))


PROCEDURE: repository.Embeddable[schemas.ProcedureRecord] = repository.Embeddable(
    schemas.PROCEDURES, text_to_index, lambda embedding: {"embedding": embedding}, needs_new_entry=needs_new_entry
)


COUNTED = ("version", "success_count", "failure_count")
"""Every change increments one of these fields, so a change that expects all of them overwrites nothing unseen."""


class ProcedureRepository(repository.VersionedRepository[schemas.ProcedureRecord]):
    """The procedures and their history that a caller may see."""

    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, PROCEDURE, schemas.PROCEDURE_HISTORY)

    async def named(self, agent: str | None, user: str | None, name_key: str) -> schemas.ProcedureRecord | None:
        """Returns the active procedure with that name and exactly these owners, or None."""
        where = both(repository.of_partition(agent, user), Eq("name_key", name_key), Eq("status", "active"))
        procedures = await self.find(where, limit=1)
        return procedures[0] if procedures else None

    # --- Changes ------------------------------------------------------------------------------------------------------

    def revise(
        self,
        record: schemas.ProcedureRecord,
        changed: schemas.ProcedureRecord,
        now: str,
        entry: IndexEntry | None = None,
    ) -> list[Change]:
        """Returns the changes that replace fields and store the old version as history."""
        _, *past = super().revise(record, changed, now, entry)
        return [self.update(record, changed, now=now, expect=_as_counted(record), entry=entry), *past]

    def counted(self, procedure: schemas.ProcedureRecord, changed: schemas.ProcedureRecord) -> list[Change]:
        """Returns the changes that record an outcome. They do not bump the version."""
        return [self.append(procedure, changed, expect=_as_counted(procedure))]


def _as_counted(procedure: schemas.ProcedureRecord) -> schemas.ProcedureRecord:
    return schemas.PROCEDURES.as_record({name: value_at(procedure, name) for name in COUNTED})


class ProcedureService:
    """The operations on procedures within a caller's scope."""

    def __init__(
        self,
        procedures: ProcedureRepository,
        embeddings: repository.Embeddings,
        retriever: Retriever[schemas.ProcedureRecord],
        clock: Clock,
    ) -> None:
        self._procedures, self._embeddings, self._retriever, self._clock = procedures, embeddings, retriever, clock

    async def create(self, body: schemas.ProcedureCreate, precondition: Precondition) -> WriteResult[schemas.Procedure]:
        """Creates a procedure. Raises AlreadyExists if the name is taken, since its counts belong to other steps."""
        precondition.check(None)
        self._procedures.scope.require_write(body.agent_id, body.user_id)
        source: Source = {"api_key_id": self._procedures.scope.key_id}
        procedure = new_procedure(schemas.PROCEDURES.as_record(body.model_dump()), source, self._now())
        await self._require_free_name(procedure)
        procedure, changes = await self._procedures.add(procedure, self._embeddings)
        return WriteResult(schemas.render(procedure), changes, 201, {"ETag": etag(procedure)})

    async def get(self, procedure_id: str) -> schemas.Procedure:
        """Returns a procedure. Raises NotFound."""
        return schemas.render(await self._procedures.get(procedure_id))

    async def page(self, query: schemas.ProcedureQuery, listing: Listing) -> Page[schemas.Procedure]:
        """Returns a page of procedures that match the query. Owners must match exactly."""
        filters = query.model_dump()
        where = both(
            having(filters, "agent_id", "user_id"),
            None if query.name is None else Eq("name_key", normalise_content(query.name)),
            None if query.status == "any" else Eq("status", query.status),
            None if query.tag is None else Has("tags", query.tag),
            between("created_at", query.since, query.until),
        )
        return await self._procedures.listed(where, listing, schemas.render, schemas.Procedure, request=filters)

    async def patch(
        self, procedure_id: str, body: schemas.ProcedurePatch, precondition: Precondition
    ) -> WriteResult[schemas.Procedure]:
        """Changes fields of a procedure. Raises AlreadyExists if the new name is taken."""
        procedure = await self._procedures.get(procedure_id)
        self._procedures.require_write(procedure)
        precondition.check(procedure)
        changed = revision(procedure, schemas.PROCEDURES.as_record(body.model_dump(exclude_unset=True)))
        if not changed:
            return WriteResult(schemas.render(procedure), headers={"ETag": etag(procedure)})
        if not changed.keys().isdisjoint(("name_key", "status")):
            await self._require_free_name({**procedure, **changed})
        new, changes = await self._procedures.rewritten(procedure, changed, self._now(), self._embeddings)
        return WriteResult(schemas.render(new), changes, headers={"ETag": etag(new)})

    async def _require_free_name(self, procedure: schemas.ProcedureRecord) -> None:
        """Raises AlreadyExists if another active procedure of the same owners has the name. The message gives its id,
        since whoever may write here may see it."""
        if procedure["status"] != "active":
            return
        other = await self._procedures.named(procedure["agent_id"], procedure["user_id"], procedure["name_key"])
        if other is not None and other["procedure_id"] != procedure["procedure_id"]:
            raise AlreadyExists(f"{other['procedure_id']} has that name in this scope.")

    async def delete(self, procedure_id: str, precondition: Precondition) -> WriteResult[None]:
        procedure = await self._procedures.get_to_delete(procedure_id)
        precondition.check(procedure)
        return WriteResult(None, self._procedures.remove([procedure]), 204)

    async def history(self, procedure_id: str, listing: Listing) -> Page[schemas.ProcedureVersion]:
        await self._procedures.get(procedure_id)

        def past(version: HistoryRecord[schemas.ProcedureRecord]) -> schemas.ProcedureVersion:
            return {
                "version": version["version"],
                "changed_at": version["changed_at"],
                "changed_by": version["changed_by"],
                "record": schemas.PROCEDURES.public(version["record"]),
            }

        of_procedure = Eq("record_id", procedure_id)
        return await self._procedures.history.listed(
            of_procedure, listing, past, schemas.ProcedureVersion, request=procedure_id
        )

    async def record_outcome(
        self, procedure_id: str, body: schemas.OutcomeIn, precondition: Precondition
    ) -> WriteResult[schemas.OutcomeRecorded]:
        """Counts an outcome. The change expects the counts that were read, so that the answer shows just this outcome;
        after a conflict the handler counts again. An outcome by which the procedure begins to fail, or its trial is
        decided, starts a review in the background."""
        procedure = await self._procedures.get(procedure_id)
        precondition.check(procedure)
        changed, dropped = outcome(procedure, body, self._now())
        after: schemas.ProcedureRecord = {**procedure, **changed}
        answer: schemas.OutcomeRecorded = {"procedure": schemas.render(after), "dropped_notes": dropped}
        return WriteResult(
            answer, [*self._procedures.counted(procedure, changed), *self._review(procedure, after)], 201
        )

    def _review(self, before: schemas.ProcedureRecord, after: schemas.ProcedureRecord) -> list[Change]:
        if after["status"] != "active" or not to_review(before, after):
            return []
        scope, owner = self._procedures.scope, {"agent_id": after["agent_id"], "user_id": after["user_id"]}
        payload = {"procedure_id": after["procedure_id"], **scope.bindings()}
        _, changes = queue.start(scope, queue.REVIEW_PROCEDURE, payload, self._clock.now(), **owner)
        return changes

    async def search(self, body: schemas.ProcedureSearch) -> schemas.ProcedureSearchResult:
        """Searches by meaning and words, combined with how well each procedure has worked, recent
        outcomes above all."""
        now = self._clock.now() if body.now is None else parse_rfc3339(body.now)
        partitions = self._procedures.scope.partitions(body.agent_id, body.user_id, body.include_shared)
        where = procedure_filter(
            body.status, tags=body.tags, min_success_rate=body.min_success_rate, min_trust=body.min_trust
        )
        results: list[RetrievalResult[schemas.ProcedureRecord]] = []

        async def find(k: int) -> list[Hit[schemas.ProcedureRecord]]:
            wanted = RetrievalRequest(body.situation, partitions, where, to_ms(now), k, explain=body.explain)
            results.append(await self._retriever.find(wanted))
            return results[-1].hits

        hits = await best(find, body.top_k, now)
        searched = [cast(dict[str, float | None], result.took_ms) for result in results]
        names = [name for name in TookMs.__annotations__ if any(name in took for took in searched)]
        took = cast(TookMs, {name: round(sum(one.get(name) or 0 for one in searched), 3) for name in names})
        return {"items": [_item(hit, explain=body.explain) for hit in hits], **results[-1].how(), "took_ms": took}

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def _item(ranked: ProcedureHit, *, explain: bool) -> schemas.FoundProcedure:
    procedure, record = ranked.hit.doc, ranked.track_record
    item: schemas.FoundProcedure = {
        "procedure": schemas.render(as_served(procedure)),
        "variant": served(procedure.get("trial")),
        "score": _short(ranked.score),
        "recent": {"rate": _short(record.recent), "failed_in_a_row": record.failed_in_a_row},
        "track_record": record_sentence(procedure["success_count"], procedure["failure_count"], record),
        "warnings": warnings(record),
    }
    if not explain or ranked.hit.explanation is None:
        return item
    parts = {
        "relevance": ranked.hit.score,
        "works": record.works,
        "recent": record.recent,
        "freshness": record.freshness,
    }
    return {
        **item,
        "scores": {**ranked.hit.explanation.scores, **{name: _short(value) for name, value in parts.items()}},
    }


def _short(value: float) -> float:
    return float(f"{value:.7g}")
