"""Judges procedures by their outcomes: which one fails, and which steps of a trial are better. Pure functions.

A trial sets revised steps beside the current ones. Both are served in turn, and each outcome counts for the steps that
were served.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

from app.procedures.search import smoothed
from app.setting_groups import ProcedureSettings
from app.storage.schema import Doc

Variant = Literal["current", "revised"]
Verdict = Literal["adopt", "drop"]
Z = 1.96
"""Standard deviations of a 95 % interval."""


def interval(successes: int, failures: int) -> tuple[float, float]:
    """Returns the 95 % Wilson interval of the success rate: 0 to 1 without outcomes."""
    tried = successes + failures
    if not tried:
        return 0.0, 1.0
    rate, square = successes / tried, Z * Z
    middle = (rate + square / (2 * tried)) / (1 + square / tried)
    half = Z / (1 + square / tried) * sqrt(rate * (1 - rate) / tried + square / (4 * tried * tried))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Failing:
    """Why a procedure is failing. `outcomes` are the failed ones of its current steps, the oldest first."""

    successes: int
    failures: int
    in_a_row: int
    outcomes: tuple[Doc, ...]

    @property
    def reason(self) -> str:
        """A sentence for people."""
        worked = f"It worked {self.successes} of {self.successes + self.failures} times"
        return f"{worked} and failed the last {self.in_a_row}." if self.in_a_row > 1 else f"{worked}."


def failing(doc: Mapping[str, Any], settings: ProcedureSettings) -> Failing | None:
    """Returns why a procedure is failing, or None.

    Only outcomes of the current version count, since an earlier one had other steps; outcomes of revised steps on trial
    do not. The procedure fails if the last `failures_in_a_row` of them failed, or if the upper bound of the interval of
    its success rate is less than `failing_below`: it surely works less often.
    """
    counted = [
        one for one in doc["recent_outcomes"] if one["version"] == doc["version"] and variant_of(one) == "current"
    ]
    failed = tuple(one for one in counted if not one["success"])
    successes = len(counted) - len(failed)
    in_a_row = next((age for age, one in enumerate(reversed(counted)) if one["success"]), len(counted))
    _, upper = interval(successes, len(failed))
    if in_a_row < settings.failures_in_a_row and upper >= settings.failing_below:
        return None
    return Failing(successes, len(failed), in_a_row, failed)


def variant_of(outcome: Mapping[str, Any]) -> Variant:
    """Returns the steps that an outcome counts for. Those of earlier versions of the service do not say."""
    return "revised" if outcome.get("variant") == "revised" else "current"


def new_trial(trial_id: str, steps: list[str], action_ids: list[str], model: str, prompt_version: str, now: str) -> Doc:
    """Returns a trial without outcomes."""
    counts = {"success_count": 0, "failure_count": 0}
    origin = {"action_ids": action_ids, "model": model, "prompt_version": prompt_version}
    return {"trial_id": trial_id, "steps": steps, "current": counts, "revised": counts, **origin, "started_at": now}


def served(trial: Doc | None) -> Variant:
    """Returns the steps to serve: those with fewer outcomes in the trial; of equally many, the revised ones. So they
    take turns."""
    if trial is None:
        return "current"
    return "revised" if _tried(trial["revised"]) <= _tried(trial["current"]) else "current"


def counted(trial: Doc, variant: Variant, *, success: bool) -> Doc:
    """Returns the trial with one more outcome."""
    name = "success_count" if success else "failure_count"
    return {**trial, variant: {**trial[variant], name: trial[variant][name] + 1}}


def verdict(trial: Doc, settings: ProcedureSettings) -> Verdict | None:
    """Returns what becomes of the revised steps, or None as long as the trial goes on.

    With `trial_outcomes` each, they are adopted once the lower bound of their interval exceeds the smoothed success
    rate of the current steps, and dropped once their upper bound is less than it. After `trial_most` outcomes of the
    revised steps, or twice as many of both, they are dropped: what is not better in so many tries is worth no change.
    """
    current, revised = trial["current"], trial["revised"]
    if min(_tried(current), _tried(revised)) >= settings.trial_outcomes:
        rate = smoothed(current["success_count"], current["failure_count"])
        lower, upper = interval(revised["success_count"], revised["failure_count"])
        if lower > rate:
            return "adopt"
        if upper < rate:
            return "drop"
    most = settings.trial_most
    over = _tried(revised) >= most or _tried(revised) + _tried(current) >= 2 * most
    return "drop" if over else None


def as_served(doc: Doc) -> Doc:
    """Returns a procedure with the steps to serve."""
    trial = doc.get("trial")
    return doc if trial is None or served(trial) == "current" else {**doc, "steps": trial["steps"]}


def to_review(before: Doc, after: Doc, settings: ProcedureSettings) -> bool:
    """Returns True if an outcome calls for a review: its trial is decided, or the procedure began to fail, or failed as
    often again. A review that came too early for a better way, or found the model away, is so made up for."""
    trial = after.get("trial")
    if trial is not None:
        return verdict(trial, settings) is not None
    found = failing(after, settings)
    if found is None:
        return False
    again = found.in_a_row > 0 and found.in_a_row % settings.failures_in_a_row == 0
    return again or failing(before, settings) is None


def restored(before: Doc) -> Doc:
    """Returns the fields that an undo restores. It brings no trial back: an adoption that was undone would be adopted
    again at the next outcome. What was tried then counts as tried in vain."""
    trial = before.get("trial")
    if trial is None:
        return before
    return {**before, "trial": None, "dropped_trials": [*(before.get("dropped_trials") or []), trial["steps"]]}


def trial_record(trial: Doc) -> str:
    """Returns a sentence such as `worked 1 of 2 times` about the revised steps."""
    revised = trial["revised"]
    tried = _tried(revised)
    return f"worked {revised['success_count']} of {tried} time{'' if tried == 1 else 's'}" if tried else "not tried yet"


def _tried(counts: Mapping[str, int]) -> int:
    return counts["success_count"] + counts["failure_count"]
