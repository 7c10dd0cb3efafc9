"""Which values of single-valued facts, the profile's among them, have been replaced by which, since when, and what each
was learned from. Pure functions: nothing is stored, so the answer holds for any time and any state of knowledge.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import tzinfo

from app.core.clock import day_of
from app.core.language import Letters
from app.facts.keys import field_of, sentence
from app.facts.models import FactRecord
from app.memories.schemas import MemoryRecord


@dataclass(frozen=True, slots=True)
class ReplacedValue:
    """A value that a single-valued fact had, with the fact that states the present one."""

    earlier: FactRecord
    present: FactRecord
    letters: Letters
    """Of the earlier value, to be looked up in texts."""
    present_letters: Letters
    learned_from: frozenset[str]
    """The ids of the memories, those of messages included, that the earlier value was learned from."""

    @classmethod
    def of(cls, earlier: FactRecord, present: FactRecord) -> "ReplacedValue":
        """Returns it of two facts of one group."""
        learned_from = frozenset(earlier["source"].get("memory_ids") or ())
        return cls(earlier, present, Letters.of(earlier["object"]), Letters.of(present["object"]), learned_from)

    @property
    def since(self) -> str | None:
        """When the present value began (RFC 3339), if that is known."""
        return self.present["valid_from"]

    @property
    def begun(self) -> str:
        """When the present value began, or else when it became known."""
        return self.present["valid_from"] or self.present["known_from"]

    @property
    def subject(self) -> str:
        """Whom the fact is about, as subjects are compared: "@user" for the user."""
        return self.present["subject_key"]

    def stated(self, shown: str, zone: tzinfo) -> str:
        """Returns the present fact in words that are true beside any text: "home since 2026-11-01: Bergen", "since
        2026-11-01: Ben works at Acme". `shown`: the present value as it is to be shown; the day is one of the zone."""
        field, day = field_of(self.present), "now" if self.since is None else f"since {day_of(self.since, zone)}"
        if field is not None:
            return f"{field} {day}: {shown}"
        return f"{day}: {sentence({**self.present, 'object': shown})}"


def replaced_values(facts: Iterable[FactRecord], as_of: str, known_at: str | None = None) -> list[ReplacedValue]:
    """Returns the values that single-valued facts had before the one that holds at `as_of`, as far as that was known at
    `known_at` (None: now).

    `facts` are all rows of their groups that had been written by then. What was retracted was never a value; a value
    that holds again is not replaced. Example: of the rows home Oslo until November, home Bergen from then on, Oslo is
    replaced by Bergen in December, and nothing in October.
    """
    groups: dict[str, list[FactRecord]] = {}
    for fact in facts:
        if fact["standing"] == "held" and fact["status"] != "retracted":
            groups.setdefault(fact["group_id"], []).append(fact)
    replaced = list[ReplacedValue]()
    for rows in groups.values():
        holding = [row for row in rows if _was_known(row, known_at) and holds(row, as_of)]
        if not holding or any(row["cardinality"] != "one" for row in holding):
            continue
        present = max(holding, key=lambda row: (row["valid_from"] or "", row["known_from"]))
        begun = [row for row in rows if (row["valid_from"] or "") <= as_of]
        # a fact whose end became known later stands in two rows: they say and were learned from the same
        earlier = {
            (row["object_key"], *(row["source"].get("memory_ids") or ())): row
            for row in begun
            if row["object_key"] != present["object_key"]
        }
        replaced += [ReplacedValue.of(row, present) for row in earlier.values()]
    return replaced


def _was_known(fact: FactRecord, known_at: str | None) -> bool:
    until = fact["known_until"]
    return until is None or (known_at is not None and until > known_at)


def holds(record: FactRecord | MemoryRecord, as_of: str) -> bool:
    """Returns whether a fact or a memory is true at a time (RFC 3339)."""
    return (record["valid_from"] or "") <= as_of and (record["valid_until"] is None or record["valid_until"] > as_of)
