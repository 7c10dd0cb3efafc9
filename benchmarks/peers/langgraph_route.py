"""LangGraph's store on PostgreSQL with pgvector: behind a thin HTTP route of ours, and driven in this process.

    python langgraph_route.py PORT FOLDER EMBEDDINGS_URL    (Python of LangGraph's environment)

`/in_process` makes the calls of many requests without HTTP between: {"path": "/search", "bodies": […], "callers": 16,
"requests": 100} gives the seconds of each call, and the answers.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from langgraph.store.base import PutOp
from langgraph.store.postgres import AsyncPostgresStore
from openai import AsyncOpenAI
from postgres import running
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

port, folder, url = sys.argv[1:]
client = AsyncOpenAI(api_key="none", base_url=url)
store: AsyncPostgresStore


async def embed(texts: Sequence[str]) -> list[list[float]]:
    made = await client.embeddings.create(input=list(texts), model="recalld-minilm-1")
    return [row.embedding for row in made.data]


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    global store  # noqa: PLW0603 (one store in this process)
    index: Any = {"dims": 384, "embed": embed, "fields": ["text"]}
    with running(Path(folder) / "postgres") as uri:
        pool: Any = {"min_size": 1, "max_size": 10}
        async with AsyncPostgresStore.from_conn_string(uri, index=index, pool_config=pool) as opened:
            await opened.setup()
            store = opened
            yield


async def added(body: Any) -> Any:
    """{"user": "1", "texts": ["…"]}"""
    namespace = ("memories", body["user"])
    await store.abatch([PutOp(namespace, str(uuid4()), {"text": text}) for text in body["texts"]])
    return {}


async def found(body: Any) -> Any:
    """{"user": "1", "query": "…"}"""
    items = await store.asearch(("memories", body["user"]), query=body["query"], limit=10)
    return {"results": [{"text": item.value["text"], "score": item.score} for item in items]}


async def ready(_: Request) -> Response:
    return Response()


async def add(request: Request) -> Response:
    return JSONResponse(await added(await request.json()))


async def search(request: Request) -> Response:
    return JSONResponse(await found(await request.json()))


async def in_process(request: Request) -> Response:
    asked = await request.json()
    call = {"/add": added, "/search": found}[asked["path"]]
    bodies, turn = asked["bodies"], count()
    seconds, answers = list[float](), list[str]()

    async def caller() -> None:
        while (number := next(turn)) < asked["requests"]:
            started = time.perf_counter()
            answer = await call(bodies[number % len(bodies)])
            seconds.append(time.perf_counter() - started)
            answers.append(json.dumps(answer))

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(asked["callers"])))
    return JSONResponse({"seconds": seconds, "elapsed": time.perf_counter() - started, "answers": answers})


routes = [
    Route("/readyz", ready),
    Route("/add", add, methods=["POST"]),
    Route("/search", search, methods=["POST"]),
    Route("/in_process", in_process, methods=["POST"]),
]
app = Starlette(routes=routes, lifespan=lifespan)
uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", access_log=False)
