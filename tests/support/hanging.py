"""`recalld serve`, tuned, where a search for the word `hang` stops the event loop of its process for ever, while its
other threads go on.

python -m tests.support.hanging '{"silent_seconds": 10}'
"""

import time
from typing import Any

from app.lifespan import RealParts
from app.settings import Settings
from tests.support.tuned import serve_tuned


class Hanging:
    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    async def embed_query(self, text: str) -> Any:
        while text == "hang":
            time.sleep(1)  # noqa: ASYNC251 (that is the fault)
        return await self._embedder.embed_query(text)


class HangingParts(RealParts):
    async def embedder(self, settings: Settings) -> Any:
        return Hanging(await super().embedder(settings))


if __name__ == "__main__":
    serve_tuned(HangingParts())
