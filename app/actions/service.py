"""The rules of episodic memory. Methods that write return an `Outcome` and commit nothing."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta, tzinfo
from typing import Any

import orjson

from app.actions.models import ACTIONS
from app.actions.schemas import ActionCreate, ActionSearch, Feedback, render
from app.actions.statistics import Tally, grouping
from app.clock import Clock, parse_rfc3339, rfc3339, to_ms
from app.idempotency.precondition import Precondition, etag
from app.idempotency.write import Outcome
from app.ids import new_id
from app.memories.embeddings import Embeddings
from app.memories.lookup import Lookup
from app.storage.collection import Doc, Update
from app.storage.filters import Eq, Filter, Has, Range, both
from app.storage.repository import Listing, Repository
from app.storage.text import content_hash

BATCH = 500
ONE_LINE = 200


class ActionService:
    def __init__(self, actions: Repository, embeddings: Embeddings, lookup: Lookup, clock: Clock) -> None:
        self._actions, self._embeddings, self._lookup, self._clock = actions, embeddings, lookup, clock

    async def log(self, bodies: Sequence[ActionCreate], precondition: Precondition) -> Outcome:
        """All of them, or none."""
        precondition.check(None)
        now = rfc3339(self._clock.now())
        docs = [_document(body, now) for body in bodies]
        for doc in docs:
            self._actions.scope.require_write(doc["agent_id"], doc["user_id"])
        entries = await self._embeddings.entries(docs)
        changes = [self._actions.insert(doc, entry) for doc, entry in zip(docs, entries, strict=True)]
        return Outcome({"items": [render(doc) for doc in docs]}, changes, 201)
