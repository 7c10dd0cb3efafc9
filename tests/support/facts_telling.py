"""Whom stories are told to: a service over HTTP, at the time of the story, and the rules alone."""

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from app.core.clock import rfc3339
from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.facts.ledger import Assertion, Ledger, ValidSpan, statement
from app.facts.schemas import FACTS, FactGroupRecord, FactRecord
from app.facts.service import least_start
from app.storage.schema import Doc, Eq
from tests.conftest import Service, TurnedClock
from tests.support.facts import HOME
from tests.support.facts_machine import DescribeDay


class Still:
    """An embedder that says the same of every text, at once."""

    def __init__(self, inner: Embedder) -> None:
        self.name, self.dim, self.ready = inner.name, inner.dim, True
        self._inner = inner
        self._one = np.full(inner.dim, inner.dim**-0.5, np.float32)

    async def embed_query(self, text: str) -> Vectors:
        return self._one

    async def embed_texts(self, texts: Sequence[str]) -> Vectors:
        return np.tile(self._one, (len(texts), 1))

    async def windows(self, texts: Sequence[str]) -> list[list[str]]:
        return [[text] for text in texts]

    async def close(self) -> None:
        await self._inner.close()


class StoppedClock(TurnedClock):
    """Stands still until it is set."""

    def now(self) -> datetime:
        return self.time


class Teller:
    """As one user of its own, to a service whose clock is a `StoppedClock`."""

    def __init__(self, service: Service, user: str) -> None:
        self._api, self._service, self._user = service.client, service, user

    async def tell(self, step: DescribeDay, now: datetime) -> str:
        body = {**HOME, "user_id": self._user, **step.body(), "object_type": "entity"}
        made = await self._post("", body, now)
        return "known" if made.pop("answered") == 200 else "disputed" if made["status"] == "disputed" else "new"

    async def retract(self, fact_id: str, now: datetime) -> None:
        await self._post(f"/{fact_id}/retract", None, now)

    async def resolve(self, fact_id: str, keep: str, now: datetime) -> None:
        await self._post(f"/{fact_id}/resolve", {"keep": keep}, now)

    async def everything(self) -> list[FactRecord]:
        of_user = Eq("user_id", self._user)
        return await self._service.resources.store.find(FACTS, "default", of_user, order="asc", limit=1_000)

    async def _post(self, path: str, body: Doc | None, now: datetime) -> Doc:
        self._service.clock.time = now
        made = await self._api.post(f"/v1/facts{path}", json=body)
        assert made.status_code in (200, 201), made.text
        fact: Doc = made.json()
        return fact | {"answered": made.status_code}


class Bookkeeper:
    """Carries out what a book says on documents in memory, of which it opens no more than the service does."""

    def __init__(self) -> None:
        self.facts: dict[str, FactRecord] = {}
        self.group: FactGroupRecord | None = None

    def _open(self, now: datetime, said: Assertion | None = None) -> Ledger:
        live = [fact for fact in self.facts.values() if fact["known_until"] is None]
        if said is not None:
            span = ValidSpan(least_start(said, rfc3339(now)), said.end)
            near = [(fact, stated) for fact in live if (stated := statement(fact)).span.touches(span)]
            live = [fact for fact, stated in near if stated.cardinality == "one" or stated.object[0] == said.object[0]]
        return Ledger(self.group, live, rfc3339(now))

    def _shut(self, book: Ledger) -> None:
        if book.closed or book.written:
            self.facts |= book.closed | book.written
            self.group = {"known": book.now, "usual": book.usual}

    async def tell(self, step: DescribeDay, now: datetime) -> str:
        book = self._open(now, step.said)
        draft: FactRecord = {
            "object_key": step.object,
            "object_type": "entity",
            "confidence": 1.0,
            "trust": step.trust,
        }
        fact_id, new = book.assert_fact(draft, step.said)
        self._shut(book)
        return "known" if not new else "disputed" if book.latest(fact_id)["status"] == "disputed" else "new"

    async def retract(self, fact_id: str, now: datetime) -> None:
        book = self._open(now)
        book.retract(fact_id)
        self._shut(book)

    async def resolve(self, fact_id: str, keep: str, now: datetime) -> None:
        book = self._open(now)
        if keep in (fact_id, "both"):
            book.keep(fact_id, beside=keep == "both")
        else:
            assert keep in book.contenders(fact_id)
            book.retract(fact_id)
        self._shut(book)

    async def everything(self) -> list[FactRecord]:
        return list(self.facts.values())
