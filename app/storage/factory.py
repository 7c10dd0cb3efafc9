"""Opens the engine that the settings name. Only this module imports both engines."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

from app.core import tracing, workers
from app.core.tuning import USUAL, Tuning
from app.errors import StoreUnavailable
from app.settings import Settings
from app.storage.change_log import LogOptions
from app.storage.changes import Allocate, Change, Committed, WithinQuota
from app.storage.protocol import Finding, Store, Told, untold
from app.storage.schema import Collection
from app.storage.scope import Partition
from app.storage.search import Overview
from app.storage.sqlite import files
from app.storage.sqlite.connections import StoreKey
from app.storage.sqlite.files import chosen as chosen
from app.storage.sqlite.files import next_file as next_file
from app.storage.sqlite.files import prune as prune
from app.storage.sqlite.store import FILE_NAME, EmbeddedOptions, EmbeddedStore
from app.storage.sqlite.writer import DiskSpace
from app.storage.transfer import BackupRefused, MovableStore, Salvaged

EMBEDDED = "embedded"
MONGODB = ("mongodb://", "mongodb+srv://")
S = TypeVar("S", bound=Store)
_SYSTEMS = {"embedded": "sqlite"}
"""Engines that OpenTelemetry's conventions call otherwise."""


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Where the data are stored: `embedded` in a directory, or a MongoDB URI. Its `repr` omits the password."""

    settings: Settings
    store: str
    key: StoreKey | None = None

    @property
    def directory(self) -> Path:
        return self.settings.data_dir

    @property
    def name(self) -> str:
        """Identifies the store without secrets: `embedded`, or a digest of the deployment's hosts and the database."""
        if self.store == EMBEDDED:
            return EMBEDDED
        scheme, _, rest = self.store.partition("://")
        hosts = rest.partition("?")[0].partition("/")[0].rpartition("@")[2].lower().split(",")
        named = f"{scheme}://{','.join(sorted(hosts))}/{self.settings.mongodb.database}"
        return f"mongodb:{sha256(named.encode()).hexdigest()[:32]}"

    @property
    def missing(self) -> bool:
        """True if the store is embedded and its file does not exist."""
        return self.store == EMBEDDED and not (self.directory / FILE_NAME).exists()

    def require_existing(self) -> None:
        """Raises StoreUnavailable if the store is missing."""
        if self.missing:
            raise StoreUnavailable(
                f"There is no store in {self.directory.absolute()}. RECALLD_DATA_DIR names the directory of a store; "
                "`recalld serve` makes one there."
            )

    def require_usable(self) -> None:
        """Raises StoreUnavailable if an embedded store can be neither opened nor made at its place, and says why."""
        if self.store != EMBEDDED:
            return
        directory = self.directory.absolute()
        named = f"RECALLD_DATA_DIR is {directory}"
        try:
            nearest = next(path for path in (directory, *directory.parents) if path.exists())
        except PermissionError:
            raise StoreUnavailable(f"{named}, which this user may not read.") from None
        if not nearest.is_dir():
            where = "which" if nearest == directory else f"and {nearest}"
            raise StoreUnavailable(f"{named}, {where} is a file: name a directory.")
        if not os.access(nearest, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
            where = "which" if nearest == directory else f"and {nearest}"
            raise StoreUnavailable(f"{named}, {where} cannot be written by this user.")

    def __repr__(self) -> str:
        return f"StoreLocation({'mongodb' if self.store != EMBEDDED else self.directory})"


def where_of(settings: Settings, elsewhere: str | None = None) -> StoreLocation:
    """Returns the location of the store of the settings, or of `elsewhere`. Raises StoreUnavailable if there can be
    no store at that place, or the store's key cannot be read."""
    text, file = settings.store_key.get_secret_value(), settings.store_key_file
    if text and file:
        raise StoreUnavailable("RECALLD_STORE_KEY and RECALLD_STORE_KEY_FILE are both set: set one of them.")
    key = StoreKey.of_text(text, "RECALLD_STORE_KEY") if text else None
    if file:
        key = StoreKey.of_file(Path(file))
    where = StoreLocation(settings, elsewhere or settings.store.get_secret_value(), key)
    where.require_usable()
    return where


async def open_store(
    where: StoreLocation,
    collections: Sequence[Collection],
    *,
    dim: int,
    existing: bool = False,
    observe_commit: Callable[[int, float], None] = lambda writes, seconds: None,
    observe_fallback: Callable[[str, str], None] = lambda collection, outcome: None,
    log: LogOptions | None = None,
    tuning: Tuning = USUAL,
) -> MovableStore:
    """Opens the store. Raises StoreUnavailable if it cannot be opened, and with `existing` also if it does not exist.

    `observe_commit` is called after each group commit with the number of writes and the seconds that it took,
    `observe_fallback` with a collection and `exact` or `refused` after each search whose index could not be used.
    `log`: how changes are logged. `tuning`: what tests give.
    """
    settings, log = where.settings, log or LogOptions()
    cache_bytes = workers.part_of(settings.cache_bytes)
    if where.store == EMBEDDED:
        if existing:
            where.require_existing()
        embedded = EmbeddedOptions(
            cache_bytes=cache_bytes,
            busy_timeout_ms=tuning.busy_timeout_ms,
            observe_commit=observe_commit,
            key=where.key,
            reserve_bytes=settings.disk_reserve_bytes,
            log=log,
        )
        return traced(await EmbeddedStore.open(where.directory, collections, embedded, dim=dim))
    if not where.store.startswith(MONGODB):
        raise StoreUnavailable(
            "RECALLD_STORE must be `embedded` or a URI that begins with mongodb:// or mongodb+srv://."
        )
    # importing the driver takes a tenth of a second and some memory, so it is imported only if it is used
    from app.storage.mongo.store import MongoOptions, MongoStore  # noqa: PLC0415

    options = MongoOptions(
        database=settings.mongodb.database,
        deadline_seconds=settings.mongodb.deadline_seconds,
        cache_bytes=cache_bytes,
        exact_up_to=tuning.exact_up_to,
        observe_commit=observe_commit,
        observe_fallback=observe_fallback,
        log=log,
    )
    return traced(await MongoStore.open(where.store, collections, options, dim=dim))


def restore_store(where: StoreLocation, file: Path, *, beside: AbstractSet[str] = frozenset()) -> int:
    """Restores a backup into the directory, which may contain only files named in `beside`. Returns the database's size
    in bytes.

    Raises BackupRefused.
    """
    if where.store != EMBEDDED:
        raise BackupRefused("Backups are of embedded stores: unset RECALLD_STORE, and name a new RECALLD_DATA_DIR.")
    return files.restore(file, where.directory, FILE_NAME, beside, where.key)


def file_findings(where: StoreLocation, told: Told = untold) -> Iterator[Finding]:
    """Yields what the files of an embedded store show without opening it. Nothing for MongoDB."""
    if where.store == EMBEDDED and not where.missing:
        yield from files.findings(where.directory / FILE_NAME, where.key, told)


def make_room(where: StoreLocation) -> None:
    """Frees a few bytes of those that an embedded store keeps back, for a small file beside it."""
    if where.store == EMBEDDED:
        DiskSpace(where.directory / FILE_NAME, where.settings.disk_reserve_bytes).spare()


def _file_of(where: StoreLocation) -> Path:
    """Returns the file of an embedded store. Raises StoreUnavailable if there is none."""
    if where.store != EMBEDDED:
        raise StoreUnavailable("RECALLD_STORE names a database: this is for embedded stores.")
    where.require_existing()
    return where.directory / FILE_NAME


def rekey_store(where: StoreLocation, new_key_file: Path) -> None:
    """Encrypts an embedded store with the key in a file, or gives an encrypted store this key.

    Raises StoreUnavailable, also if there is no such store or another process uses it.
    """
    new = StoreKey.of_file(new_key_file)
    files.rekey(_file_of(where), where.key, new, USUAL.busy_timeout_ms)


def require_unused(where: StoreLocation) -> None:
    """Raises StoreUnavailable if another process uses the embedded store, or if there is no such store."""
    files.refuse_if_used(_file_of(where))


async def salvage_store(
    where: StoreLocation, collections: Sequence[Collection], directory: Path, target: MovableStore
) -> Salvaged:
    """Writes what can be read of an embedded store into `target`. `directory` has room for a copy of the database.

    Raises StoreUnavailable, also if there is no such store.
    """
    return await files.salvage(_file_of(where), directory, collections, target, where.key)


def traced(store: S) -> S:
    """Returns a store that makes a span of each call below an open span, or the store itself where nothing is traced.
    Filters, ids and documents are not told."""
    return cast(S, _Traced(store)) if tracing.tracing() else store


def _nothing(*_: Any, **__: Any) -> tracing.Attributes:
    return {}


_READS: Mapping[str, tuple[str, Callable[..., tracing.Attributes]]] = {
    **{name: (name, _nothing) for name in ("get", "find", "count", "tally")},
    "find_fetched": ("find", _nothing),
    "search": ("search", lambda query: {"recalld.partitions": len(query.partitions)}),
    "fetch": ("fetch", lambda tenant, rows: {"db.response.returned_rows": len(rows)}),
}
"""The name of the span and its attributes, by the name of a method that reads a collection."""


class _Traced:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._system = _SYSTEMS.get(store.name, store.name)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in _READS:
            return method
        operation, attributes = _READS[name]

        async def read(collection: Collection, *given: Any, **named: Any) -> Any:
            with self._span(operation, collection.name, attributes(*given, **named)):
                return await method(collection, *given, **named)

        return read

    def _span(self, operation: str, collection: str, more: tracing.Attributes) -> tracing.TraceSpan:
        named: tracing.Attributes = {"db.collection.name": collection} if collection else {}
        attributes = {"db.system.name": self._system, "db.operation.name": operation, **named, **more}
        return tracing.span(f"{operation} {collection}".rstrip(), attributes, "client")

    async def commit(self, changes: Sequence[Change]) -> Committed:
        names = sorted({change.collection.name for change in changes if not isinstance(change, Allocate | WithinQuota)})
        alone = names[0] if len(names) == 1 else ""
        batch = {"db.operation.batch.size": len(changes)} if len(changes) > 1 else {}  # never 1, says the convention
        with self._span("commit", alone, {**batch, "recalld.collections": names}):
            return await self._store.commit(changes)

    async def overview(self, collection: Collection, tenant: str, partitions: Sequence[Partition]) -> Overview:
        # whoever reads traces knows the span by this name
        with self._span("scope_facts", collection.name, {"recalld.partitions": len(partitions)}) as open_span:
            overview = await self._store.overview(collection, tenant, partitions)
            open_span.set({"recalld.scope.records": overview.count})
            return overview
