"""A client of `/rerank` endpoints, as of Jina, Cohere, vLLM and llama.cpp, or as of Text Embeddings Inference (TEI).

With a model's name it sends `{model, query, documents, top_n}` and reads `{results: [{index, relevance_score}]}`.
Cohere rejects unknown fields, so nothing else is sent. Without a name it uses TEI's own format: `{query, texts,
truncate}` → `[{index, score}]`.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import httpx2
from pydantic import AliasChoices, BaseModel, Field, TypeAdapter, ValidationError

from app.core.process import off_loop
from app.retrieval.reranking import RerankerInvalid, RerankingFailed

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

    async def _scores(self, body: dict[str, Any], count: int) -> list[float]:
        try:
            answer = await self._read(body)
        except httpx2.HTTPError as error:
            raise RerankingFailed(f"The reranker cannot be reached, or broke off ({type(error).__name__}).") from None
        return await off_loop(len(answer), _scores_of, answer, count)

    async def _read(self, body: dict[str, Any]) -> bytes:
        """Reads the answer in pieces, so that a large one cannot fill the memory."""
        read = bytearray()
        async with self._client.stream("POST", self._url, json=body) as response:
            if response.status_code != httpx2.codes.OK:
                raise RerankingFailed(f"The reranker answered {response.status_code}.")
            async for piece in response.aiter_raw():
                read += piece
                if len(read) > ANSWER_BYTES:
                    raise RerankingFailed(f"The reranker gave an answer of more than {ANSWER_BYTES} bytes.")
        return bytes(read)


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
