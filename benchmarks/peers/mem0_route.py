"""mem0, the library, behind a thin HTTP route of ours; run by the Python of mem0's environment.

    python mem0_route.py PORT FOLDER EMBEDDINGS_URL qdrant|pgvector

mem0 publishes no server on PyPI. Calls run in threads, as those of its server's plain `def` routes do. Its store is the
library's default, Qdrant in this process, or PostgreSQL with pgvector, the default of its server.
"""

import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvicorn
from mem0 import Memory
from postgres import running
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def opened(folder: str, url: str, provider: str, stack: ExitStack) -> Any:
    if provider == "pgvector":
        store: dict[str, Any] = {"connection_string": stack.enter_context(running(Path(folder) / "postgres"))}
    else:
        store = {"path": f"{folder}/qdrant", "on_disk": True}
    openai = {"api_key": "none", "openai_base_url": url}
    return Memory.from_config(
        {
            "vector_store": {"provider": provider, "config": {**store, "embedding_model_dims": 384}},
            "embedder": {"provider": "openai", "config": {"model": "recalld-minilm-1", **openai}},
            "llm": {"provider": "openai", "config": openai},
            "history_db_path": f"{folder}/history.db",
        }
    )


def app_of(memory: Any) -> Starlette:
    async def ready(_: Request) -> Response:
        return Response()

    async def add(request: Request) -> Response:
        """{"user": "1", "texts": ["…"]}. `infer=False`: texts are stored as they are, without a language model."""
        body = await request.json()
        messages = [{"role": "user", "content": text} for text in body["texts"]]
        return JSONResponse(await run_in_threadpool(memory.add, messages, user_id=body["user"], infer=False))

    async def search(request: Request) -> Response:
        """{"user": "1", "query": "…"}"""
        body = await request.json()
        filters = {"user_id": body["user"]}
        return JSONResponse(await run_in_threadpool(memory.search, body["query"], filters=filters, top_k=10))

    posted = [Route("/add", add, methods=["POST"]), Route("/search", search, methods=["POST"])]
    return Starlette(routes=[Route("/readyz", ready), *posted])


if __name__ == "__main__":
    port, folder, url, provider = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn ends by the signal that it got: PostgreSQL, too
    with ExitStack() as stack:
        app = app_of(opened(folder, url, provider, stack))
        uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", access_log=False)
