"""A TCP proxy that misbehaves on demand, in a thread of its own: between the service and its database, for tests."""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from enum import Enum, auto
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

DELAY_SECONDS = 5.0
_CHUNK = 1 << 16
_ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset


class Mode(Enum):
    PASS = auto()
    REFUSE = auto()
    """Nobody listens; connections that were open are reset."""
    RESET = auto()
    """Every reply is cut in its middle by a reset: what was asked for was done, and nobody is told."""
    FLAKY = auto()
    """So is one reply of three, at random; the others pass."""
    DELAY = auto()
    """Replies come five seconds late."""
    BLACKHOLE = auto()
    """Nothing passes, no connection ends. Afterwards what was sent meanwhile arrives, as TCP would send it again."""


_CUTS = {Mode.RESET: 1.0, Mode.FLAKY: 1 / 3}


class Proxy:
    """Passes what comes to `port` on to `upstream`, at this machine both, as `mode` says."""

    def __init__(self, upstream: int, delay_seconds: float = DELAY_SECONDS, seed: int = 0) -> None:
        self._upstream, self._delay = upstream, delay_seconds
        self._random = random.Random(seed)
        self._mode = Mode.PASS
        self._changed = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._holder = _bound(0)  # never listens: keeps the port ours while nobody does
        self.port: int = self._holder.getsockname()[1]
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._run(self._listen())

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        """Holds for every connection, those that are open too, when this returns."""
        self._run(self._switch(mode))

    def close(self) -> None:
        self._run(self._switch(Mode.REFUSE))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._holder.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _switch(self, mode: Mode) -> None:
        was, self._mode = self._mode, mode
        self._changed.set()
        self._changed = asyncio.Event()
        if mode is Mode.REFUSE:
            await self._shut()
        elif was is Mode.REFUSE:
            await self._listen()

    async def _listen(self) -> None:
        listening = _bound(self.port)
        listening.listen(100)
        self._listening = self._loop.create_task(self._accept(listening))

    async def _shut(self) -> None:
        tasks = [*self._links, *([self._listening] if self._listening else [])]
        self._listening = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- One connection -----------------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        with closing(listening):
            while True:
                accepted, _ = await self._loop.sock_accept(listening)
                self.connections += 1
                link = self._loop.create_task(self._link(accepted))
                self._links.add(link)
                link.add_done_callback(self._links.discard)
                link.add_done_callback(partial(_reset, accepted))

    async def _link(self, client: socket.socket) -> None:
        with closing(socket.socket()) as upstream, suppress(OSError):  # an end as good as any
            upstream.setblocking(False)
            await self._open_again()
            await self._loop.sock_connect(upstream, ("127.0.0.1", self._upstream))
            ways = [
                self._loop.create_task(self._requests(client, upstream)),
                self._loop.create_task(self._replies(upstream, client)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self, client: socket.socket, upstream: socket.socket) -> None:
        while chunk := await self._loop.sock_recv(client, _CHUNK):
            await self._open_again()
            await self._loop.sock_sendall(upstream, chunk)

    async def _replies(self, upstream: socket.socket, client: socket.socket) -> None:
        while chunk := await self._loop.sock_recv(upstream, _CHUNK):
            if self._mode is Mode.DELAY:
                await self._until_changed(self._delay)
            await self._open_again()
            if self._random.random() < _CUTS.get(self._mode, 0):
                await self._loop.sock_sendall(client, chunk[: len(chunk) // 2])
                return
            await self._loop.sock_sendall(client, chunk)

    async def _open_again(self) -> None:
        while self._mode is Mode.BLACKHOLE:
            await self._changed.wait()

    async def _until_changed(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)


class Blinking:
    """A proxy's mode, on for a moment and off for a moment, from `begin` to `end`."""

    def __init__(self, proxy: Proxy, mode: Mode, on_seconds: float = 0.3, off_seconds: float = 0.5) -> None:
        self._proxy, self._moments = proxy, ((mode, on_seconds), (Mode.PASS, off_seconds))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._blink, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._proxy.mode = Mode.PASS

    def _blink(self) -> None:
        while not self._ended.is_set():
            for mode, seconds in self._moments:
                self._proxy.mode = mode
                self._ended.wait(seconds)


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def _reset(connection: socket.socket, _: object) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    connection.close()


@contextmanager
def proxying(upstream: int, delay_seconds: float = DELAY_SECONDS, seed: int = 0) -> Iterator[Proxy]:
    proxy = Proxy(upstream, delay_seconds, seed)
    try:
        yield proxy
    finally:
        proxy.close()
