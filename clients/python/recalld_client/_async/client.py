"""The client: all operations of the API, and the memory of one user."""

from collections.abc import AsyncIterator
from typing import Any

import anyio

from recalld_client._async.user import AsyncUserMemory
from recalld_client._generated import AsyncOperations, RecordChange


class AsyncRecalld(AsyncOperations):
    """A Recalld service. Has a method for each operation of its API, and `user` for what is done daily."""

    def user(self, user_id: str, *, agent: str = "default") -> AsyncUserMemory:
        """What the agent `agent` knows of the user `user_id`. Nothing is sent yet.

        Another agent does not see it. Name the agent after what you build, for example "support". Raises InvalidUser if
        `user_id` is empty or no text.
        """
        return AsyncUserMemory(self, user_id, agent)

    async def changes(
        self, after: str | None = None, *, every: float | None = 1.0, **filters: Any
    ) -> AsyncIterator[RecordChange]:
        """Changes of records, the oldest first, without an end: what comes later is asked for `every` so many seconds.

        after: the `cursor` of the last change that was dealt with, or "now"; default: the oldest one that is kept.
        Store the cursor of each change, and a later call goes on where this one was. every: None ends at the last one.
        filters: `agent_id`, `user_id`, `kind`, `type`, `include`, `limit`, as `list_changes` takes them.
        Raises Problem `changes_lost` (410) if the service no longer keeps what came after the cursor.
        """
        while True:
            page = await self.list_changes(after=after, format="json", **filters)
            for change in page["items"]:
                yield change
            after = page["cursor"]
            if page.get("next_cursor") is None:
                if every is None:
                    return
                await anyio.sleep(every)
