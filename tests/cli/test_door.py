"""Workers that listen on the same socket share its connections."""

import asyncio
import copy
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from app.cli.serve import Door, listening
from app.core.workers import Workers

pytestmark = pytest.mark.anyio


def workers(number: int) -> list[Workers]:
    """Of one service, here in one process."""
    first = Workers(number)
    services = [first, *(copy.copy(first) for _ in range(number - 1))]
    for at, service in enumerate(services, 1):
        service.number = at
    return services


@asynccontextmanager
async def door(listener: socket.socket, service: Workers, accepted: asyncio.Queue[int]) -> AsyncIterator[None]:
    """A door on its own copy of the socket, as a process has it. Tells whose connection it was that it accepted."""

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.put_nowait(service.number)

    opened = Door([listener.dup()], service, Accepted)
    try:
        yield
    finally:
        opened.close()


async def shared(
    stack: AsyncExitStack, listener: socket.socket, accepted: asyncio.Queue[int], clients: int
) -> Counter[int]:
    """Lets clients connect one by one, which keep their connections. Returns how many each worker has."""
    numbers: Counter[int] = Counter()
    for _ in range(clients):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        stack.callback(writer.close)
        numbers[await accepted.get()] += 1
    return numbers


async def test_connections_that_are_kept_are_spread(anyio_backend: str) -> None:
    accepted: asyncio.Queue[int] = asyncio.Queue()
    (listener,) = listening("127.0.0.1", 0)
    async with AsyncExitStack() as stack:
        stack.enter_context(listener)
        for service in workers(3):
            await stack.enter_async_context(door(listener, service, accepted))
        assert await shared(stack, listener, accepted, 15) == {1: 5, 2: 5, 3: 5}


async def test_whoever_has_more_takes_what_the_others_leave(anyio_backend: str) -> None:
    """Worker 2 has no connection and is too busy to accept one."""
    accepted: asyncio.Queue[int] = asyncio.Queue()
    (listener,) = listening("127.0.0.1", 0)
    first, second = workers(2)
    second.own.accepts = True
    async with AsyncExitStack() as stack:
        stack.enter_context(listener)
        await stack.enter_async_context(door(listener, first, accepted))
        assert await shared(stack, listener, accepted, 4) == {1: 4}
