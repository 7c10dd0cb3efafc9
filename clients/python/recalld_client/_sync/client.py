# Made from _async/client.py by scripts/generate_clients.py; do not edit.
"""The client: all operations of the API, and the memory of one user."""

import time
from collections.abc import Iterator
from typing import Any

from recalld_client._sync.user import UserMemory
from recalld_client._generated import Operations, RecordChange


class Recalld(Operations):
    """A Recalld service. Has a method for each operation of its API, and `user` for what is done daily."""

    def user(self, user_id: str, *, agent: str = "default") -> UserMemory:
        """What the agent `agent` knows of the user `user_id`. Nothing is sent yet.

        Another agent does not see it. Name the agent after what you build, for example "support". Raises InvalidUser if
        `user_id` is empty or no text.
        """
        return UserMemory(self, user_id, agent)

    def changes(
        self, after: str | None = None, *, every: float | None = 1.0, **filters: Any
    ) -> Iterator[RecordChange]:
        """Changes of records, the oldest first, without an end: what comes later is asked for `every` so many seconds.

        after: the `cursor` of the last change that was dealt with, or "now"; default: the oldest one that is kept.
        Store the cursor of each change, and a later call goes on where this one was. every: None ends at the last one.
        filters: `agent_id`, `user_id`, `kind`, `type`, `include`, `limit`, as `list_changes` takes them.
        Raises Problem `changes_lost` (410) if the service no longer keeps what came after the cursor.
        """
        while True:
            page = self.list_changes(after=after, format="json", **filters)
            for change in page["items"]:
                yield change
            after = page["cursor"]
            if page.get("next_cursor") is None:
                if every is None:
                    return
                time.sleep(every)
