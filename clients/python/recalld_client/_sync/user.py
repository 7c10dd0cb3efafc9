# Made from _async/user.py by scripts/generate_clients.py; do not edit.
"""The memory of one user, as one agent has it."""

from collections.abc import Iterator
from typing import Any, Literal, Unpack, cast, overload
from uuid import uuid4

from recalld_client import _generated as models
from recalld_client._sync.documents import UserDocuments
from recalld_client._sync.facts import UserFacts
from recalld_client._sync.files import UserFiles
from recalld_client._sync.pages import items
from recalld_client._sync.profile import UserProfile
from recalld_client._sync.session import UserSession
from recalld_client._errors import InvalidUser, Problem
from recalld_client._generated import Operations
from recalld_client._messages import Added, Hit, MemoryRef, Messages, as_messages, memory_id


class UserMemory:
    """What one agent knows of one user. `Recalld.user` makes it."""

    def __init__(self, client: Operations, user_id: str, agent_id: str) -> None:
        """Raises InvalidUser."""
        given: object = user_id
        if not isinstance(given, str) or not given.strip():
            raise InvalidUser(user_id)
        self.client, self.user_id, self.agent_id = client, user_id, agent_id

    @overload
    def add(self, content: str, **options: Unpack[models.MemoryOptions]) -> models.MemoryCreated: ...

    @overload
    def add(self, content: Messages, *, infer: bool = True, metadata: models.Json | None = None) -> Added: ...

    def add(self, content: str | Messages, *, infer: bool = True, **options: Any) -> models.MemoryCreated | Added:
        """Stores a text as one memory, or what matters of messages.

        From messages a language model extracts memories (`how` is "extracted", or "extracting" if it takes longer than
        30 seconds). Without a model, or with `infer=False`, they are stored as the turns of a session of their own,
        which ends at once (`how` is "stored"). For a conversation that goes on, use `session(…).append(…)`. Options
        are fields of a memory, such as `tags`, for a text; for messages `metadata`. Raises Problem.
        """
        if isinstance(content, str):
            owner: models.MemoryCreate = {"agent_id": self.agent_id, "user_id": self.user_id, "content": content}
            return self.client.create_memory({**owner, **cast(models.MemoryOptions, options)})
        metadata = options.pop("metadata", None) or {}
        if options:
            raise TypeError(f"{', '.join(options)}: only a text has these, messages do not.")
        messages = as_messages(content)
        try:
            asked: models.ExtractRequest = {"agent_id": self.agent_id, "user_id": self.user_id, "messages": messages}
            if infer:
                found: Any = self.client.extract_memories({**asked, "metadata": metadata})
                return cast(Added, {"how": "extracting" if "operation_id" in found else "extracted", **found})
        except Problem as problem:
            if problem.code != "llm_not_configured":
                raise
        session = self.session()
        said: Any = [{**message, "metadata": {**metadata, **(message.get("metadata") or {})}} for message in messages]
        stored = session.append(said)
        session.end()
        return {"how": "stored", **stored}

    def search(self, query: str, *, limit: int = 10, **options: Unpack[models.SearchOptions]) -> list[Hit]:
        """The memories that help with `query`, best first, `limit` at most (1 to 100). Raises Problem.

        `client.search_memories` returns the warnings, too.
        """
        owner: models.SearchRequest = {"agent_id": self.agent_id, "user_id": self.user_id, "query": query}
        found = self.client.search_memories({**owner, "top_k": limit, **options})
        return cast(list[Hit], found["items"])

    def context(
        self, query: str, *, budget: int = 2000, session: str | None = None, **options: Unpack[models.ContextOptions]
    ) -> models.Context:
        """What matters for the answer to `query`, within `budget` tokens: `["text"]` for a prompt. Raises Problem.

        With `format="messages"`, `["messages"]` is ready for a chat model. session: the id of the conversation in hand.
        """
        asked: models.ContextRequest = {"agent_id": self.agent_id, "user_id": self.user_id, "query": query}
        asked = {**asked, "token_budget": budget, **options}
        if session is not None:
            asked["session_id"] = session
        return self.client.assemble_context(asked)

    def session(self, session_id: str | None = None) -> UserSession:
        """A conversation. Nothing is sent until something is appended; without an id it gets a new one."""
        return UserSession(self.client, self.user_id, self.agent_id, session_id or uuid4().hex)

    @property
    def facts(self) -> UserFacts:
        """Statements about the user, with the times at which they are true."""
        return UserFacts(self.client, self.user_id, self.agent_id)

    @property
    def documents(self) -> UserDocuments:
        """Markdown, text, HTML and PDF, whose passages are found like memories."""
        return UserDocuments(self.client, self.user_id, self.agent_id)

    @property
    def files(self) -> UserFiles:
        """Texts under paths below /memories, with the commands of Anthropic's memory tool."""
        return UserFiles(self.client, self.user_id, self.agent_id)

    @property
    def profile(self) -> UserProfile:
        """The user's name, home, interests and preferences. All agents share it."""
        return UserProfile(self.client, self.user_id)

    def get_all(self, **filters: Unpack[models.MemoryFilter]) -> list[models.Memory]:
        """The newest memories that this agent has of the user, `limit` (20, at most 100) of them. Raises Problem.

        `memories` goes over all of them.
        """
        return (self.client.list_memories(agent_id=self.agent_id, user_id=self.user_id, **cast(Any, filters)))[
            "items"
        ]

    def get(self, memory: MemoryRef) -> models.Memory:
        """A memory as it is now. Raises Problem, 404 if there is none."""
        return self.client.get_memory(memory_id(memory))

    def update(self, memory: MemoryRef, **changes: Unpack[models.MemoryPatch]) -> models.Memory:
        """Changes the fields that are given; None clears one. Raises Problem, 404 if there is no such memory."""
        return self.client.update_memory(memory_id(memory), changes)

    def memories(self, **filters: Unpack[models.MemoryFilter]) -> Iterator[models.Memory]:
        """All memories that this agent has of the user, newest first, fetched page by page."""
        return items(self.client.list_memories, agent_id=self.agent_id, user_id=self.user_id, **filters)

    def upcoming(self, until: str | None = None) -> Iterator[models.UpcomingItem]:
        """Plans, what is due and what ceases to hold, the soonest first, up to `until` (RFC 3339); page by page."""
        asked = {} if until is None else {"until": until}
        return items(self.client.list_upcoming, agent_id=self.agent_id, user_id=self.user_id, **asked)

    def sessions(self, **filters: Unpack[models.SessionFilter]) -> Iterator[models.Session]:
        """All conversations of this agent and the user, newest first, fetched page by page."""
        return items(self.client.list_sessions, agent_id=self.agent_id, user_id=self.user_id, **filters)

    def feedback(self, memory: MemoryRef, helpful: bool, *, query: str | None = None) -> models.FeedbackApplied:
        """Says whether a memory helped, with the query that found it. Later searches rank it accordingly."""
        item: models.FeedbackItem = {"memory_id": memory_id(memory), "helpful": helpful, "query": query}
        answer = self.client.give_memory_feedback({"items": [item]})
        return answer["items"][0]

    @overload
    def forget(self, memory: MemoryRef) -> None: ...

    @overload
    def forget(self, *, policy: models.PolicyIn, apply: Literal[False] = False) -> models.ForgetPlan: ...

    @overload
    def forget(self, *, policy: models.PolicyIn, apply: Literal[True]) -> models.Operation: ...

    def forget(
        self, memory: MemoryRef | None = None, *, policy: models.PolicyIn | None = None, apply: bool = False
    ) -> models.ForgetPlan | models.Operation | None:
        """Deletes one memory, or archives those that a policy names, for example `{"older_than_days": 90}`.

        A policy is only planned, until `apply=True` returns the operation, which can be undone. Raises Problem.
        """
        if (memory is None) == (policy is None):
            raise TypeError("Give a memory or a policy; erase() removes all of the user.")
        if memory is not None:
            self.client.delete_memory(memory_id(memory))
            return None
        owner: models.ForgetRequest = {"agent_id": self.agent_id, "user_id": self.user_id, "policy": policy or {}}
        return self.client.forget_memories({**owner, "dry_run": not apply})

    def erase(self) -> models.Receipt | models.Operation:
        """Removes everything about the user, for all agents, and verifies it. It cannot be undone."""
        return self.client.erase_user(self.user_id)
