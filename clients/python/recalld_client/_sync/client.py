# Made from _async/client.py by scripts/generate_clients.py; do not edit.
"""The client: all operations of the API, and the memory of one user."""

from recalld_client._sync.user import UserMemory
from recalld_client._generated import Operations


class Recalld(Operations):
    """A Recalld service. Has a method for each operation of its API, and `user` for what is done daily."""

    def user(self, user_id: str, *, agent: str = "default") -> UserMemory:
        """What the agent `agent` knows of the user `user_id`. Nothing is sent yet.

        Another agent does not see it. Name the agent after what you build, for example "support".
        """
        return UserMemory(self, user_id, agent)
