"""A MongoDB deployment for tests, over the real wire: SecantusDB as a process of its own, one for the whole session.

`RECALLD_TEST_MONGODB_URI` names another one to use instead, such as a real MongoDB replica set or Atlas. Each test has
a database of its own there, which is dropped afterwards; nothing else of that deployment is touched. What stops or
kills a deployment needs one of its own, and starts SecantusDB always.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import PyMongoError

DATABASE_PREFIX = "recalld_test_"
META = "recalld_meta"
START_SECONDS = 90
STOP_SECONDS = 10
# SecantusDB 0.7.0b3 deadlocks where mongod does not: an updateMany holds its collection while it waits for a
# transaction that wrote one of the documents; a statement that waits for the collection holds its own transaction; and
# whoever asks for any transaction waits for that one, the registry in hand. So an updateMany lets go between its tries,
# and nobody waits for a statement under way. It also closes a connection that was idle for five minutes, which mongod
# does not: a long test that fills a collection through another connection would lose this one. And it refuses a read
# concern of a bulkWrite, which the first command of a transaction has, whatever it is.
_SERVE = """
import os, sys, threading
from secantus import commands
from secantus.cli import main
from secantus.server import SecantusDBServer
from secantus.storage import Storage
from secantus.transactions import TransactionRegistry, TxnState

def prune(self):
    cutoff, reaped = self._time() - self._lifetime, 0
    for txn in self._txns.values():
        if txn.mutex.acquire(blocking=False):
            with txn.mutex:
                txn.mutex.release()
                if txn.state is TxnState.IN_PROGRESS and txn.last_use < cutoff:
                    self._rollback_quietly(txn)
                    txn.state, reaped = TxnState.ABORTED, reaped + 1
    return reaped

def update_many(self, *args, **options):
    return self._update_matching_single_txn(*args, multi=True, **options)

commands._BULK_WRITE_KNOWN_FIELDS |= {"readConcern"}
SecantusDBServer.__init__.__kwdefaults__["client_idle_timeout_s"] = 86_400.0
TransactionRegistry._prune_locked, Storage._update_matching_chunked = prune, update_many

def end_with_the_tests():
    sys.stdin.buffer.read()  # until the process that holds the other end is gone, however it went
    os._exit(1)

threading.Thread(target=end_with_the_tests, daemon=True).start()
sys.exit(main())
"""
_LISTENING = re.compile(r"listening on [\d.]+:(\d+)")
_FOUND_MS, _ANSWERED_MS = 5_000, 60_000


class Deployment:
    """Something at `uri` that speaks MongoDB's protocol."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def client(self) -> MongoClient[dict[str, Any]]:
        return MongoClient(self.uri, serverSelectionTimeoutMS=_FOUND_MS, socketTimeoutMS=_ANSWERED_MS)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The name of a new database, which is dropped afterwards. Its collections are made by the first write."""
        name = f"{DATABASE_PREFIX}{uuid4().hex[:16]}"
        try:
            yield name
        finally:
            with self.client() as client:
                client.drop_database(name)


class Emptied:
    """A database whose documents go between two tests, while its indexes and the note that they were made stay."""

    def __init__(self, database: Database[dict[str, Any]]) -> None:
        self._database, self.name = database, database.name

    def empty(self) -> None:
        for name in self._filled():
            self._database[name].delete_many({})
        self._database[META].delete_many({"_id": "notes"})

    def _filled(self) -> list[str]:
        """Collections that hold something, in one question: most hold nothing after most tests."""

        def named(name: str) -> list[dict[str, Any]]:
            return [{"$limit": 1}, {"$project": {"_id": {"$literal": name}}}]

        asked = [name for name in self._database.list_collection_names() if name != META]
        nothing = {"$match": {"_id": None}}
        each = [{"$unionWith": {"coll": name, "pipeline": named(name)}} for name in asked]
        return [found["_id"] for found in self._database[META].aggregate([nothing, *each])]


@contextmanager
def emptied(deployment: Deployment) -> Iterator[Emptied]:
    """A database that keeps its indexes from test to test, and nothing else: making them takes longer than a test."""
    with deployment.database() as name, deployment.client() as client:
        yield Emptied(client[name])


class SecantusDB(Deployment):
    """A SecantusDB that is ours to stop, kill and start again: on the same data, at the same port.

    `durable`: each commit is on the disk before it is answered, so that a kill takes nothing.
    """

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        super().__init__("")
        self._directory, self._port, self._durable = directory, 0, durable
        self._log = directory.with_name(f"{directory.name}.log")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        """Returns when it answers."""
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            command = [sys.executable, "-c", _SERVE, "--host", "127.0.0.1", "--port", str(self._port)]
            command += ["--storage-path", str(self._directory), *(["--sync-on-commit"] if self._durable else [])]
            # its own session: a Ctrl-C that ends the tests is not for it before they have stopped it
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self._port = self._announced()
        self.uri = f"mongodb://127.0.0.1:{self._port}/"
        with self.client() as client:
            client.admin.command("ping")

    def _announced(self) -> int:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._running().poll() is None:
            found = _LISTENING.search(self._log.read_text())
            if found:
                return int(found[1])
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"SecantusDB did not start:\n{self._log.read_text()[-2000:]}")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def stop(self) -> None:
        self._running().terminate()
        try:
            self._running().wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._running().kill()
        self._gone()

    def kill(self) -> None:
        self._running().kill()
        self._gone()

    def _gone(self) -> None:
        self._running().wait()
        stdin = self._running().stdin
        if stdin is not None:
            stdin.close()

    def pause(self) -> None:
        """It holds its connections and answers nothing, until `resume`."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)


@contextmanager
def start_mongodb(directory: Path, *, durable: bool = True) -> Iterator[SecantusDB]:
    """A SecantusDB of its own, on the data in `directory`. Skips the test where SecantusDB is not installed."""
    _needs_secantusdb()
    server = SecantusDB(directory, durable=durable)
    try:
        yield server
    finally:
        with suppress(ProcessLookupError):
            server.resume()
        server.stop()


def _needs_secantusdb() -> None:
    if find_spec("secantus") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        pytest.skip(f"SecantusDB is not installed: it has no wheel for Python {version} on this platform")


@pytest.fixture(scope="session")
def mongodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The deployment of this session."""
    given = os.environ.get("RECALLD_TEST_MONGODB_URI")
    if given:
        yield _reached(Deployment(given))
        return
    directory = tmp_path_factory.mktemp("mongodb") / "data"
    with start_mongodb(
        directory, durable=False
    ) as server:  # nobody kills it, and waiting for the disk is half the time
        yield server
    shutil.rmtree(directory, ignore_errors=True)


def _reached(deployment: Deployment) -> Deployment:
    """Says at once, and without its password, that a named deployment does not answer."""
    try:
        with deployment.client() as client:
            client.admin.command("ping")
    except PyMongoError as fault:
        pytest.exit(f"RECALLD_TEST_MONGODB_URI does not answer: {type(fault).__name__}", returncode=3)
    return deployment


@pytest.fixture
def mongodb_database(mongodb: Deployment) -> Iterator[str]:
    """The name of this test's own database."""
    with mongodb.database() as name:
        yield name
