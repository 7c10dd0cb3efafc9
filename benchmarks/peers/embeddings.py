"""The embedding service of the comparison: OpenAI's `/v1/embeddings` from the model that comes with Recalld.

    python -m benchmarks.peers.embeddings PORT

It keeps the vectors of lone texts: a known query costs every product at most a call, and no run of the model.
"""

import base64
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import numpy as np
import uvicorn

from app.embedding.embedder import Embedder
from app.embedding.factory import DEFAULT_MODEL, open_embedder

Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class EmbeddingService:
    """An ASGI application. Without a framework: what it costs is no part of any product."""

    def __init__(self) -> None:
        self._embedder: Embedder | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        body = b""
        while scope["method"] == "POST":
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["path"] == "/v1/embeddings":
            answer = await self._embed(json.loads(body))
        else:
            answer = {"object": "list", "data": [{"id": DEFAULT_MODEL, "object": "model"}]}
        sent = json.dumps(answer, separators=(",", ":")).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(sent)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": sent})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._embedder = await open_embedder()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._embedder.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _embed(self, asked: Message) -> Message:
        """`input` is a text or a list of them. `encoding_format`: `float`, or `base64`, which clients prefer."""
        assert self._embedder is not None
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        if len(texts) == 1:
            rows = np.stack([await self._embedder.embed_query(texts[0])])
        else:
            rows = await self._embedder.embed_texts(texts)
        coded = asked.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(row.tobytes()).decode() if coded else row.tolist(),
            }
            for index, row in enumerate(rows)
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "data": data, "model": asked.get("model", DEFAULT_MODEL), "usage": usage}


if __name__ == "__main__":
    uvicorn.run(EmbeddingService(), host="127.0.0.1", port=int(sys.argv[1]), log_config=None, access_log=False)
