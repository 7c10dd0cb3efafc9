"""`recalld serve`, with a short lease of idempotency keys, and on demand with a store that is planted to be wrong.

    python -m tests.support.serve [hasty | blind]

hasty: acknowledges, and commits a second later. blind: takes a commit whose answer is lost, as half of them are, for
one that was refused, and does it again.
"""

import asyncio
import random
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from app.cli.serve import serve_with
from app.lifespan import RealParts
from app.settings import Settings
from app.storage.changes import Allocate, Change, CommitConflict, Committed
from app.writes import executor
from tests.support.stores import Wrapped

LEASE = timedelta(seconds=4)
HASTE_SECONDS = 1.0
LOST_ANSWERS = 0.5


class Hasty(Wrapped):
    async def commit(self, changes: Sequence[Change]) -> Committed:
        if any(isinstance(change, Allocate) for change in changes):
            return await self._store.commit(changes)
        self._late = asyncio.create_task(self._commit_late(changes))
        return Committed({}, 0)

    async def _commit_late(self, changes: Sequence[Change]) -> None:
        await asyncio.sleep(HASTE_SECONDS)
        await self._store.commit(changes)


class Blind(Wrapped):
    async def commit(self, changes: Sequence[Change]) -> Committed:
        committed = await self._store.commit(changes)
        if random.random() < LOST_ANSWERS:
            raise CommitConflict("any", "any", "expect")  # the write path plans again, with new ids
        return committed


PLANTED: dict[str, type[Wrapped]] = {"hasty": Hasty, "blind": Blind}


class PlantedParts(RealParts):
    async def store(self, settings: Settings, dim: int) -> Any:
        return PLANTED[sys.argv[1]](await super().store(settings, dim))


if __name__ == "__main__":
    executor.run_write.__defaults__ = (None, LEASE, None, ())
    serve_with(PlantedParts() if len(sys.argv) > 1 else RealParts())
