"""A `/rerank` endpoint against a real HTTP server that misbehaves as it is told."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from app.embedding.reranking import (
    ANSWER_BYTES,
    TEI_TEXTS,
    HttpReranker,
    RerankerInvalid,
    RerankingFailed,
    RerankingLate,
    SecondStage,
)
from tests.support.scripted import Reply, ScriptedServer, free_port, scripted_server

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"


def ranks(reply: Reply, asked: dict[str, Any]) -> bytes:
    """Scores by length, best first, as the server that is asked so does."""
    texts = asked.get("documents") or asked["texts"]
    name = "relevance_score" if "documents" in asked else "score"
    results = [{"index": index, name: len(text) / 4} for index, text in enumerate(texts)]
    results.sort(key=lambda one: -one[name])
    return json.dumps({"results": results, "usage": {"total_tokens": 9}} if "documents" in asked else results).encode()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(ranks) as server:
        yield server


@pytest.fixture
async def jina(server: ScriptedServer) -> AsyncIterator[HttpReranker]:
    reranker = HttpReranker(f"{server.url}/rerank", "jina-reranker-v2", KEY)
    yield reranker
    await reranker.close()


@pytest.fixture
async def tei(server: ScriptedServer) -> AsyncIterator[HttpReranker]:
    reranker = HttpReranker(f"{server.url}/rerank", "", "")
    yield reranker
    await reranker.close()


async def test_with_a_model_it_asks_as_jina_and_cohere_want_it(server: ScriptedServer, jina: HttpReranker) -> None:
    assert await jina.score("which?", ["a", "abc", ""]) == [0.25, 0.75, 0.0]
    (seen,) = server.seen
    assert seen.path == "/v1/rerank"
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    # Nothing else: Cohere answers 422 to a field that it does not know.
    assert seen.body == {"model": "jina-reranker-v2", "query": "which?", "documents": ["a", "abc", ""], "top_n": 3}


async def test_without_a_model_it_asks_as_tei_wants_it(server: ScriptedServer, tei: HttpReranker) -> None:
    assert await tei.score("which?", ["a", "abc"]) == [0.25, 0.75]
    (seen,) = server.seen
    assert "authorization" not in seen.headers
    assert seen.body == {"query": "which?", "texts": ["a", "abc"], "truncate": True}


async def test_tei_gets_no_more_texts_in_a_request_than_it_takes(server: ScriptedServer, tei: HttpReranker) -> None:
    texts = ["x" * n for n in range(50)]
    assert await tei.score("q", texts) == [n / 4 for n in range(50)]
    assert sorted(len(seen.body["texts"]) for seen in server.seen) == [50 - TEI_TEXTS, TEI_TEXTS]


async def test_of_several_requests_one_that_fails_fails_all(server: ScriptedServer, tei: HttpReranker) -> None:
    server.then(Reply(), Reply(500))
    with pytest.raises(RerankingFailed, match="answered 500"):
        await tei.score("q", ["x"] * 50)


def results(*pairs: tuple[Any, Any]) -> bytes:
    return json.dumps({"results": [{"index": index, "relevance_score": score} for index, score in pairs]}).encode()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(500), "answered 500"),
        (Reply(401), "answered 401"),
        (Reply(429, {"Retry-After": "40"}), "answered 429"),
        (Reply(204), "answered 204"),
        (Reply(body=b"<html>not JSON</html>"), "not one of /rerank"),
        (Reply(body=b'{"results": ['), "not one of /rerank"),
        (Reply(body=b""), "not one of /rerank"),
        (Reply(body=b"null"), "not one of /rerank"),
        (Reply(body=b'{"results": null}'), "not one of /rerank"),
        (Reply(body=b"[" * 100_000), "not one of /rerank"),
        (Reply(body=results((0, "0.5"), (1, 1))), "not one of /rerank"),
        (Reply(body=results((0, None), (1, 1))), "not one of /rerank"),
        (Reply(body=results((0, True), (1, 1))), "not one of /rerank"),
        (Reply(body=results((0, float("nan")), (1, 1))), "not one of /rerank"),
        (Reply(body=results((0, float("inf")), (1, 1))), "not one of /rerank"),
        (Reply(body=b'{"results": [{"index": 0, "relevance_score": 1e999}]}'), "not one of /rerank"),
        (Reply(body=results((0, 1e300), (1, 1))), "not one of /rerank"),
        (Reply(body=results((-1, 0.5), (1, 1))), "not one of /rerank"),
        (Reply(body=results((0.5, 0.5), (1, 1))), "not one of /rerank"),
        (Reply(body=results((0, 0.5))), "1 scores for 2 texts"),
        (Reply(body=results()), "0 scores for 2 texts"),
        (Reply(body=results((0, 1), (1, 2), (2, 3))), "3 scores for 2 texts"),
        (Reply(body=results((0, 1), (2, 2))), "2 scores for 2 texts, or misnumbered"),
        (Reply(body=results((0, 1), (2**80, 2))), "not one of /rerank|misnumbered"),
        (Reply(body=results((1, 1), (1, 2))), "2 scores for 2 texts, or misnumbered"),
        (Reply(body=results((0, 1), (1, 2), (1, 2))), "3 scores for 2 texts, or misnumbered"),
        (Reply(cut=True), "broke off"),
    ],
)
async def test_what_is_no_answer_is_refused_and_the_next_one_counts(
    server: ScriptedServer, jina: HttpReranker, reply: Reply, reason: str
) -> None:
    server.then(reply)
    with pytest.raises(RerankingFailed, match=reason):
        await jina.score("q", ["one", "three"])
    assert await jina.score("q", ["one", "three"]) == [0.75, 1.25]


async def test_a_huge_answer_is_not_read_to_its_end(server: ScriptedServer, jina: HttpReranker) -> None:
    server.then(Reply(body=b" " * (4 * ANSWER_BYTES)))
    with pytest.raises(RerankingFailed, match=f"more than {ANSWER_BYTES} bytes"):
        await jina.score("q", ["one"])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(server: ScriptedServer, jina: HttpReranker, status: int) -> None:
    with scripted_server(ranks) as other:
        server.then(Reply(status, {"Location": f"{other.url}/rerank"}))
        with pytest.raises(RerankingFailed, match=f"answered {status}"):
            await jina.score("q", ["one"])
        assert other.seen == []


@pytest.mark.parametrize("trickling", [False, True])
async def test_an_answer_that_does_not_come_ends_at_the_deadline(
    server: ScriptedServer, jina: HttpReranker, trickling: bool
) -> None:
    server.then(Reply(trickle=5) if trickling else Reply(delay=30))
    with pytest.raises(RerankingLate):
        await SecondStage(jina, seconds=0.3, hits=50).scores("q", ["one", "two"])
    assert await jina.score("q", ["one"]) == [0.75]


async def test_nobody_there_is_a_failure() -> None:
    reranker = HttpReranker(f"http://127.0.0.1:{free_port()}/rerank", "m", "")
    with pytest.raises(RerankingFailed, match="cannot be reached"):
        await reranker.score("q", ["one"])
    await reranker.close()


async def test_neither_the_key_nor_a_text_is_told_or_logged(
    server: ScriptedServer, jina: HttpReranker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = {"message": f"key {KEY} is bad for 'my private text'"}
    stage = SecondStage(jina, seconds=30, hits=50)
    told = [f"{jina!r} {jina.name} {stage.state}"]
    for reply in (Reply(401, body=json.dumps(said).encode()), Reply(body=json.dumps(said).encode())):
        server.then(reply)
        with pytest.raises(RerankingFailed) as caught:
            await stage.scores("my private query", ["my private text"])
        told.append(f"{caught.value!r} {caught.value.__cause__!r}")
    written = " ".join([*told, caplog.text, *(str(vars(record)) for record in caplog.records)])
    assert "answered 401" in written
    assert KEY not in written
    assert "private" not in written


async def test_its_name_tells_the_host_and_the_model_alone() -> None:
    reranker = HttpReranker("https://reranker.example/v1/rerank?token=secret", "m", KEY)
    assert reranker.name == "reranker.example (m)"
    await reranker.close()


@pytest.mark.parametrize(
    ("url", "key"), [("http:///rerank", ""), ("http://a.example/\x00", ""), ("http://a.example", "schlüssel€")]
)
def test_an_address_or_a_key_that_cannot_be_sent_is_refused_without_being_told(url: str, key: str) -> None:
    with pytest.raises(RerankerInvalid) as caught:
        HttpReranker(url, "", key)
    assert "schl" not in str(caught.value)


async def test_several_calls_are_asked_at_the_same_time() -> None:
    barrier = threading.Barrier(2, timeout=60)

    def together(reply: Reply, asked: dict[str, Any]) -> bytes:
        barrier.wait()
        return ranks(reply, asked)

    with scripted_server(together) as both:
        reranker = HttpReranker(f"{both.url}/rerank", "m", "")
        stage = SecondStage(reranker, seconds=60, hits=50)
        answers = await asyncio.gather(stage.scores("q", ["one"]), stage.scores("q", ["three"]))
        assert list(answers) == [[0.75], [1.25]]
        await stage.close()
