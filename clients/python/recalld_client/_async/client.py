"""The client: all operations of the API, and the memory of one user."""

from recalld_client._async.user import AsyncUserMemory
from recalld_client._generated import AsyncOperations


class AsyncRecalld(AsyncOperations):
    """A Recalld service. Has a method for each operation of its API, and `user` for what is done daily."""

    def user(self, user_id: str, *, agent: str = "default") -> AsyncUserMemory:
        """What the agent `agent` knows of the user `user_id`. Nothing is sent yet.

        Another agent does not see it. Name the agent after what you build, for example "support".
        """
        return AsyncUserMemory(self, user_id, agent)
