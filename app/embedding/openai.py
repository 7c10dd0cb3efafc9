"""An embedding server with OpenAI's API, and how its calls are tried again."""

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import httpx2
import numpy as np
import openai
from pydantic import BaseModel, ValidationError

from app.core.openai_client import headers, passes, reason, retry_after
from app.embedding.batching import by_characters, split
from app.embedding.model import NO_PROMPTS, ExtraOptions, Vectors, clipped, estimated_tokens, unit
from app.errors import EmbeddingUnavailable

ATTEMPTS = 4
FIRST_WAIT, LONGEST_WAIT = 0.25, 4.0
LONGEST_PAUSE = 60.0

T = TypeVar("T")
Attempt: TypeAlias = Callable[[float], T]


class Fault(Exception):
    """An attempt failed in a way that passes. `after`: the seconds that the server asked to be left alone."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Retrying:
    """Called from one thread.

    A call that fails for good opens a pause, in which others fail at once: they stand in line behind each other, and
    would otherwise wait for a dead server one deadline each. The pause lasts at least as long as the server kept the
    call waiting, so that callers wait for a server that hangs no more than half of the time.
    """

    def __init__(self, seconds: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """`seconds`: the most that one call may take, waiting included."""
        self._seconds, self._sleep = seconds, sleep
        self._failed = 0  # calls in a row
        self._pause_ends = 0.0
        self._reason = ""

    def call(self, attempt: Attempt[T], *, harmless: Attempt[object] | None = None) -> T:
        """`attempt` is given the seconds left and raises `Fault` for another try. Raises `EmbeddingUnavailable`.

        `harmless` is an attempt that succeeds wherever the server is well: then it is what was asked that is at fault
        (llama.cpp says 500 to a text that is too long), and others need not pause for it.
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
    """Never less than was asked for, and never the same for all who wait."""
    if after is not None:
        return after + _between(0, FIRST_WAIT)
    return _between(0.5, 1) * min(FIRST_WAIT * 2.0 ** (tried - 1), LONGEST_WAIT)


def _between(low: float, high: float) -> float:
    return random.uniform(low, high)  # noqa: S311 (not a secret)


CONNECT_SECONDS = 5.0
SHORTEST_TRY = 0.05
PROBE = "dimension"
ANSWER_BYTES = 1 << 20  # for one text, and some: 16,000 numbers in full


class _Row(BaseModel):
    index: int
    embedding: list[float]


class _Answer(BaseModel):
    data: list[_Row]


class OpenAIModel:
    """Each batch is asked for again within the deadline; what a server says of an error is not passed on but for its
    code, since it may quote the key or somebody's text."""

    piece_tokens = None
    prompts = NO_PROMPTS

    def __init__(self, model: str, options: ExtraOptions | None = None) -> None:
        """Asks the server for one vector to learn the dimension, unless it is set. Raises `EmbeddingUnavailable`."""
        options = options or ExtraOptions()
        self._model, self._server, self._chars = model, options.server, options.text_chars
        self._retrying = Retrying(self._server.timeout_seconds)
        self._client = _client(options)
        self._headers = headers(options.server.api_key)  # with each request, too: only there may a key be left out
        self.dim = self._server.dimensions
        if self.dim == 0:
            try:
                self.dim = int(self.encode([PROBE]).shape[1])
            except EmbeddingUnavailable as error:
                self.close()
                raise EmbeddingUnavailable(f"{self._server.base_url}: {error.detail}") from None
        self.name = f"{model}:openai-{self.dim}"

    def close(self) -> None:
        self._client.close()

    def lengths(self, texts: Sequence[str]) -> list[int]:
        return [estimated_tokens(text[: self._chars]) for text in texts]

    def encode(self, texts: Sequence[str]) -> Vectors:
        size = self._server.batch_texts
        # Servers refuse an empty text.
        clean = [clipped(text, self._chars) or " " for text in texts]
        parts = [self._request(clean[start : start + size]) for start in range(0, len(clean), size)]
        return unit(np.concatenate(parts))

    def split(self, text: str) -> list[str]:
        return split(text, by_characters(self._chars))

    def _request(self, texts: list[str]) -> Vectors:
        answer = self._retrying.call(
            lambda seconds: self._attempt(texts, seconds), harmless=lambda seconds: self._attempt([PROBE], seconds)
        )
        return self._vectors(answer, len(texts))

    def _attempt(self, texts: list[str], seconds: float) -> _Answer:
        try:
            return _Answer.model_validate_json(self._post(texts, max(seconds, SHORTEST_TRY)))
        except ValidationError:
            raise Fault("the embedding server gave an answer that is not one of /embeddings") from None
        except (openai.APITimeoutError, httpx2.TimeoutException):
            raise Fault("the embedding server did not answer in time") from None
        except openai.APIStatusError as error:
            raise self._refusal(error) from None
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            kind = type(error.__cause__ or error).__name__
            raise Fault(f"the embedding server cannot be reached, or broke off ({kind})") from None

    def _post(self, texts: list[str], seconds: float) -> bytes:
        """Read in pieces: a read timeout bounds the wait for each, not for all of them."""
        ends = time.monotonic() + seconds
        limit = ANSWER_BYTES * len(texts)
        body = bytearray()
        with self._client.embeddings.with_streaming_response.create(
            input=texts,
            model=self._model,
            dimensions=self._server.dimensions or openai.omit,
            encoding_format="float",  # base64 is smaller, and not every server knows it
            extra_headers=self._headers,
            timeout=httpx2.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
        ) as response:
            for piece in response.iter_bytes():
                body += piece
                if time.monotonic() > ends:
                    raise Fault("the embedding server did not finish its answer in time")
                if len(body) > limit:
                    raise EmbeddingUnavailable(f"the embedding server gave an answer of more than {limit} bytes")
        return bytes(body)

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
        with np.errstate(over="ignore"):  # too large for a float32 is as good as infinite
            vectors = np.array([row.embedding for row in rows], np.float64).astype(np.float32)
        if not np.isfinite(vectors).all():
            raise EmbeddingUnavailable("the embedding server gave a vector that is not finite")
        if not vectors.any(axis=1).all():
            raise EmbeddingUnavailable("the embedding server gave a vector of zeros")
        return vectors

    def _refusal(self, error: openai.APIStatusError) -> Exception:
        report = f"the embedding server {reason(error, self._server.api_key)}"
        if passes(error.status_code):
            return Fault(report, retry_after(error.response.headers.get("retry-after")))
        return EmbeddingUnavailable(report)


def _client(options: ExtraOptions) -> openai.OpenAI:
    """By the settings alone: the library's own variables (OPENAI_API_KEY, …) were set for another server, perhaps."""
    return openai.OpenAI(
        api_key=options.server.api_key or "none",
        base_url=options.server.base_url,
        default_headers=headers(options.server.api_key),
        max_retries=0,  # ours end at a deadline
        http_client=httpx2.Client(follow_redirects=False),  # a redirect would take key and texts elsewhere
    )
