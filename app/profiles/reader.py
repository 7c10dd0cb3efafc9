"""Reads profiles: what a user's record stores, and the fields that facts about the user state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.core.clock import Clock, rfc3339
from app.facts.about_user import USERS, new_user, profile_of
from app.facts.repository import FactRepository, View
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.scope import Scope


@dataclass(frozen=True, slots=True)
class ReadUser:
    """A user's record with the whole profile. `facts`: the facts that state its fields, by field. `stored`: the profile
    as the record has it; None if there is no record."""

    record: Doc
    facts: Mapping[str, Doc]
    stored: Doc | None

    @property
    def profile(self) -> Doc:
        """The whole profile."""
        profile: Doc = self.record["profile"]
        return profile


class ProfileReader:
    """Reads the profiles of users within a caller's scope."""

    def __init__(self, store: Store, scope: Scope, clock: Clock) -> None:
        self._users, self._facts, self._clock = Repository(store, scope, USERS), FactRepository(store, scope), clock

    async def find(self, user_id: str, view: View | None = None) -> ReadUser | None:
        """Returns a user as of a point in both times, or None if nothing is known of them. What has no history (lists,
        objects, and fields that earlier versions stored) is read as it is now."""
        return (await self.find_many([user_id], view)).get(user_id)

    async def find_many(self, user_ids: Sequence[str], view: View | None = None) -> dict[str, ReadUser]:
        """Returns those of the users of whom a profile is known, by id."""
        records = await self._users.get_many(user_ids)
        stating = await self._facts.of_profiles(user_ids, view or View(rfc3339(self._clock.now())))
        return {
            user_id: _read(user_id, records.get(user_id), stating[user_id])
            for user_id in user_ids
            if user_id in records or stating[user_id]
        }


def _read(user_id: str, record: Doc | None, facts: Mapping[str, Doc]) -> ReadUser:
    """Returns a user. Facts alone make a user, too: those that were imported without the record."""
    stored = {} if record is None else record["profile"]
    base = record or new_user(user_id, min((fact["created_at"] for fact in facts.values()), default=""))
    return ReadUser(base | {"profile": profile_of(stored, facts)}, facts, None if record is None else stored)
