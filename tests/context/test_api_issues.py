"""What a user's desk knows, in a context: issues and what solved them."""

import httpx
import pytest

from tests.support.context import ask, entries
from tests.support.memories import Json, remember

pytestmark = pytest.mark.anyio

QUERY = "Why can the user not log in since the update?"


async def record(api: httpx.AsyncClient, kind: str, **fields: str) -> Json:
    made = await api.post(f"/v1/users/u/{kind}", json=fields)
    assert made.status_code == 201, made.text
    body: Json = made.json()
    return body


async def shown(api: httpx.AsyncClient, query: str = QUERY) -> set[tuple[str | None, str]]:
    return {(one.heading, one.text) for one in entries(await ask(api, query), "memories")}


async def test_an_issue_says_that_it_is_one_its_status_and_when_it_came_up(api: httpx.AsyncClient) -> None:
    issue = await record(api, "issues", description="Cannot log in since the update", timestamp="2026-05-02T08:00:00Z")
    assert await shown(api) == {("2026-05-02", "issue (open): Cannot log in since the update")}
    moved = await api.patch(f"/v1/users/u/issues/{issue['issue_id']}", json={"status": "resolved"})
    assert moved.status_code == 200
    assert await shown(api) == {("2026-05-02", "issue (resolved): Cannot log in since the update")}


async def test_a_solution_leads_from_the_problem_to_the_fix(api: httpx.AsyncClient) -> None:
    told = {"problem": "Cannot log in since the update", "fix": "Cleared the cache"}
    solution = await record(api, "solutions", **told, timestamp="2026-05-03T08:00:00Z")
    assert await shown(api) == {("2026-05-03", "Cannot log in since the update → Cleared the cache")}
    changed = {"content": "Cannot log in since the update, until the cache is cleared"}
    assert (await api.patch(f"/v1/memories/{solution['solution_id']}", json=changed)).status_code == 200
    assert await shown(api) == {("2026-05-03", changed["content"])}


async def test_a_solution_that_a_caller_stored_as_a_memory_shows_its_content(api: httpx.AsyncClient) -> None:
    said: Json = {"memory_type": "solution", "metadata": {"problem": ["Cannot log in"], "fix": None}}
    await remember(api, "Log in again after the update", **said)
    assert await shown(api) == {("2026-06-01", "Log in again after the update")}
