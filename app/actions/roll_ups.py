"""What stands for actions that were rolled up and purged, so that their ids still lead somewhere.

The summary memory of a day names its actions in `source.action_ids`. The notes here lead from an action to that memory.
"""

from collections import defaultdict
from collections.abc import Sequence

from app.core.clock import new_id
from app.errors import NotFound
from app.memories.models import MEMORIES
from app.storage.changes import Change, Insert
from app.storage.filters import Eq, Has, both
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.schema import Collection, Doc
from app.storage.scope import Scope

ROLL_UPS = Collection(
    name="action_roll_ups",
    id_field="roll_up_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "memory_id": "text",
        "bucket": "text",
        "action_ids": "list",
        "created_at": "time",
    },
    indexes=(("bucket",), ("user_id",)),
    audited=False,
)
"""One note for each commit of the roll-up and each `bucket`, the beginning of the ids. Ids begin with their time, so a
bucket has the actions that a tenant logged in 4.7 hours, and resolving one id reads no others."""

BUCKET = len("act_") + 6
ROLLED_UP = "rolled_up"
"""The `event_type` and `action_type` of the answer for a purged action."""


def roll_ups(memory: Doc, action_ids: Sequence[str], now: str) -> list[Change]:
    """Returns the changes which note that the memory stands for these actions."""
    buckets: dict[str, list[str]] = defaultdict(list)
    for action_id in action_ids:
        buckets[action_id[:BUCKET]].append(action_id)
    named = {name: memory[name] for name in ("tenant_id", "agent_id", "user_id", "memory_id")}
    return [
        Insert(
            ROLL_UPS, {**named, "roll_up_id": new_id("roll"), "bucket": bucket, "action_ids": ids, "created_at": now}
        )
        for bucket, ids in buckets.items()
    ]


async def summary_of(store: Store, scope: Scope, action_id: str, now: str) -> Doc:
    """Returns the memory that stands for a purged action. Raises NotFound, also if that memory is gone."""
    named = both(Eq("bucket", action_id[:BUCKET]), Has("action_ids", action_id))
    found = await Repository(store, scope, ROLL_UPS).find(named, limit=1)
    if not found:
        raise NotFound()
    return await Repository(store, scope, MEMORIES).get_unexpired(found[0]["memory_id"], now)


def render(action_id: str, memory: Doc) -> Doc:
    """Renders a purged action by the memory that stands for it."""
    named = ("agent_id", "user_id", "content", "metadata", "source", "version", "created_at", "updated_at")
    empty: Doc = {"action": {}, "context": {}, "entities": [], "tags": [], "feedback": {}}
    return {
        "action_id": action_id,
        **{name: memory[name] for name in named},
        **dict.fromkeys(("session_id", "task_id", "outcome")),
        **empty,
        **dict.fromkeys(("event_type", "action_type"), ROLLED_UP),
        "actor": "system",
        "timestamp": memory["event_at"] or memory["created_at"],
        "rolled_up_into": memory["memory_id"],
    }
