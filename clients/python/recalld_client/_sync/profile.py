# Made from _async/profile.py by scripts/generate_clients.py; do not edit.
"""A user's profile."""

from typing import Unpack

from recalld_client import _generated as models
from recalld_client._errors import Problem
from recalld_client._generated import Operations


class UserProfile:
    """The profile of one user. `UserMemory.profile` makes it."""

    def __init__(self, client: Operations, user_id: str) -> None:
        self.client, self.user_id = client, user_id

    def get(self) -> models.StoredProfile | None:
        """The profile; None if the user has none yet. Raises Problem."""
        try:
            return self.client.get_profile(self.user_id)
        except Problem as problem:
            if problem.code == "not_found":
                return None
            raise

    def update(self, **changes: Unpack[models.ProfilePatch]) -> models.StoredProfile:
        """Sets single values, adds to lists, merges objects; None clears. Makes the profile if there is none."""
        return self.client.update_profile(self.user_id, changes)
