"""What a part of the battery tells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Row:
    """`caught`: the checker saw the bug that was planted for it."""

    did: str
    figures: Mapping[str, Any]
    faults: int
    caught: bool
    details: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.caught and not self.faults

    def line(self, name: str) -> str:
        figures = ", ".join(f"{key} {value}" for key, value in self.figures.items())
        planted = "planted bug seen" if self.caught else "PLANTED BUG NOT SEEN"
        return f"{'ok   ' if self.ok else 'FAULT'} {name:<13} {self.did}: {figures}; {planted}; {self.seconds} s"


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
