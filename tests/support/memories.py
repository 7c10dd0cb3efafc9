"""Short words for what the tests of memories do over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from app.embedding.embedder import Embedder
from app.embedding.model import Vectors
from app.embedding.onnx import OnnxModel
from app.errors import EmbeddingUnavailable
from app.settings import Settings
from tests.conftest import Service, TestParts, TurnedClock, running

Json = dict[str, Any]
OWNER: Json = {"agent_id": "a", "user_id": "u"}
STRANGERS: dict[str, Json] = {
    "another tenant": {"tenant": "other"},
    "bound to another user": {"users": ["v"]},
    "bound to another agent": {"agents": ["b"]},
    "bound to both": {"agents": ["a"], "users": ["v"]},
}
"""Keys that see nothing of user u with agent a in the tenant `default`."""


@asynccontextmanager
async def shared_service(where: Path | Settings, model: OnnxModel) -> AsyncIterator[Service]:
    """One service for a module whose tests leave it as it is: starting one takes longer than they do. A folder stands
    for an embedded store in it."""
    settings = where if isinstance(where, Settings) else Settings(data_dir=where / "data", _env_file=None)
    async with running(settings, TestParts(model, TurnedClock())) as made:
        yield made


async def remember(api: httpx.AsyncClient, content: str, expect: int = 201, **fields: Any) -> Json:
    """A memory of the partition (a, u), unless `fields` say otherwise."""
    made = await api.post("/v1/memories", json={**OWNER, "content": content, **fields})
    assert made.status_code == expect, made.text
    body: Json = made.json()
    return body


async def path_of(api: httpx.AsyncClient, content: str, **fields: Any) -> str:
    """Of a new memory."""
    return f"/v1/memories/{(await remember(api, content, **fields))['memory_id']}"


async def batch(api: httpx.AsyncClient, *items: Json, expect: int = 201) -> Json:
    made = await api.post("/v1/memories/batch", json={"items": [{**OWNER, **item} for item in items]})
    assert made.status_code == expect, made.text
    body: Json = made.json()
    return body


async def recall(api: httpx.AsyncClient, query: str, expect: int = 200, **fields: Any) -> Json:
    found = await api.post("/v1/memories/search", json={**OWNER, "query": query, **fields})
    assert found.status_code == expect, found.text
    body: Json = found.json()
    return body


async def found(api: httpx.AsyncClient, query: str, **fields: Any) -> list[str]:
    """Contents that a search finds, best first."""
    return [item["memory"]["content"] for item in (await recall(api, query, **fields))["items"]]


async def listed(api: httpx.AsyncClient, **params: Any) -> list[str]:
    """Contents of the first page of a list, in its order."""
    page = await api.get("/v1/memories", params=params)
    assert page.status_code == 200, page.text
    return [item["content"] for item in page.json()["items"]]


async def history(api: httpx.AsyncClient, memory_id: str) -> list[Json]:
    """Earlier versions, newest first."""
    page = await api.get(f"/v1/memories/{memory_id}/history")
    assert page.status_code == 200, page.text
    items: list[Json] = page.json()["items"]
    return items


def problem(response: httpx.Response, status: int, code: str | None = None, pointer: str | None = None) -> Json:
    """The body of an error, after a look at its form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: Json = response.json()
    assert body["status"] == status
    if code is not None:
        assert body["code"] == code
    if pointer is not None:
        assert pointer in [error["pointer"] for error in body["errors"]], body
    return body


async def eventually(check: Any, seconds: float = 90.0) -> Any:
    """What `check()` gives as soon as it gives something."""
    for _ in range(int(seconds / 0.05)):
        if value := await check():
            return value
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")


class Faulty:
    """An embedder that fails while it is told to, refuses a text (and whatever batch it is in), and counts."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self.failing = False
        self.refused: str | None = None
        self.calls: list[list[str]] = []

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def dim(self) -> int:
        return self._inner.dim

    @property
    def ready(self) -> bool:
        return self._inner.ready

    async def embed_query(self, text: str) -> Vectors:
        self._check()
        return await self._inner.embed_query(text)

    async def embed_texts(self, texts: Any) -> Vectors:
        self._check()
        self.calls.append(list(texts))
        if self.refused in texts:
            raise EmbeddingUnavailable("The model refuses a text.")
        return await self._inner.embed_texts(texts)

    async def windows(self, texts: Any) -> list[list[str]]:
        return await self._inner.windows(texts)

    async def close(self) -> None:
        await self._inner.close()

    def _check(self) -> None:
        if self.failing:
            raise EmbeddingUnavailable("The model was taken away by a test.")
