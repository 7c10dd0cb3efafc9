"""A bare FastAPI application that does the least for the same effect: what the service's own work is compared with.

`python -m benchmarks.bare PORT DIRECTORY BYTES`: a search and a query answer BYTES bytes, a note is one durable INSERT
through the same engine settings (WAL, synchronous=FULL), committed before the answer.
"""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel

from app.storage.changes import Insert
from app.storage.schema import Collection
from app.storage.sqlite.store import EmbeddedStore

NOTES = Collection("notes", "note_id", {})


class Question(BaseModel):
    query: str
    agent_id: str
    user_id: str
    top_k: int
    record_access: bool


class Note(BaseModel):
    agent_id: str
    user_id: str
    subject: str
    predicate: str
    object: str


def create_app(directory: Path, size: int) -> FastAPI:
    answer = b"x" * size
    stores: list[EmbeddedStore] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        stores.append(await EmbeddedStore.open(directory, (NOTES,), dim=1))
        yield
        await stores[0].close()

    app = FastAPI(lifespan=lifespan)

    @app.get("/readyz")
    async def ready() -> None: ...

    @app.post("/v1/memories/search")
    async def search(body: Question) -> Response:  # noqa: ARG001 (the framework reads it)
        return Response(answer, media_type="application/json")

    @app.get("/facts")
    async def facts(agent_id: str, user_id: str, subject: str, predicate: str, as_of: str) -> Response:  # noqa: ARG001
        return Response(answer, media_type="application/json")

    @app.post("/notes", status_code=201)
    async def add(body: Note) -> dict[str, Any]:
        note_id = str(time.time_ns())
        doc = {"tenant_id": "t", "note_id": note_id, "created_at": "2026-01-01T00:00:00.000Z", **body.model_dump()}
        await stores[0].commit([Insert(NOTES, doc)])
        return {"note_id": note_id}

    @app.post("/v1/{signal}")
    async def collect(signal: str) -> Response:  # noqa: ARG001
        """Stands for a collector, which throws away what it gets."""
        return Response()

    return app


if __name__ == "__main__":
    port, directory, size = sys.argv[1:]
    app = create_app(Path(directory), int(size))
    uvicorn.run(app, port=int(port), log_config=None, access_log=False, server_header=False)
