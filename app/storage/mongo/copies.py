"""Copies of the pairs in use, in memory, brought up to date by difference: as fresh as the version read before."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from app.storage.cache import SegmentCache
from app.storage.collection import Collection
from app.storage.mongo.pairs import PAIRS, Database, PairState, changed_rows, state_of
from app.storage.segment import Segment

INLINE_ROWS = 2_000


class Copies:
    def __init__(self, database: Database, cache: SegmentCache, dim: int) -> None:
        self._database, self._cache, self._dim = database, cache, dim
        self._busy: dict[int, tuple[asyncio.Lock, int]] = {}

    def empty(self, collection: Collection, agent: str | None = None) -> Segment:
        return Segment(collection.spec, self._dim, agent)

    def drop_pairs(self, pairs: Sequence[int]) -> None:
        self._cache.drop_pairs(pairs)

    async def of(self, collection: Collection, state: PairState, model: int) -> Segment:
        """The pair's copy, at least as new as `state`, with its vectors of `model`."""
        held = self._cache.get((state.pair, model), state.floor)
        if held is not None and held[1] >= state.version:
            return held[0]
        async with self._one_at_a_time(state.pair):
            return await self._refreshed(collection, state, model)

    async def _refreshed(self, collection: Collection, state: PairState, model: int) -> Segment:
        wanted, key = state.version, (state.pair, model)
        while True:
            held = self._cache.get(key, state.floor)
            if held is not None and held[1] >= wanted:
                return held[0]
            segment, since = held or (self.empty(collection, state.agent), 0)
            rows = await changed_rows(self._database, collection, state, since, model, self._dim)
            if len(rows) > INLINE_ROWS and not since:
                await asyncio.to_thread(segment.apply, rows)
            else:
                segment.apply(rows)
            if since and len(segment) != state.count:
                now = await self._now(state)
                if since < now.floor or now.version == state.version:
                    self._cache.drop(key)  # tombstones that were needed went while the difference was read
                    state = now
                    continue
            self._cache.put(key, segment, state.version)
            return segment

    async def _now(self, state: PairState) -> PairState:
        found = await self._database[PAIRS].find_one({"_id": state.key})
        return state if found is None else state_of(found)

    @asynccontextmanager
    async def _one_at_a_time(self, pair: int) -> AsyncIterator[None]:
        """Two that bring the same copy up to date could apply an older row over a newer one."""
        lock, waiting = self._busy.get(pair, (asyncio.Lock(), 0))
        self._busy[pair] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._busy.pop(pair)
            if waiting > 1:
                self._busy[pair] = lock, waiting - 1
