"""The `openai:` runtime against a real HTTP server that misbehaves as it is told."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest

from app.embedding.factory import load_any, open_embedder
from app.embedding.model import ExtraOptions, Server
from app.embedding.openai import OpenAIModel
from app.errors import EmbeddingUnavailable
from tests.support.scripted import DIM, Reply, ScriptedServer, free_port, scripted_server, vector

KEY = "sk-very-secret-0123456789"

Opener = Callable[..., OpenAIModel]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


@pytest.fixture
def connect(server: ScriptedServer) -> Iterator[Opener]:
    made: list[OpenAIModel] = []

    def connect(*, text_chars: int = 8192, **given: Any) -> OpenAIModel:
        fields = {"base_url": server.url, "api_key": KEY, "timeout_seconds": 3.0, **given}
        made.append(OpenAIModel("small", ExtraOptions(text_chars, Server(**fields))))
        return made[-1]

    yield connect
    for model in made:
        model.close()


def directions(texts: list[str], dim: int = DIM) -> Any:
    rows = np.array([vector(text, dim) for text in texts], np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_vectors_come_in_order_and_of_unit_length(server: ScriptedServer, connect: Opener) -> None:
    model = connect()
    texts = ["one", "two words", "", "a\ud800b"]
    rows = model.encode(texts)
    assert (model.dim, model.name) == (DIM, f"small:openai-{DIM}")
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, directions(["one", "two words", " ", "a?b"]), atol=1e-6)
    asked = server.seen[-1]
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"input": ["one", "two words", " ", "a?b"], "model": "small", "encoding_format": "float"}


def test_only_the_settings_say_where_to_and_with_which_key(
    server: ScriptedServer, connect: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL"):
        monkeypatch.setenv(f"OPENAI_{name}", "http://other.invalid")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer other.invalid")
    connect(api_key="")
    connect()
    assert [one.headers.get("authorization") for one in server.seen] == [None, f"Bearer {KEY}"]
    assert "other.invalid" not in str([one.headers for one in server.seen])


def test_a_set_dimension_is_asked_for_and_nothing_is_asked_at_the_start(
    server: ScriptedServer, connect: Opener
) -> None:
    model = connect(dimensions=6)
    assert (server.seen, model.dim, model.name) == ([], 6, "small:openai-6")
    server.then(Reply(dim=6))
    assert model.encode(["a"]).shape == (1, 6)
    assert server.seen[0].body["dimensions"] == 6


def test_requests_hold_so_many_texts_at_most(server: ScriptedServer, connect: Opener) -> None:
    model = connect(batch_texts=3)
    texts = ["x" * (n + 1) for n in range(8)]
    np.testing.assert_allclose(model.encode(texts), directions(texts), atol=1e-6)
    assert [len(one.body["input"]) for one in server.seen[1:]] == [3, 3, 2]


def test_a_long_text_is_cut(server: ScriptedServer, connect: Opener) -> None:
    model = connect(text_chars=10)
    model.encode(["y" * 50])
    assert server.seen[-1].body["input"] == ["y" * 10]


@pytest.mark.parametrize(
    "first",
    [
        Reply(500),
        Reply(503, body=b"<html>busy</html>"),
        Reply(429),
        Reply(408),
        Reply(body=b"<html>not JSON</html>"),
        Reply(body=b'{"data": null}'),
        Reply(body=b'{"data": [{"index": 0, "embedding": "AAAA"}]}'),
        Reply(body=b""),
        Reply(cut=True),
    ],
    ids=["500", "503", "429", "408", "html", "null", "base64", "empty", "cut"],
)
def test_what_passes_is_tried_again(server: ScriptedServer, connect: Opener, first: Reply) -> None:
    model = connect()
    server.then(first)
    np.testing.assert_allclose(model.encode(["again"]), directions(["again"]), atol=1e-6)
    assert len(server.seen) == 3


@pytest.mark.parametrize("kind", ["seconds", "date"])
def test_retry_after_is_waited(server: ScriptedServer, connect: Opener, kind: str) -> None:
    model = connect(timeout_seconds=60.0)
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    server.then(Reply(429, {"Retry-After": "1" if kind == "seconds" else date}))
    model.encode(["later"])
    waited = server.seen[-1].at - server.seen[-2].at
    assert waited >= (1.0 if kind == "seconds" else 0.9)


def test_a_retry_after_beyond_the_deadline_fails_at_once_and_is_kept(server: ScriptedServer, connect: Opener) -> None:
    model = connect()
    server.then(
        Reply(429, {"Retry-After": "40"}, b'{"error": {"code": "rate_limit_exceeded", "message": "slow down"}}')
    )
    for _ in range(20):
        with pytest.raises(EmbeddingUnavailable, match=r"answered 429 \(rate_limit_exceeded\)") as caught:
            model.encode(["no"])
        assert caught.value.retry_after in range(30, 41)
    assert len(server.seen) == 2, "nobody waited and asked again"


def test_a_server_that_stays_down_costs_one_deadline_at_most(server: ScriptedServer, connect: Opener) -> None:
    model = connect(timeout_seconds=30.0)  # far more than the waits: a slow machine makes all four attempts too
    server.then(*[Reply(500, {}, b'{"error": {"type": "server_error"}}', delay=0.5)] * 5)
    with pytest.raises(EmbeddingUnavailable, match=r"answered 500 \(server_error\)"):
        model.encode(["a"])
    assert [one.body["input"] for one in server.seen[1:]] == [["a"]] * 4 + [["dimension"]]
    with pytest.raises(EmbeddingUnavailable, match="answered 500"):
        model.encode(["b"])
    assert len(server.seen) == 6, "it was not asked: the pause lasts as long as it kept us waiting"
    hangs = time.monotonic() + 60
    while server.seen[-1].body["input"] != ["c"]:
        assert time.monotonic() < hangs
        with suppress(EmbeddingUnavailable):
            assert model.encode(["c"]).shape == (1, DIM)
        time.sleep(0.05)


def test_a_text_that_the_server_breaks_on_does_not_hold_up_others(server: ScriptedServer, connect: Opener) -> None:
    model = connect(timeout_seconds=30.0)
    server.then(*[Reply(500)] * 4)
    with pytest.raises(EmbeddingUnavailable, match="answered 500"):
        model.encode(["too long for it"])
    assert model.encode(["b"]).shape == (1, DIM)


@pytest.mark.parametrize("reply", [Reply(delay=60), Reply(trickle=0.02)], ids=["silent", "trickling"])
def test_an_answer_that_does_not_come_is_not_waited_for(server: ScriptedServer, connect: Opener, reply: Reply) -> None:
    model = connect(timeout_seconds=0.5)
    server.then(reply)
    with pytest.raises(EmbeddingUnavailable, match="in time"):
        model.encode(["a" * 30] * 4)


def test_nobody_there_is_said_with_the_address_at_the_start() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(EmbeddingUnavailable, match=rf"{url}: the embedding server cannot be reached"):
        OpenAIModel("small", ExtraOptions(server=Server(base_url=url, timeout_seconds=0.5)))


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(400), "answered 400"),
        (Reply(401, body=b'{"error": {"code": "invalid_api_key"}}'), r"answered 401 \(invalid_api_key\)"),
        (Reply(404, body=b'{"error": {"code": "model_not_found"}}'), r"answered 404 \(model_not_found\)"),
        (Reply(413), "answered 413"),
        (Reply(dim=DIM + 1), r"vectors of \[5\] dimensions, not 4"),
        (Reply(rows=[vector("a"), vector("b", 3)]), r"vectors of \[3, 4\] dimensions"),
        (Reply(rows=[vector("a")]), "1 vectors for 2 texts"),
        (Reply(rows=[vector("a")] * 3), "3 vectors for 2 texts"),
        (Reply(rows=[]), "0 vectors for 2 texts"),
        (Reply(rows=[vector("a"), [0.0] * DIM]), "a vector of zeros"),
        (Reply(rows=[vector("a"), [float("nan")] * DIM]), "not finite"),
        (Reply(rows=[vector("a"), [1e300] * DIM]), "not finite"),
        (Reply(body=b'{"data": [{"index": 0, "embedding": [1,1,1,1]}, {"index": 0, "embedding": [1,1,1,1]}]}'), "misn"),
        (Reply(body=b" " * (3 << 20)), "more than 2097152 bytes"),
    ],
    ids=["400", "401", "404", "413", "dim", "mixed", "few", "many", "none", "zero", "nan", "huge", "twice", "flood"],
)
def test_what_does_not_pass_is_said_at_once(server: ScriptedServer, connect: Opener, reply: Reply, reason: str) -> None:
    model = connect()
    server.then(reply)
    with pytest.raises(EmbeddingUnavailable, match=reason):
        model.encode(["one", "two"])
    assert len(server.seen) == 2
    assert model.encode(["one", "two"]).shape == (2, DIM)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(server: ScriptedServer, connect: Opener, status: int) -> None:
    with scripted_server() as other:
        server.then(Reply(status, {"Location": f"{other.url}/embeddings"}))
        with pytest.raises(EmbeddingUnavailable, match=f"answered {status}, which is not followed"):
            connect()
        assert other.seen == []


def test_neither_the_key_nor_a_text_is_told_or_logged(
    server: ScriptedServer, connect: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    model = connect(timeout_seconds=1.0)
    said = {"error": {"message": f"key {KEY} is bad for 'my private text'", "code": KEY, "type": "my private text"}}
    told = []
    for status in (401, 500):
        server.then(*[Reply(status, body=json.dumps(said).encode())] * (1 if status == 401 else 5))
        with pytest.raises(EmbeddingUnavailable) as caught:
            model.encode(["my private text"])
        told.append(f"{caught.value!r} {caught.value.__cause__!r} {model!r}")
    written = " ".join([*told, repr(Server(api_key=KEY)), caplog.text, *(str(vars(one)) for one in caplog.records)])
    assert "answered 401" in written
    assert KEY not in written
    assert "private" not in written


@pytest.mark.anyio
async def test_behind_the_embedder_it_serves_queries_and_one_bad_text_harms_nobody_else(
    server: ScriptedServer,
) -> None:
    embedder = await open_embedder("openai:small", options=ExtraOptions(server=Server(base_url=server.url)))
    try:
        np.testing.assert_allclose(await embedder.embed_query("who?"), directions(["who?"])[0], atol=1e-6)
        await embedder.embed_query("who?")
        assert len(server.seen) == 2  # the second came from the cache
        server.then(Reply(400))
        with pytest.raises(EmbeddingUnavailable, match="answered 400"):
            await embedder.embed_texts(["bad"])
        assert (await embedder.embed_texts(["x"] * 300)).shape == (300, DIM)
        assert embedder.ready
    finally:
        await embedder.close()


def test_the_setting_chooses_it(server: ScriptedServer) -> None:
    model = load_any("openai:nomic-ai/embed:v1.5", options=ExtraOptions(server=Server(base_url=server.url)))
    assert isinstance(model, OpenAIModel)
    assert model.name == f"nomic-ai/embed:v1.5:openai-{DIM}"
    assert server.seen[0].body["model"] == "nomic-ai/embed:v1.5"
    model.close()
