"""The job `embed_pending`: embeds missing vectors, moves records to the current model, rewrites old index entries."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.core.clock import Clock
from app.embedding.embedder import Embedder
from app.errors import EmbeddingUnavailable
from app.jobs.runner import Done, Run
from app.memories.embedding_backfill import Embeddable, PendingEmbeddings
from app.memories.indexing import HARMLESS
from app.memories.models import PENDING
from app.memories.reembed import Reembed
from app.memories.reindex import Reindex
from app.storage.protocol import Store
from app.storage.scope import SYSTEM

CAUGHT_UP_AT_ONCE = 256
REINDEXED_AT_ONCE = 2_000
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=1)
"""Pause after a run without progress: the model refuses the remaining records, or does not answer."""


class EmbeddingJob:
    """The handler of the job `embed_pending`."""

    def __init__(self, store: Store, embedder: Embedder, kinds: Sequence[Embeddable], clock: Clock) -> None:
        self._store, self._embedder, self._clock = store, embedder, clock
        self._pending = PendingEmbeddings(store, embedder, kinds, clock)
        self._reembed = Reembed(store, embedder, kinds)
        self._reindex = Reindex(store, embedder, kinds, clock)
        self._pause = FIRST_PAUSE
        self._paused_until: datetime | None = None

    async def has_work(self) -> bool:
        """Returns whether a run could do anything now. It only reads.

        If texts are pending, the model is asked for a vector first, so that an unavailable model starts no useless
        runs.
        """
        if await self._pending.due() and await self._model_answers():
            return True
        return not self._paused() and (await self._reindex.unfinished() or await self._reembed.behind())

    async def handle(self, run: Run) -> Done:
        """Runs the backfill, then the move and the reindexing, each within its limit."""
        if run.payload.get("dry_run"):
            return Done({"pending": await self._store.count(PENDING, SYSTEM)})
        embedded = await self._pending.embed_all()
        moved = await self._reembed.catch_up(CAUGHT_UP_AT_ONCE)
        reindexed = await self._reindex.catch_up(REINDEXED_AT_ONCE)
        if await self._stuck(moved, reindexed):
            self._paused_until = self._clock.now() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            self._pause, self._paused_until = FIRST_PAUSE, None
        return Done({"embedded": embedded + moved, "reindexed": reindexed})

    async def _stuck(self, moved: int, reindexed: int) -> bool:
        """Returns whether another run right now would make no progress either."""
        if not moved and await self._reembed.behind():
            return True
        return not reindexed and await self._reindex.unfinished() and not await self._model_answers()

    def _paused(self) -> bool:
        """Returns whether the job pauses. A clock that is set back cannot extend the pause beyond the longest one."""
        now = self._clock.now()
        return self._paused_until is not None and now < self._paused_until <= now + LONGEST_PAUSE

    async def _model_answers(self) -> bool:
        try:
            await self._embedder.embed_texts([HARMLESS])
        except EmbeddingUnavailable:
            return False
        return True
