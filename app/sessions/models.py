"""Collections of short-term memory: sessions, and messages as documents of their own."""

from app.storage.schema import Collection, Unique

SUMMARY_INTERNAL = frozenset({"summary_id", "summary_seq"})
"""Internal fields of the summary.

`summary_id`: the memory with the same text. `summary_seq`: the last message that the summary covers, if the service
wrote it.
"""
SESSIONS = Collection(
    name="conversation_sessions",
    id_field="session_id",
    fields={"agent_id": "text", "user_id": "text", "status": "text", "expires_at": "time", "created_at": "time"},
    indexes=(("agent_id", "user_id"), ("user_id",)),
    global_indexes=("expires_at",),
    opaque=("metadata",),
    internal=SUMMARY_INTERNAL | {"learned_seq"},
)
MESSAGES = Collection(
    name="messages",
    id_field="message_id",
    fields={"session_id": "text", "agent_id": "text", "user_id": "text", "seq": "number", "role": "text"},
    order="seq",
    unique=(Unique("seq", ("session_id", "seq")),),
    indexes=(("session_id",), ("user_id",)),
    opaque=("metadata", "content", "tool_calls", "result", "annotations", "audio", "function_call"),
    audited=False,
    internal=frozenset({"text"}),
)
"""The collection of messages.

`seq` comes from a counter of the session's id, which outlives the session: it has no gaps and never restarts.
"""

SESSION_INTERNAL = SUMMARY_INTERNAL | {"tenant_id", "learned_seq"}
MESSAGE_INTERNAL = frozenset({"tenant_id", "agent_id", "user_id", "text"})
"""Fields that no response contains.

`learned_seq`: learning has processed the messages up to this one. `text`: the text of a message, its parts joined.
"""


def counter(session_id: str) -> str:
    """Returns the name of the session's counter."""
    return f"messages:{session_id}"
