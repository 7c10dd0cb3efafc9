"""The rules of docs/contributing/facts.md once more, another way: what holds at each point of time, and no intervals.

Time is cut at every moment that anybody named; between two of them nothing changes, so each stands for all until the
next. Every known moment keeps its own picture of all points, so nothing needs to be dated.
"""

from bisect import bisect, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from app.facts.ledger import OPEN_END, OPEN_START, Assertion

Entry = tuple[str, float, str]
"""Object, trust, cardinality."""
Run = tuple[Entry, str, str]
"""An entry that holds without a gap: from, until."""
Disputed = tuple[Entry, str, str]


@dataclass
class Picture:
    known: str
    held: dict[str, set[Entry]]
    disputed: list[Disputed]


@dataclass
class Oracle:
    points: list[str] = field(default_factory=lambda: [OPEN_START])
    held: dict[str, set[Entry]] = field(default_factory=lambda: {OPEN_START: set()})
    disputed: list[Disputed] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    assumed: set[tuple[Entry, str]] = field(default_factory=set)
    """What began when it was told, for want of a start, and when."""
    disputes_assumed: set[Disputed] = field(default_factory=set)
    usual: str = "one"

    # --- Points -------------------------------------------------------------------------------------------------------

    def cut(self, *moments: str) -> None:
        for moment in moments:
            if moment not in (OPEN_END, *self.points):
                before = self.points[bisect(self.points, moment) - 1]
                insort(self.points, moment)
                for held in (self.held, *(picture.held for picture in self.pictures)):
                    held[moment] = set(held[before])

    def between(self, start: str, end: str) -> set[str]:
        return {point for point in self.points if start <= point < end}

    def runs(self) -> list[Run]:
        return sorted(self._runs())

    def _runs(self) -> Iterator[Run]:
        for entry in set().union(*self.held.values()):
            start = None
            for point in (*self.points, OPEN_END):
                holds = point != OPEN_END and entry in self.held[point]
                if holds and start is None:
                    start = point
                if not holds and start is not None:
                    yield entry, start, point
                    start = None

    # --- What can be done ---------------------------------------------------------------------------------------------

    def tell(self, said: Assertion, now: str) -> str:
        """`known`, `disputed` or `new`."""
        name, policy = said.object[0], said.policy
        start = self._start(name, said, now)
        near = [run for run in self._runs() if run[0][0] == name and run[1] <= said.end and start <= run[2]]
        cardinality = said.cardinality or (max(near, key=lambda r: (r[0][1], r[1], r[2]))[0][2] if near else self.usual)
        entry = (name, said.trust, "many" if policy == "keep_both" else cardinality)
        told = self._claim(entry, start, said.end, policy, assumed=said.start is None and start == now)
        if told != "known":
            stated = said.cardinality or ("many" if policy == "keep_both" else "one")
            self.usual = "many" if "many" in (stated, self.usual) else "one"
        return told

    def _start(self, name: str, said: Assertion, now: str) -> str:
        self.cut(now, said.end, *([said.start] if said.start is not None else []))
        if said.start is not None or said.end == OPEN_END:
            return now if said.start is None else said.start
        open_ended = [begun for (other, _, _), begun, end in self._runs() if other == name and end == OPEN_END]
        before = [begun for begun in open_ended if begun < said.end]
        return max(before) if before else OPEN_START if said.end <= now else now

    def _claim(self, entry: Entry, start: str, end: str, policy: str, *, assumed: bool) -> str:
        name, trust, cardinality = entry
        mine = [run for run in self._runs() if run[0][0] == name]
        against = [r for r in self._runs() if r[0][0] != name and r[0][2] == "one"] if cardinality == "one" else []
        would_end = [r for r in mine if r[2] == OPEN_END and end != OPEN_END and start <= r[1] < end]
        ended = [r for r in would_end if r[0][1] <= trust]
        joined = [r for r in mine if r not in ended and r[0] == entry and r[1] <= end and start <= r[2]]
        covered = self._of(joined)
        points = self.between(start, end) | covered
        if policy == "temporal" and end == OPEN_END:
            dated = not assumed and start != OPEN_START
            before = [r for r in against if dated and (r[0], r[1]) in self.assumed and r[0][1] == trust]
            points -= self._of([r for r in against if r not in before and r[1] > start and r[0][1] >= trust])
        points -= self._of([r for r in mine if r[0][1] > trust])
        stronger = [r for r in against if r[0][1] > trust and self._of([r]) & points]
        if stronger or any(r[0][1] > trust for r in would_end):
            return self._dispute(entry, start, end, assumed=assumed)
        if not ended and points == covered:
            return "known"
        starts = [(start, assumed), *((run[1], (entry, run[1]) in self.assumed) for run in joined)]
        for run in (*ended, *joined):
            self._drop(run[0], self._of([run]))
        for run in against:
            if self._of([run]) & points:
                self._drop(run[0], self._of([run]) if policy == "last_write_wins" else points)
        self._add(entry, points)
        for begun in {begun for other, begun, _ in self._runs() if other == entry and begun in points}:
            said = [guess for moment, guess in starts if moment == begun]
            self.assumed.discard((entry, begun))
            self.assumed |= {(entry, begun)} if said and all(said) else set()
        self._forget()
        told = points & self.between(start, end)
        self.disputed = [d for d in self.disputed if d[0][0] != name or not self._of([d]) <= told]
        return "new"

    def _forget(self) -> None:
        self.assumed &= {(entry, start) for entry, start, _ in self._runs()}

    def _dispute(self, entry: Entry, start: str, end: str, *, assumed: bool) -> str:
        for (other, weight, _), a, b in self.disputed:
            if other == entry[0] and weight >= entry[1] and a <= start and end <= b:
                return "known"
        self.disputed.append((entry, start, end))
        self.disputes_assumed -= {(entry, start, end)}
        self.disputes_assumed |= {(entry, start, end)} if assumed else set()
        return "disputed"

    def _add(self, entry: Entry, points: set[str]) -> None:
        """In place of what says the same with less trust."""
        name = entry[0]
        for point in points:
            others = {other for other in self.held[point] if other[0] != name or other[1] > entry[1]}
            self.held[point] = others | {entry}

    def _of(self, runs: Iterable[Run]) -> set[str]:
        return {point for _, start, end in runs for point in self.between(start, end)}

    def retract(self, entry: Entry, start: str, end: str, *, disputed: bool) -> None:
        if disputed:
            self.disputed.remove((entry, start, end))
        else:
            self._drop(entry, self.between(start, end))
            self._forget()

    def contenders(self, disputed: Disputed) -> list[Run]:
        (name, _, cardinality), start, end = disputed
        return [
            (other, a, b)
            for other, a, b in self.runs()
            if self.between(a, b) & self.between(start, end)
            and (
                (other[0] != name and other[2] == cardinality == "one")
                or (other[0] == name and b == OPEN_END != end and start <= a < end)
            )
        ]

    def keep(self, disputed: Disputed, *, beside: bool) -> None:
        (name, trust, cardinality), start, end = disputed
        replaced = [run for run in self.contenders(disputed) if not beside or run[0][0] == name]
        self.disputed.remove(disputed)
        trust = max([trust, *(run[0][1] for run in replaced)])
        guess = disputed in self.disputes_assumed
        self._claim((name, trust, "many" if beside else cardinality), start, end, "temporal", assumed=guess)
        self.usual = "many" if beside else self.usual

    def photograph(self, known: str) -> None:
        held = {point: set(entries) for point, entries in self.held.items()}
        self.pictures.append(Picture(known, held, list(self.disputed)))

    def _drop(self, entry: Entry, points: set[str]) -> None:
        for point in points:
            self.held[point].discard(entry)
