"""Tombstones of erased users: a keyed hash of the id, and a time.

The hash key of each tenant is sealed with the erasure key, which is kept outside of the store.
"""

import errno
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from app.audit.trail import ERASED, TombstoneRecord
from app.core.files import warn_of_readers, write_private
from app.errors import ErasureKeyUnavailable
from app.settings import Settings
from app.storage.changes import Change, CommitConflict, Insert, Update
from app.storage.factory import make_room, where_of
from app.storage.protocol import Store
from app.storage.schema import Eq

FILE_NAME = "erasure.key"
LEAST_CHARACTERS = 32
"""The minimum length of an erasure key."""
_BYTES = 32


@dataclass(frozen=True, slots=True)
class ErasureKey:
    """The source of the erasure key: `setting`, or a file in `directory` if the setting is empty. `make_room` frees
    the bytes for that file on a full disk."""

    setting: str
    directory: Path
    make_room: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, settings: Settings) -> "ErasureKey":
        where = where_of(settings)
        return cls(settings.erasure_key.get_secret_value(), settings.data_dir, lambda: make_room(where))

    @property
    def file(self) -> Path:
        return self.directory / FILE_NAME

    @property
    def place(self) -> str:
        """Says where an operator finds the key."""
        return "RECALLD_ERASURE_KEY" if self.setting else f"RECALLD_ERASURE_KEY (not set) or {self.file}"

    def read(self) -> bytes | None:
        """Returns the key, or None if there is none yet. Raises ErasureKeyUnavailable."""
        if self.setting:
            return self.setting.encode()
        try:
            text = self.file.read_bytes().strip()  # stripped, so that the same text may be moved into the setting
            warn_of_readers(self.file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ErasureKeyUnavailable(f"{self.file} cannot be read: {error.strerror}.") from error
        if len(text) < LEAST_CHARACTERS:
            raise ErasureKeyUnavailable(f"{self.file} holds no key: it is shorter than {LEAST_CHARACTERS} characters.")
        return text

    def read_or_make(self) -> bytes:
        """Returns the key, and makes the file if there is none: durable, and readable by its owner only.
        Raises ErasureKeyUnavailable."""
        key = self.read()
        if key is None:
            try:
                try:
                    self._make()
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    self.make_room()
                    self._make()
            except OSError as error:
                raise ErasureKeyUnavailable(f"{self.file} cannot be made: {error.strerror}.") from error
            key = self.read()
        if key is None:
            raise ErasureKeyUnavailable(f"{self.file} was removed while it was read.")
        return key

    def _make(self) -> None:
        write_private(self.file, secrets.token_hex(_BYTES) + "\n", keep=True)


KEY = "key"
"""The id of the document that contains the tenant's sealed key."""
_CHECKED = b"\0check"
"""Identifiers contain no NUL, so the check value cannot equal a tombstone."""


def seal(erasure_key: bytes, tenant: str, tenant_key: bytes) -> TombstoneRecord:
    """Returns the fields that store a tenant's key: the sealed key, and a check value that reveals a
    wrong erasure key."""
    return {
        "sealed": _masked(erasure_key, tenant, tenant_key).hex(),
        "check": hmac.new(tenant_key, _CHECKED, sha256).hexdigest(),
    }


def unseal(erasure_key: bytes, tenant: str, sealed: TombstoneRecord) -> bytes | None:
    """Returns the tenant's key, or None if it was sealed with another erasure key."""
    tenant_key = _masked(erasure_key, tenant, bytes.fromhex(sealed["sealed"]))
    check = hmac.new(tenant_key, _CHECKED, sha256).hexdigest()
    return tenant_key if hmac.compare_digest(check, sealed["check"]) else None


def _masked(erasure_key: bytes, tenant: str, value: bytes) -> bytes:
    mask = hmac.new(erasure_key, b"recalld tombstone" + tenant.encode(), sha256).digest()
    return bytes(byte ^ masking for byte, masking in zip(value, mask, strict=True))


class Tombstones:
    """The tombstones of one tenant. Methods that need the tenant's key raise ErasureKeyUnavailable if it cannot be
    unsealed."""

    def __init__(self, store: Store, tenant: str, key: ErasureKey) -> None:
        self._store, self._tenant, self._erasure_key = store, tenant, key

    @classmethod
    def of(cls, store: Store, settings: Settings, tenant: str) -> "Tombstones":
        """Returns the tombstones of a tenant in a store, whose keys are sealed with the erasure key of the settings."""
        return cls(store, tenant, ErasureKey.of(settings))

    async def hashed(self, text: str) -> str:
        """Returns the HMAC-SHA256 of the text under the tenant's key. Makes the key if there is none."""
        return _hashed(await self._key() or await self._make_key(), text)

    async def known(self, text: str) -> str | None:
        """Returns the hash, or None if the tenant has no key, that is, if nobody was ever erased."""
        key = await self._key()
        return None if key is None else _hashed(key, text)

    async def find(self, user_id: str) -> TombstoneRecord | None:
        erased_id = await self.known(user_id)
        return None if erased_id is None else await self._store.get(ERASED, self._tenant, erased_id)

    async def erased_since(self, user_id: str, moment: str) -> bool:
        """Returns True if an erasure of the user is under way, or began or ended at `moment` or later. Data that was
        read at that moment must then not be written."""
        tombstone = await self.find(user_id)
        if tombstone is None:
            return False
        erased_at = tombstone["erased_at"]
        return under_way(tombstone) or erased_at is None or erased_at >= moment

    def begin(self, tombstone: TombstoneRecord | None, erased_id: str, now: str, work: TombstoneRecord) -> Change:
        """Returns the change that marks an erasure as begun. `tombstone` is that of the user, if there is one already;
        `work` has operation_id and job_id."""
        begun: TombstoneRecord = {"status": "begun", "begun_at": now, "erased_at": None, **work}
        if tombstone is None:
            new: TombstoneRecord = {
                "tenant_id": self._tenant,
                "erased_id": erased_id,
                "times": 1,
                "created_at": now,
                **begun,
            }
            return Insert(ERASED, new)
        return Update(ERASED, self._tenant, erased_id, set=begun, inc={"times": 1}, expect=as_read(tombstone))

    def join(self, tombstone: TombstoneRecord) -> Change:
        """Returns the change that counts another request for an erasure under way. It makes the verification run again,
        so that records written before this request are erased, too."""
        return Update(ERASED, self._tenant, tombstone["erased_id"], inc={"times": 1}, expect=as_read(tombstone))

    def end(self, tombstone: TombstoneRecord, now: str) -> Change:
        """Returns the change that marks an erasure as verified."""
        ended: TombstoneRecord = {"status": "erased", "erased_at": now}
        return Update(ERASED, self._tenant, tombstone["erased_id"], set=ended, expect=as_read(tombstone))

    # --- The tenant's key ---------------------------------------------------------------------------------------------

    async def _key(self) -> bytes | None:
        stored = await self._store.get(ERASED, self._tenant, KEY)
        if stored is None:
            return None
        return self._opened(stored)

    def _opened(self, sealed: TombstoneRecord) -> bytes:
        erasure_key = self._erasure_key.read()
        tenant_key = None if erasure_key is None else unseal(erasure_key, sealed["tenant_id"], sealed)
        if tenant_key is None:
            raise ErasureKeyUnavailable(
                f"The tombstones of this store were sealed by another erasure key than that of this service: put the "
                f"right one into {self._erasure_key.place}. Nothing was changed.",
                retry_after=None,
            )
        return tenant_key

    async def adopt_key(self, tenant_key: bytes) -> bool:
        """Adopts the key that comes with the tombstones of another store. Returns False if the tenant has a different
        one."""
        return (await self._key() or await self._make_key(tenant_key)) == tenant_key

    async def _make_key(self, tenant_key: bytes | None = None) -> bytes:
        tenant_key = tenant_key or secrets.token_bytes(32)
        sealed: TombstoneRecord = {
            "tenant_id": self._tenant,
            "erased_id": KEY,
            "created_at": "",
            **seal(await self._sealing_key(), self._tenant, tenant_key),
        }
        try:
            await self._store.commit([Insert(ERASED, sealed)])
        except CommitConflict:
            return await self._key() or tenant_key
        return tenant_key

    async def _sealing_key(self) -> bytes:
        """Returns the erasure key after opening one sealed key with it. One erasure key seals the keys of all tenants,
        so a lost key is detected before a second one comes into use."""
        for other in await self._store.find(ERASED, None, Eq(ERASED.id_field, KEY), limit=1_000):
            if other.get("sealed") is not None:
                self._opened(other)
                break
        return self._erasure_key.read_or_make()


def under_way(tombstone: TombstoneRecord) -> bool:
    """Returns True if the erasure has begun and is not verified."""
    return tombstone.get("status") == "begun"


def as_read(tombstone: TombstoneRecord) -> Mapping[str, object]:
    """Returns the fields that a change of a tombstone expects, so that it conflicts with concurrent changes."""
    return {
        "status": tombstone.get("status"),
        "operation_id": tombstone.get("operation_id"),
        "times": tombstone.get("times"),
    }


def _hashed(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), sha256).hexdigest()
