"""Transactions that may have been left open at the server, because nobody could tell it how they end.

A transaction outlives its connection: until the server gives it up, after a minute, it keeps what it wrote from
everybody else, and what was sent before the fault may still arrive and begin it. So another transaction is begun in
the same session as soon as the server can be reached: a session has one transaction at a time, by number, and from
then on the server refuses every word of the older one. Until then the session is held, not given back to the pool.
"""

import asyncio
import time
from collections import deque
from contextvars import Context
from typing import Any

import pymongo
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError

TRY_SECONDS = 0.25
WAIT_SECONDS = 2.0
KEPT_SECONDS = 90.0
"""By then the server has given it up by itself."""


class Orphans:
    def __init__(self, anything: AsyncCollection[dict[str, Any]]) -> None:
        """`anything`: some collection that can be read."""
        self._anything = anything
        self._adopted: deque[tuple[float, AsyncClientSession]] = deque()
        self._task: asyncio.Task[None] | None = None

    def adopt(self, session: AsyncClientSession) -> None:
        """Takes over a session whose transaction nobody knows the end of, and ends both."""
        self._adopted.append((time.monotonic(), session))
        if self._task is None or self._task.done():
            # a context of its own: the deadline of the request that failed is not for this
            self._task = asyncio.create_task(self._end_all(), context=Context())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _end_all(self) -> None:
        """One after the other: while the server is away, only the first of them tries to reach it."""
        while self._adopted:
            since, session = self._adopted[0]
            if await self._superseded(session):
                with pymongo.timeout(WAIT_SECONDS):
                    await session.end_session()
            elif time.monotonic() - since < KEPT_SECONDS:
                await asyncio.sleep(TRY_SECONDS)
                continue
            self._adopted.popleft()

    async def _superseded(self, session: AsyncClientSession) -> bool:
        try:
            with pymongo.timeout(WAIT_SECONDS):
                if session.in_transaction:
                    await session.abort_transaction()  # hides whether it got through
                await session.start_transaction()
                await self._anything.find_one({}, {"_id": 1}, session=session)
        except PyMongoError:
            return False
        return True


def never_begun(fault: BaseException, session: AsyncClientSession) -> bool:
    """Nothing of the transaction was ever sent: there was nobody to send it to."""
    return isinstance(fault, ServerSelectionTimeoutError) and session.operation_time is None


async def aborted(client: AsyncMongoClient[dict[str, Any]], session: AsyncClientSession) -> bool:
    """Whether the server knows that the session's transaction is over: the driver's own abort hides that."""
    if not session.in_transaction:
        return True
    try:
        await client.admin.command("abortTransaction", session=session)
    except OperationFailure:
        return True  # it had ended there already
    except PyMongoError:
        return False
    return True
