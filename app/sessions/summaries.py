"""A session's summary, and the long-term memory with the same text.

The session shows its summary. A memory of type `summary` makes it searchable and outlives the session. The session
document names that memory (`summary_id`), and every write of a summary expects that name, so two jobs that run at the
same time cannot create two memories. The memory is changed in place as long as it is active.
"""

from dataclasses import dataclass
from typing import Any

from app.memories.indexing import Embeddings
from app.memories.records import needs_new_entry, new_memory, passage, revision
from app.memories.repository import MemoryRepository
from app.storage.changes import Change
from app.storage.schema import Doc

IMPORTANCE = 0.5
"""Importance of summaries, above that of single messages."""
EXTRACT = "(extract) "
"""Prefix of a summary that quotes the conversation, because no language model was configured."""
GUARDED = ("created_at", "agent_id", "user_id", "summary_id", "summary_seq")
"""Fields of the session that may not change between the read and the write of its summary.

`version` is not among them: no caller asks for a summary of the service, so it does not bump versions.
"""


@dataclass(frozen=True, slots=True)
class SummaryText:
    """A summary to be stored.

    `trust`: 0 to 1. `seq` and `event_at`: number and time of the last message that it covers.
    """

    text: str
    trust: float
    source: Doc
    """Fields of the memory's source beside the session's."""
    seq: int | None = None
    event_at: str | None = None
    rolls: bool = False
    """Whether it continues the stored summary. Its trust is then not higher than that summary's."""


def is_extract(session: Doc) -> bool:
    """Returns whether the session's summary quotes the conversation."""
    return bool(session["summary"]) and str(session["summary"]).startswith(EXTRACT)


def expected(session: Doc) -> Doc:
    """Returns the field values that a change of the summary expects in the stored session."""
    return {name: session.get(name) for name in GUARDED}


class SessionSummaries:
    """Plans the writes of summaries. It commits nothing."""

    def __init__(self, memories: MemoryRepository, embeddings: Embeddings) -> None:
        self._memories, self._embeddings = memories, embeddings

    async def stored(self, session: Doc) -> Doc | None:
        """Returns the memory of the summary; None if there is none, or if a caller archived, replaced or deleted it."""
        memory_id = session.get("summary_id")
        memory = None if memory_id is None else await self._memories.find_one(memory_id)
        return memory if memory is not None and memory["status"] == "active" else None

    async def write(self, session: Doc, summary: SummaryText, now: str) -> tuple[Doc, list[Change]]:
        """Returns the session's new fields, and the changes of the memory. A session that memorizes nothing has no
        memory.

        Raises Forbidden if the caller may not write the memory.
        """
        seq = session.get("summary_seq") if summary.seq is None else summary.seq
        fields: Doc = {"summary": summary.text, "summary_seq": seq, "summary_id": session.get("summary_id")}
        if session["memorize"] == "none" or not summary.text.strip():
            return fields, []
        old = await self.stored(session)
        if old is None:
            memory_id, changes = await self._added(session, summary, now)
            return fields | {"summary_id": memory_id}, changes
        return fields, await self._revised(old, summary, now)

    async def drop(self, session: Doc) -> tuple[Doc, list[Change]]:
        """Returns the session's fields without a summary, and the changes that delete the memory."""
        old = await self.stored(session)
        changes = [] if old is None else self._memories.remove([old])
        return dict.fromkeys(("summary", "summary_id", "summary_seq")), changes

    async def _added(self, session: Doc, summary: SummaryText, now: str) -> tuple[str, list[Change]]:
        fields = {
            "agent_id": session["agent_id"],
            "user_id": session["user_id"],
            "memory_type": "summary",
            "content": summary.text,
            "importance": IMPORTANCE,
            "trust": summary.trust,
            "event_at": summary.event_at,
        }
        key = {"api_key_id": self._memories.scope.key_id}
        source = {**summary.source, "session_id": session["session_id"], **key}
        doc = new_memory(fields, source, now, unique=False)
        (entry,) = await self._embeddings.entries([passage(doc)])
        doc["embedding"] = self._embeddings.info(entry)
        return doc["memory_id"], self._memories.add(doc, entry)

    async def _revised(self, old: Doc, summary: SummaryText, now: str) -> list[Change]:
        """Changes content, time, trust and source. Fields that callers set (tags, pin, importance) stay."""
        trust = min(old["trust"], summary.trust) if summary.rolls else summary.trust
        fields: dict[str, Any] = {"content": summary.text, "trust": trust}
        if summary.event_at is not None:
            fields["event_at"] = summary.event_at
        source = old["source"] | {"model": None, "prompt_version": None} | summary.source
        changed = revision(old | {"source": source}, fields, now)
        if source != old["source"]:
            changed["source"] = source
        return await revised(self._memories, self._embeddings, old, changed, now)


async def revised(memories: MemoryRepository, embeddings: Embeddings, old: Doc, changed: Doc, now: str) -> list[Change]:
    """Returns the changes that set these fields of a memory and, if its text changes, embed it again."""
    if not changed:
        return []
    if not needs_new_entry(changed):
        return memories.revise(old, changed, now)
    (entry,) = await embeddings.entries([passage(old | changed)])
    changed = changed | {"embedding": embeddings.info(entry)}
    pending = memories.note_pending(old | changed | {"updated_at": now})
    return [*memories.revise(old, changed, now, entry), *pending]
