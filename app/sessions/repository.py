"""Queries over sessions and their messages."""

from app.memories.models import MEMORIES
from app.sessions.models import MESSAGES, SESSIONS
from app.storage.collection import Change, DeleteWhere, Doc, Insert, Store, Update
from app.storage.filters import Eq, Filter, Range, both
from app.storage.repository import Repository
from app.storage.scope import Scope


class SessionRepository(Repository):
    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__(store, scope, SESSIONS)
        self.messages = Repository(store, scope, MESSAGES)

    def within(self, session: Doc, after_seq: int | None = None, before_seq: int | None = None) -> Filter:
        """The session's messages, those between two numbers."""
        bounds = None if after_seq is None and before_seq is None else Range("seq", gt=after_seq, lt=before_seq)
        return both(Eq("session_id", session["session_id"]), bounds)

    async def count_messages(self, session: Doc, role: str) -> int:
        return await self.messages.count(both(self.within(session), Eq("role", role)))

    async def count_memories(self, session: Doc) -> int:
        where = both(Eq("source.session_id", session["session_id"]), self.scope.visible())
        return await self.store.count(MEMORIES, self.scope.tenant, where)

    # --- Changes ------------------------------------------------------------------------------------------------------

    def add_message(self, doc: Doc) -> Insert:
        return Insert(MESSAGES, {"tenant_id": self.scope.tenant, **doc})

    def count_in(self, session: Doc, added: list[Doc]) -> Update:
        """Appended children leave the session's version alone; an ended session takes none.

        Who commits last has the highest number, so the last message's time needs no look at what was read before.
        """
        return self.append(
            session,
            {"last_message_at": added[-1]["timestamp"]},
            inc={"message_count": len(added), "token_count": sum(doc["tokens"] for doc in added)},
            expect={name: session[name] for name in ("status", "memorize", "agent_id", "user_id", "created_at")},
        )

    def clear(self, session: Doc) -> list[Change]:
        """All messages go; the counter of their numbers stays."""
        self.scope.require_write(session["agent_id"], session["user_id"])
        return [DeleteWhere(MESSAGES, self.scope.tenant, Eq("session_id", session["session_id"]))]

    def remove(self, session: Doc) -> list[Change]:
        return [*self.clear(session), self.delete(session)]
