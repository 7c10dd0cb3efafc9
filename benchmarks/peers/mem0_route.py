"""mem0, the library, behind a thin HTTP route of ours; run by the Python of mem0's environment.

    python mem0_route.py PORT FOLDER EMBEDDINGS_URL

mem0 publishes no server on PyPI. Calls run in threads, as those of its server's plain `def` routes do.
"""

import sys
from typing import Any

import uvicorn
from mem0 import Memory
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

port, folder, url = sys.argv[1:]
openai = {"api_key": "none", "openai_base_url": url}
memory = Memory.from_config(
    {
        "vector_store": {
            "provider": "qdrant",
            "config": {"path": f"{folder}/qdrant", "on_disk": True, "embedding_model_dims": 384},
        },
        "embedder": {"provider": "openai", "config": {"model": "recalld-minilm-1", **openai}},
        "llm": {"provider": "openai", "config": openai},
        "history_db_path": f"{folder}/history.db",
    }
)


async def ready(_: Request) -> Response:
    return Response()


async def add(request: Request) -> Response:
    """{"user": "1", "texts": ["…"]}. `infer=False`: texts are stored as they are, without a language model."""
    body: Any = await request.json()
    messages = [{"role": "user", "content": text} for text in body["texts"]]
    return JSONResponse(await run_in_threadpool(memory.add, messages, user_id=body["user"], infer=False))


async def search(request: Request) -> Response:
    """{"user": "1", "query": "…"}"""
    body: Any = await request.json()
    filters = {"user_id": body["user"]}
    return JSONResponse(await run_in_threadpool(memory.search, body["query"], filters=filters, top_k=10))


routes = [Route("/readyz", ready), Route("/add", add, methods=["POST"]), Route("/search", search, methods=["POST"])]
uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(port), log_level="warning", access_log=False)
