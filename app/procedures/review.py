"""Which procedures are to be reviewed: those that fail, and those whose trial is decided."""

from dataclasses import dataclass

from app.procedures.schemas import ProcedureOutcome, ProcedureRecord
from app.procedures.track_record import FAILURES_IN_A_ROW, interval
from app.procedures.trials import variant_of, verdict

FAILING_BELOW = 0.5
"""A procedure is failing, too, if the 95 % interval of its success rate lies below."""


@dataclass(frozen=True, slots=True)
class Failing:
    """Why a procedure is failing. `outcomes` are the failed ones of its current steps, the oldest first."""

    successes: int
    failures: int
    in_a_row: int
    outcomes: tuple[ProcedureOutcome, ...]

    @property
    def reason(self) -> str:
        """A sentence for people."""
        worked = f"It worked {self.successes} of {self.successes + self.failures} times"
        return f"{worked} and failed the last {self.in_a_row}." if self.in_a_row > 1 else f"{worked}."


def failing(procedure: ProcedureRecord) -> Failing | None:
    """Returns why a procedure is failing, or None.

    Only outcomes of the current version count, since an earlier one had other steps; outcomes of revised steps on trial
    do not. The procedure fails if the last `FAILURES_IN_A_ROW` of them failed, or if the upper bound of the interval of
    its success rate is less than `FAILING_BELOW`: it surely works less often.
    """
    outcomes = [
        outcome
        for outcome in procedure["recent_outcomes"]
        if outcome["version"] == procedure["version"] and variant_of(outcome) == "current"
    ]
    failed = tuple(outcome for outcome in outcomes if not outcome["success"])
    successes = len(outcomes) - len(failed)
    in_a_row = next((age for age, outcome in enumerate(reversed(outcomes)) if outcome["success"]), len(outcomes))
    _, upper = interval(successes, len(failed))
    if in_a_row < FAILURES_IN_A_ROW and upper >= FAILING_BELOW:
        return None
    return Failing(successes, len(failed), in_a_row, failed)


def to_review(before: ProcedureRecord, after: ProcedureRecord) -> bool:
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
