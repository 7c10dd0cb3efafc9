"""A user's profile."""

from typing import Unpack

from recalld_client import _generated as models
from recalld_client._errors import Problem
from recalld_client._generated import AsyncOperations


class AsyncUserProfile:
    """The profile of one user. `AsyncUserMemory.profile` makes it."""

    def __init__(self, client: AsyncOperations, user_id: str) -> None:
        self.client, self.user_id = client, user_id

    async def get(self) -> models.StoredProfile | None:
        """The profile; None if the user has none yet. Raises Problem."""
        try:
            return await self.client.get_profile(self.user_id)
        except Problem as problem:
            if problem.code == "not_found":
                return None
            raise

    async def update(self, **changes: Unpack[models.ProfilePatch]) -> models.StoredProfile:
        """Sets single values, adds to lists, merges objects; None clears. Makes the profile if there is none."""
        return await self.client.update_profile(self.user_id, changes)
