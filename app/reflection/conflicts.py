"""Pairs of records that cannot both hold: two facts with different values of one thing. Pure functions.

A group of facts settles its own conflicts (`app/facts/ledger.py`). These are of different groups: one
agent learned of another home than all agents know, or a fact names the user by name.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from app.facts.profile import field_of
from app.facts.schemas import USER, key_of, predicate_key
from app.findings.service import EvidenceRecord, FactEvidence, facts_of_one_group
from app.learning.extraction import is_user

MOST_OF_ONE = 50
"""The limit of records that are compared for one subject and predicate, the latest ones."""
REASON = "They give different values ({})."


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Two records that cannot both hold. `earlier` was said first."""

    earlier: EvidenceRecord
    later: EvidenceRecord

    @property
    def keep(self) -> EvidenceRecord:
        """The record that should stand: the later one, unless it is trusted less."""
        return self.later if self.later.trust >= self.earlier.trust else self.earlier

    @property
    def retire(self) -> EvidenceRecord:
        """The record that gives way."""
        return self.earlier if self.keep is self.later else self.later


def facts_in_conflict(records: Sequence[EvidenceRecord], names: Sequence[str]) -> Iterator[tuple[Contradiction, str]]:
    """Yields the single-valued facts that cannot both hold, each pair with its predicate or its field of the profile.
    `names`: those of the user."""
    stated: dict[tuple[str, str], list[FactEvidence]] = defaultdict(list)
    for record in sorted(records, key=lambda record: (record.said_at, record.id)):
        if isinstance(record, FactEvidence) and (key := _key(record, names)) is not None:
            stated[key].append(record)
    for (_, of), same in stated.items():
        for earlier, later in combinations(same[-MOST_OF_ONE:], 2):
            differ = key_of(earlier.fact["object"]) != key_of(later.fact["object"])
            if differ and not facts_of_one_group(earlier, later):
                yield Contradiction(earlier, later), of


def _key(record: FactEvidence, names: Sequence[str]) -> tuple[str, str] | None:
    """Returns subject and predicate of a fact that states a single value, or None."""
    fact = record.fact
    if fact["cardinality"] != "one":
        return None
    if not is_user(fact["subject"], names):
        return fact["subject_key"], predicate_key(fact["predicate"])
    return USER, field_of({**fact, "subject": USER}) or predicate_key(fact["predicate"])
