"""Statements about a user."""

from collections.abc import AsyncIterator
from typing import Unpack, cast

from recalld_client import _generated as models
from recalld_client._async.pages import items
from recalld_client._generated import AsyncOperations


class AsyncUserFacts:
    """Facts that one agent knows of one user. `AsyncUserMemory.facts` makes it."""

    def __init__(self, client: AsyncOperations, user_id: str, agent_id: str) -> None:
        self.client, self.user_id, self.agent_id = client, user_id, agent_id

    async def add(
        self, subject: str, predicate: str, object: str, **options: Unpack[models.FactOptions]
    ) -> models.Fact:
        """States a fact, for example ("Ada", "lives_in", "Boston"). An older one that it contradicts ends.

        `on_conflict="merge"` is answered by an operation, not by a fact: use `client.assert_fact`. Raises Problem, and
        ValueError for `merge`.
        """
        if options.get("on_conflict") == "merge":
            raise ValueError('on_conflict="merge" is answered by an operation: use client.assert_fact')
        fact: models.FactCreate = {"subject": subject, "predicate": predicate, "object": object}
        owned: models.FactCreate = {**fact, "agent_id": self.agent_id, "user_id": self.user_id}
        return cast(models.Fact, await self.client.assert_fact({**owned, **options}))

    async def search(
        self, query: str, *, limit: int = 10, **options: Unpack[models.FactSearchOptions]
    ) -> list[models.FoundFact]:
        """The facts that help with `query`, best first. Raises Problem."""
        asked: models.FactSearch = {"agent_id": self.agent_id, "user_id": self.user_id, "query": query}
        found = await self.client.search_facts({**asked, "top_k": limit, **options})
        return found["items"]

    def all(self, **filters: Unpack[models.FactFilter]) -> AsyncIterator[models.Fact]:
        """All facts, fetched page by page. `as_of="2026-05-01T00:00:00Z"` gives those that were true then."""
        return items(self.client.list_facts, agent_id=self.agent_id, user_id=self.user_id, **filters)

    def __aiter__(self) -> AsyncIterator[models.Fact]:
        return self.all()

    async def retract(self, fact_id: str) -> models.Fact:
        """Takes a fact back: it was never true. Raises Problem, 404 if there is none."""
        return await self.client.retract_fact(fact_id)
