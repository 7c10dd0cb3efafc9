"""Embeddings from a server with OpenAI's API, and the retries of its calls."""

import math
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import httpx2
import numpy as np
import openai
from pydantic import BaseModel, ValidationError

from app.core.openai_client import Fault, client_options, headers, passes, reason, retry_after
from app.embedding.model import NO_PROMPTS, ExtraOptions, Vectors, by_characters, clipped, split, unit
from app.errors import EmbeddingUnavailable

ATTEMPTS = 4
FIRST_WAIT, LONGEST_WAIT = 0.25, 4.0
LONGEST_PAUSE = 60.0

T = TypeVar("T")
Attempt: TypeAlias = Callable[[float], T]


class Retrying:
    """Retries calls until a deadline. It is used from one thread.

    A call that fails for good starts a pause, in which other calls fail at once. Calls wait in line, so each of them
    would otherwise wait one deadline for a dead server. The pause lasts at least as long as the server made the call
    wait, so callers wait for a hanging server no more than half of the time.
    """

    def __init__(self, seconds: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Creates the retries. `seconds`: maximum duration of one call, waiting included."""
        self._seconds, self._sleep = seconds, sleep
        self._failed = 0  # failed calls in a row
        self._pause_ends = 0.0
        self._reason = ""

    def call(self, attempt: Attempt[T], *, harmless: Attempt[object] | None = None) -> T:
        """Runs `attempt` until it succeeds. It gets the seconds that are left, and raises `Fault` to be tried again.

        `harmless` is an attempt that succeeds if the server works. If it succeeds after a failure, the request itself
        is at fault (llama.cpp answers 500 to a text that is too long), and no pause starts. Raises
        EmbeddingUnavailable.
        """
        started = time.monotonic()
        if started < self._pause_ends:
            raise self._unavailable()
        deadline, slept = started + self._seconds, 0.0
        for tried in range(1, ATTEMPTS + 1):
            try:
                result = attempt(deadline - time.monotonic())
            except Fault as error:
                wait = _wait(tried, error.after)
                if tried == ATTEMPTS or time.monotonic() + wait >= deadline:
                    if error.after is None and _succeeds(harmless, deadline):
                        raise EmbeddingUnavailable(str(error)) from None
                    self._pause(error, time.monotonic() - started - slept)
                    break
                self._sleep(wait)
                slept += wait
            else:
                self._failed = 0
                return result
        raise self._unavailable()

    def _pause(self, error: Fault, kept_waiting: float) -> None:
        self._reason = str(error)
        own = min(2.0**self._failed, LONGEST_PAUSE / 2) * _between(0.75, 1)
        self._failed = min(self._failed + 1, 10)
        self._pause_ends = time.monotonic() + min(max(error.after or 0, own, kept_waiting), LONGEST_PAUSE)

    def _unavailable(self) -> EmbeddingUnavailable:
        left = self._pause_ends - time.monotonic()
        return EmbeddingUnavailable(self._reason, retry_after=max(1, math.ceil(left)))


def _succeeds(harmless: Attempt[object] | None, deadline: float) -> bool:
    left = deadline - time.monotonic()
    if harmless is None or left <= 0:
        return False
    try:
        harmless(left)
    except (Fault, EmbeddingUnavailable):
        return False
    return True


def _wait(tried: int, after: float | None) -> float:
    """Returns the seconds before the next attempt: at least what the server asked for, and partly random."""
    if after is not None:
        return after + _between(0, FIRST_WAIT)
    return _between(0.5, 1) * min(FIRST_WAIT * 2.0 ** (tried - 1), LONGEST_WAIT)


def _between(low: float, high: float) -> float:
    return random.uniform(low, high)  # noqa: S311 (not a secret)


CONNECT_SECONDS = 5.0
SHORTEST_TRY = 0.05
PROBE = "dimension"
ANSWER_BYTES = 1 << 20  # maximum for each text, enough for 16,000 numbers with all digits


class _Row(BaseModel):
    index: int
    embedding: list[float]


class _Answer(BaseModel):
    data: list[_Row]


class OpenAIModel:
    """A model on a server. Each batch is retried within the deadline.

    Error messages contain only the status and error code of a server, since its text may quote the key or users' text.
    """

    piece_tokens = None
    runs_beside_itself = False
    prompts = NO_PROMPTS
    provider = "openai"
    """Whose interface it speaks, as traces tell it."""

    def __init__(self, model: str, options: ExtraOptions | None = None) -> None:
        """Creates the model. Asks the server for one vector to get the dimension, unless it is set.

        Raises EmbeddingUnavailable.
        """
        options = options or ExtraOptions()
        self._model, self._server, self._chars = model, options.server, options.text_chars
        self._retrying = Retrying(self._server.timeout_seconds)
        self._client = openai.OpenAI(
            **client_options(self._server.base_url, self._server.api_key),
            http_client=httpx2.Client(follow_redirects=False),  # a redirect would send key and texts elsewhere
        )
        self.dim = self._server.dimensions
        if self.dim == 0:
            try:
                self.dim = int(self.encode([PROBE]).shape[1])
            except EmbeddingUnavailable as error:
                self.close()
                raise EmbeddingUnavailable(f"{self._server.base_url}: {error.detail}") from None
        self.name = f"{model}:openai-{self.dim}"

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def encode(self, texts: Sequence[str]) -> Vectors:
        size = self._server.batch_texts
        # Servers reject an empty text.
        clean = [clipped(text, self._chars) or " " for text in texts]
        parts: list[Vectors] = []
        for start in range(0, len(clean), size):
            part = clean[start : start + size]
            answer = self._retrying.call(partial(self._attempt, part), harmless=partial(self._attempt, [PROBE]))
            parts.append(self._vectors(answer, len(part)))
        return unit(np.concatenate(parts))

    def split(self, text: str) -> list[str]:
        return split(text, by_characters(self._chars))

    def _attempt(self, texts: list[str], seconds: float) -> _Answer:
        seconds = max(seconds, SHORTEST_TRY)
        ends, limit = time.monotonic() + seconds, ANSWER_BYTES * len(texts)
        body = bytearray()
        try:
            with self._client.embeddings.with_streaming_response.create(
                input=texts,
                model=self._model,
                dimensions=self._server.dimensions or openai.omit,
                encoding_format="float",  # base64 is smaller, but not every server supports it
                extra_headers=headers(self._server.api_key),
                timeout=httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
            ) as response:
                # in pieces, because a read timeout limits the wait for each piece and not for all of them
                for piece in response.iter_bytes():
                    body += piece
                    if time.monotonic() > ends:
                        raise Fault("the embedding server did not finish its answer in time")
                    if len(body) > limit:
                        raise EmbeddingUnavailable(f"the embedding server gave an answer of more than {limit} bytes")
            return _Answer.model_validate_json(bytes(body))
        except ValidationError:
            raise Fault("the embedding server gave an answer that is not one of /embeddings") from None
        except (openai.APITimeoutError, httpx2.TimeoutException):
            raise Fault("the embedding server did not answer in time") from None
        except openai.APIStatusError as error:
            detail = f"the embedding server {reason(error, self._server.api_key)}"
            if passes(error.status_code):
                raise Fault(detail, retry_after(error.response.headers.get("retry-after"))) from None
            raise EmbeddingUnavailable(detail) from None
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            kind = type(error.__cause__ or error).__name__
            raise Fault(f"the embedding server cannot be reached, or broke off ({kind})") from None

    def _vectors(self, answer: _Answer, count: int) -> Vectors:
        rows = sorted(answer.data, key=lambda row: row.index)
        if [row.index for row in rows] != list(range(count)):
            raise EmbeddingUnavailable(
                f"the embedding server gave {len(rows)} vectors for {count} texts, or misnumbered"
            )
        sizes = {len(row.embedding) for row in rows}
        if len(sizes) != 1 or (self.dim and sizes != {self.dim}) or 0 in sizes:
            wanted = self.dim or "the same number of"
            raise EmbeddingUnavailable(f"the embedding server gave vectors of {sorted(sizes)} dimensions, not {wanted}")
        with np.errstate(over="ignore"):  # a number that is too large for a float32 becomes infinite
            vectors = np.array([row.embedding for row in rows], np.float64).astype(np.float32)
        if not np.isfinite(vectors).all():
            raise EmbeddingUnavailable("the embedding server gave a vector that is not finite")
        if not vectors.any(axis=1).all():
            raise EmbeddingUnavailable("the embedding server gave a vector of zeros")
        return vectors
