"""Random stories about one subject and predicate, told to the service and to the oracle, which must agree on every
point of both times."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from hypothesis import strategies as st

from app.core.clock import rfc3339
from app.facts.ledger import OPEN_END, OPEN_START, Assertion, statement
from app.facts.repository import View
from app.facts.schemas import Cardinality, ConflictPolicy, FactRecord
from app.storage.schema import Doc, matches
from tests.support.facts_oracle import Disputed, Oracle, Run

START = datetime(2026, 1, 10, tzinfo=UTC)
GRID = [rfc3339(START + timedelta(days=day)) for day in (-6, -3, 0, 3, 6, 9)]


@dataclass(frozen=True)
class DescribeDay:
    """`start`, `end`: places in the grid; -1 is null, None is left out."""

    object: str
    start: int | None
    end: int | None
    trust: float
    cardinality: Cardinality | None
    policy: ConflictPolicy
    hours: int

    @property
    def said(self) -> Assertion:
        start = None if self.start is None else OPEN_START if self.start < 0 else GRID[self.start]
        end = OPEN_END if self.end is None else GRID[self.end]
        return Assertion((self.object, "entity"), start, end, self.trust, self.cardinality, self.policy)

    def body(self) -> Doc:
        said = self.said
        fields: Doc = {"object": self.object, "trust": self.trust, "on_conflict": self.policy}
        if said.start is not None:
            fields["valid_from"] = said.start or None
        if said.end != OPEN_END:
            fields["valid_until"] = said.end
        return fields if self.cardinality is None else fields | {"cardinality": self.cardinality}


@dataclass(frozen=True)
class Retract:
    which: int
    hours: int


@dataclass(frozen=True)
class Resolve:
    which: int
    how: int
    hours: int


Step = DescribeDay | Retract | Resolve

HOURS = st.sampled_from([0, 0, 1, 30, 80])
SPANS: list[tuple[int | None, int | None]] = [
    *((None, end) for end in (None, None, None, 1, 4)),
    *((-1, end) for end in (None, 2)),
    *((start, None) for start in range(6)),
    *((start, end) for start in range(6) for end in range(start + 1, 6)),
]
TELLS = st.builds(
    lambda name, span, trust, cardinality, policy, hours: DescribeDay(
        name, span[0], span[1], trust, cardinality, policy, hours
    ),
    st.sampled_from("ABC"),
    st.sampled_from(SPANS),
    st.sampled_from([1.0, 0.5, 0.5, 0.2]),
    st.sampled_from([None, None, None, "one", "many"]),
    st.sampled_from(["temporal", "temporal", "temporal", "last_write_wins", "keep_both"]),
    HOURS,
)
STEPS = st.integers(0, 9).flatmap(
    lambda dice: (
        st.builds(Retract, st.integers(0, 20), HOURS)
        if dice == 0
        else st.builds(Resolve, st.integers(0, 20), st.integers(0, 5), HOURS)
        if dice == 1
        else TELLS
    )
)


class Driver(Protocol):
    """A service that the story is told to, at the time that it is told."""

    async def tell(self, step: DescribeDay, now: datetime) -> str:
        """`known`, `disputed` or `new`."""
        ...

    async def retract(self, fact_id: str, now: datetime) -> None: ...

    async def resolve(self, fact_id: str, keep: str, now: datetime) -> None: ...

    async def everything(self) -> list[FactRecord]:
        """Every document of the subject, as it is stored."""
        ...


@dataclass
class Story:
    driver: Driver
    oracle: Oracle = field(default_factory=Oracle)
    now: datetime = START
    known: str = ""

    async def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.now += timedelta(hours=step.hours)
            before = {doc["fact_id"] for doc in await self.driver.everything()}
            await self._take(step)
            docs = await self.driver.everything()
            ids = {doc["fact_id"] for doc in docs}
            assert before <= ids, "history is lost"
            known = max((t for doc in docs for t in (doc["known_from"], doc["known_until"]) if t), default="")
            assert known >= self.known
            if known != self.known:
                assert known >= rfc3339(self.now)
                self.oracle.photograph(known)
                self.known = known
        check(self.oracle, await self.driver.everything())

    async def _take(self, step: Step) -> None:
        moment = self._moment()
        match step:
            case DescribeDay():
                wanted = self.oracle.tell(step.said, moment)
                assert await self.driver.tell(step, self.now) == wanted
            case Retract():
                live = await self._live()
                if live:
                    doc = live[step.which % len(live)]
                    entry, start, end = run_of(doc)
                    self.oracle.retract(entry, start, end, disputed=doc["standing"] == "disputed")
                    await self.driver.retract(doc["fact_id"], self.now)
            case Resolve():
                await self._resolve(step)

    async def _resolve(self, step: Resolve) -> None:
        live = await self._live()
        disputed = [doc for doc in live if doc["standing"] == "disputed"]
        if not disputed:
            return
        doc = disputed[step.which % len(disputed)]
        run: Disputed = run_of(doc)
        self.oracle.cut(self._moment())
        others = self.oracle.contenders(run)
        if step.how < 2:
            self.oracle.keep(run, beside=step.how == 1)
            await self.driver.resolve(doc["fact_id"], "both" if step.how else doc["fact_id"], self.now)
        elif others:
            kept = others[step.how % len(others)]
            self.oracle.retract(*run, disputed=True)
            (other,) = [one for one in live if one["standing"] == "held" and run_of(one) == kept]
            await self.driver.resolve(doc["fact_id"], other["fact_id"], self.now)

    async def _live(self) -> list[FactRecord]:
        found = [doc for doc in await self.driver.everything() if doc["known_until"] is None]
        return sorted(found, key=lambda doc: (doc["standing"], run_of(doc)))

    def _moment(self) -> str:
        """When what happens now becomes known."""
        now = rfc3339(self.now)
        return now if now > self.known else rfc3339(datetime.fromisoformat(self.known) + timedelta(milliseconds=1))


def run_of(fact: FactRecord) -> Run:
    stated = statement(fact)
    return (stated.object[0].upper(), stated.trust, stated.cardinality), stated.span.start, stated.span.end


def check(oracle: Oracle, docs: list[FactRecord]) -> None:
    """At every point of both times the documents say what the oracle saw."""
    for picture in oracle.pictures:
        known = View(None, picture.known)
        there = [doc for doc in docs if matches(doc, known.known())]
        disputed = sorted(run_of(doc) for doc in there if doc["standing"] == "disputed")
        assert disputed == sorted(picture.disputed), picture.known
        for point, entries in picture.held.items():
            view = View(point or "0001-01-01T00:00:00.000Z", picture.known)
            told = [run_of(doc)[0] for doc in there if matches(doc, view.believed())]
            assert set(told) == entries, (picture.known, point)
            assert len({name for name, _, cardinality in told if cardinality == "one"}) <= 1
    now = [run_of(doc) for doc in docs if matches(doc, View(None).believed())]
    assert sorted(now) == oracle.runs(), "what is known now, span by span"
