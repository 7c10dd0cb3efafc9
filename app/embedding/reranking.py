"""The second stage of a hybrid search: a reranker reads the query beside each of the first hits and reorders them.

A reranker is optional. If it fails, a search keeps the order of the first stage and adds a warning.

`HttpReranker` is a client of `/rerank` endpoints, as of Jina, Cohere, vLLM and llama.cpp, or as of Text Embeddings
Inference (TEI). With a model's name it sends `{model, query, documents, top_n}` and reads `{results: [{index,
relevance_score}]}`. Cohere rejects unknown fields, so nothing else is sent. Without a name it uses TEI's own format:
`{query, texts, truncate}` → `[{index, score}]`.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Protocol

import httpx2
from pydantic import AliasChoices, BaseModel, Field, TypeAdapter, ValidationError

from app.core.schemas import Json
from app.core.work import off_loop
from app.embedding.model import clipped
from app.metrics import RERANK_SECONDS

log = logging.getLogger(__name__)

MAX_CHARS = 2_000
"""Maximum length of the query and of each text. Most rerankers read 512 tokens of both together."""
MAX_HITS = 100
"""Maximum number of texts in one call. It is also the maximum number of hits of a search."""
MAX_WAITING = 32
"""Maximum number of calls that wait for their turn."""
FAILURES_BEFORE_PAUSE = 3
MAX_PAUSE_SECONDS = 30.0


class RerankingFailed(Exception):
    """There are no scores. The message is a sentence for callers, without text of users and without keys."""

    outcome: ClassVar[str] = "failed"


class RerankingLate(RerankingFailed):
    """The deadline passed before the reranker answered."""

    outcome = "late"


class RerankingSkipped(RerankingFailed):
    """The reranker was not called."""

    outcome = "skipped"


class RerankerInvalid(Exception):
    """The reranker of the settings cannot be used. The message has the reason."""


class Reranker(Protocol):
    """A model that scores texts by how well they answer a query."""

    @property
    def name(self) -> str:
        """Name for people. It contains no secret."""

    @property
    def at_once(self) -> int:
        """Number of calls that may run at the same time."""

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Returns one number for each text; a greater one means a better answer. It stops soon after it is cancelled.

        Raises RerankingFailed.
        """

    async def close(self) -> None:
        """Releases the model or the connections."""


class SecondStage:
    """A reranker with a deadline, a bounded waiting line, and a pause after repeated failures.

    The pause keeps searches from waiting one deadline each for a server that is down. After three failures in a row
    there are no calls for one second, then two, four … 30, until a call succeeds.
    """

    def __init__(
        self, reranker: Reranker, *, seconds: float, hits: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates the stage. `seconds`: maximum wait of a search, its turn included. `hits`: how many hits are
        reranked."""
        self._reranker, self._seconds, self._hits, self._monotonic = reranker, seconds, hits, monotonic
        self._turns = asyncio.Semaphore(reranker.at_once)
        self._waiting = 0
        self._failures = 0  # number of failures in a row
        self._pause_ends = 0.0

    @property
    def name(self) -> str:
        return self._reranker.name

    @property
    def state(self) -> str:
        """State for /readyz: the reranker's name, and whether it is paused."""
        return f"{self.name} (paused after {self._failures} failures)" if self._paused else self.name

    def count(self, k: int) -> int:
        """Returns how many hits of a search for `k` are reranked."""
        return min(max(self._hits, k), MAX_HITS)

    async def scores(self, query: str, texts: Sequence[str], seconds: float | None = None) -> list[float]:
        """Returns one finite number for each text; a greater one means a better answer.

        `seconds` can shorten the deadline of the settings. Raises RerankingFailed.
        """
        started = time.perf_counter()
        outcome = "failed"
        try:
            scores = await self._scores(query, texts, self._seconds if seconds is None else min(seconds, self._seconds))
            outcome = "reranked"
        except RerankingFailed as error:
            outcome = error.outcome
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            RERANK_SECONDS.labels(outcome).observe(time.perf_counter() - started)
        return scores

    async def close(self) -> None:
        await self._reranker.close()

    @property
    def _paused(self) -> bool:
        return self._monotonic() < self._pause_ends

    async def _scores(self, query: str, texts: Sequence[str], seconds: float) -> list[float]:
        if self._paused:
            raise RerankingSkipped("The reranker failed several times: it is not asked for a while.")
        if self._turns.locked() and self._waiting >= MAX_WAITING:
            raise RerankingSkipped("Too many searches wait for the reranker.")
        try:
            async with asyncio.timeout(seconds):
                scores = await self._in_turn(query, texts)
        except TimeoutError:
            self._failed("late")
            raise RerankingLate(f"The reranker did not answer within {seconds:g} s.") from None
        except RerankingFailed as error:
            self._failed(str(error))
            raise
        if self._failures:
            log.info("searches are reranked again", extra={"failures": self._failures})
        self._failures, self._pause_ends = 0, 0.0
        return scores

    async def _in_turn(self, query: str, texts: Sequence[str]) -> list[float]:
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            scores = await self._reranker.score(clipped(query, MAX_CHARS), [clipped(text, MAX_CHARS) for text in texts])
        finally:
            self._turns.release()
        if len(scores) != len(texts):
            raise RerankingFailed(f"The reranker gave {len(scores)} scores for {len(texts)} texts.")
        if not all(map(math.isfinite, scores)):
            raise RerankingFailed("The reranker gave a score that is not finite.")
        return scores

    def _failed(self, reason: str) -> None:
        if self._paused:  # the call began before the pause
            return
        self._failures += 1
        if self._failures == 1:  # logging each failure of a row would fill the log
            log.warning("a search was not reranked", extra={"reason": reason})
        if (beyond := self._failures - FAILURES_BEFORE_PAUSE) >= 0:
            self._pause_ends = self._monotonic() + min(2.0 ** min(beyond, 10), MAX_PAUSE_SECONDS)


def best_first(scores: Sequence[float]) -> list[int]:
    """Returns the indices by score, descending; equal scores keep their order."""
    return sorted(range(len(scores)), key=lambda index: -scores[index])


ANSWER_BYTES = 2 << 20
"""Maximum size of an answer. Jina also returns the texts: 100 texts of 2,000 characters fit, even escaped."""
TEI_TEXTS = 32
"""Maximum texts in one request. TEI rejects more, unless it was started with another `--max-client-batch-size`."""
LARGEST_SCORE = 1e30


class _Result(BaseModel):
    index: Annotated[int, Field(strict=True, ge=0)]
    score: Annotated[
        float,
        Field(
            strict=True,
            allow_inf_nan=False,
            ge=-LARGEST_SCORE,
            le=LARGEST_SCORE,
            validation_alias=AliasChoices("relevance_score", "score"),
        ),
    ]


class _Answer(BaseModel):
    results: list[_Result]


_ANSWER: TypeAdapter[_Answer | list[_Result]] = TypeAdapter(_Answer | list[_Result])


class HttpReranker:
    """A reranker on a server.

    Error messages contain only the status code of the server's answer, since its text may quote the key or users' text.
    """

    at_once = 8

    def __init__(self, url: str, model: str, api_key: str) -> None:
        """Creates the client. It sends no request until there is something to rerank. Raises RerankerInvalid."""
        self._url, self._model = url, model
        # Uncompressed, so that a small answer cannot grow large. A redirect would send key and texts elsewhere.
        headers = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
        try:
            host = httpx2.URL(url).host
            self._client = httpx2.AsyncClient(
                headers=headers,
                timeout=None,  # the second stage limits the whole call
                limits=httpx2.Limits(max_connections=2 * self.at_once),
                follow_redirects=False,
            )
        except (httpx2.InvalidURL, UnicodeEncodeError) as error:
            raise RerankerInvalid(f"its address or key cannot be sent ({type(error).__name__})") from None
        if not host:
            raise RerankerInvalid("its address names no host")
        self.name = f"{host} ({model})" if model else host

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        if self._model:
            body = {"model": self._model, "query": query, "documents": list(texts), "top_n": len(texts)}
            return await self._scores(body, len(texts))
        parts = [texts[start : start + TEI_TEXTS] for start in range(0, len(texts), TEI_TEXTS)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._scores({"query": query, "texts": list(part), "truncate": True}, len(part)))
                    for part in parts
                ]
        except* RerankingFailed as faults:
            raise _first(faults) from None
        return [score for task in tasks for score in task.result()]

    async def close(self) -> None:
        await self._client.aclose()

    async def _scores(self, body: Json, count: int) -> list[float]:
        read = bytearray()
        try:
            async with self._client.stream("POST", self._url, json=body) as response:
                if response.status_code != httpx2.codes.OK:
                    raise RerankingFailed(f"The reranker answered {response.status_code}.")
                async for piece in response.aiter_raw():  # in pieces, so that a large answer cannot fill the memory
                    read += piece
                    if len(read) > ANSWER_BYTES:
                        raise RerankingFailed(f"The reranker gave an answer of more than {ANSWER_BYTES} bytes.")
        except httpx2.HTTPError as error:
            raise RerankingFailed(f"The reranker cannot be reached, or broke off ({type(error).__name__}).") from None
        return await off_loop(len(read), _scores_of, bytes(read), count)


def _scores_of(answer: bytes, count: int) -> list[float]:
    """Returns the score of each text, in the order of the texts. Raises RerankingFailed if one is missing."""
    try:
        parsed = _ANSWER.validate_json(answer)
    except ValidationError:
        raise RerankingFailed("The reranker gave an answer that is not one of /rerank.") from None
    results = parsed.results if isinstance(parsed, _Answer) else parsed
    scores = {result.index: result.score for result in results}
    if len(results) != count or scores.keys() != set(range(count)):
        raise RerankingFailed(f"The reranker gave {len(results)} scores for {count} texts, or misnumbered them.")
    return [scores[index] for index in range(count)]


def _first(faults: BaseExceptionGroup[RerankingFailed]) -> BaseException:
    error = faults.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
