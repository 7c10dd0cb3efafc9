"""The whole service, in a process of its own, with a reranker that its settings name."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.embedding.onnx_reranker import open_reranker
from app.settings import RerankSettings, Settings
from tests.support.rerankers import model_folder
from tests.support.scripted import Reply, scripted_server
from tests.support.server import recalld, serving

KEY = "sk-very-secret-0123456789"
OWNER = {"agent_id": "a", "user_id": "u"}


def shortest_first(reply: Reply, asked: dict[str, Any]) -> bytes:
    results = [{"index": at, "relevance_score": 1 / (1 + len(text))} for at, text in enumerate(asked["documents"])]
    return json.dumps({"results": results}).encode()


def test_a_server_reranks_fails_and_recovers_and_nothing_private_is_logged(tmp_path: Path) -> None:
    with scripted_server(shortest_first) as reranker:
        settings = {
            "RECALLD_RERANKER": f"{reranker.url}/rerank",
            "RECALLD_RERANK_MODEL": "m",
            "RECALLD_RERANK_API_KEY": KEY,
            "RECALLD_RERANK_SECONDS": "30",
            "RECALLD_LOG_LEVEL": "debug",
        }
        with serving(tmp_path / "data", **settings) as server:
            for content in ("she likes private green tea", "tea"):
                assert server.client.post("/v1/memories", json={**OWNER, "content": content}).status_code == 201

            def found() -> Any:
                body = {**OWNER, "query": "does she like private tea, the green one?"}
                answer = server.client.post("/v1/memories/search", json=body)
                assert answer.status_code == 200, answer.text
                return answer.json()

            first = found()
            assert [item["memory"]["content"] for item in first["items"]] == ["tea", "she likes private green tea"]
            assert first["warnings"] == []
            reranker.then(Reply(503, body=f"{KEY}: 'she likes private green tea' is too long".encode()))
            second = found()
            assert second["items"][0]["memory"]["content"] == "she likes private green tea"
            assert [one["detail"] for one in second["warnings"]] == [
                "The reranker answered 503. The hits are in the order of the first stage."
            ]
            assert found()["warnings"] == []
            checks = server.client.get("/readyz").json()["checks"]
            assert checks["reranker"] == "127.0.0.1 (m)"
            assert server.stop() == 0
            written = server.log_text() + server.printed()
        assert {one.headers["authorization"] for one in reranker.seen} == {f"Bearer {KEY}"}
    assert "a search was not reranked" in written
    assert KEY not in written
    assert "private" not in written


def test_a_server_that_is_away_does_not_keep_the_service_from_starting(tmp_path: Path) -> None:
    with scripted_server() as gone:
        url = f"{gone.url}/rerank"
    with serving(tmp_path / "data", RECALLD_RERANKER=url, RECALLD_RERANK_SECONDS="30") as server:
        for content in ("she likes tea", "tea"):
            server.client.post("/v1/memories", json={**OWNER, "content": content})
        answer = server.client.post("/v1/memories/search", json={**OWNER, "query": "does she like tea?"}).json()
        assert len(answer["items"]) == 2
        assert [one["code"] for one in answer["warnings"]] == ["reranker_unavailable"]


@pytest.mark.parametrize("graph", [None, "classes"])
def test_a_folder_that_holds_no_reranker_keeps_the_service_from_starting(tmp_path: Path, graph: str | None) -> None:
    folder = tmp_path / "nothing" if graph is None else model_folder(tmp_path / "models" / graph, graph)
    ended = recalld(tmp_path / "data", "serve", RECALLD_RERANKER=str(folder))
    assert ended.returncode == 1
    sentence = ended.stderr.splitlines()[-1]
    assert sentence.startswith("recalld: RECALLD_RERANKER names a reranker that cannot be used: ")
    assert str(folder) in sentence
    assert ("must hold tokenizer.json" if graph is None else "not one each") in sentence
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("url", ["http://", "https://user:password@a.example/rerank", "http://a b/rerank"])
def test_an_address_that_is_none_or_holds_a_password_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="RECALLD_RERANK_API_KEY"):
        Settings(reranker=url, _env_file=None)


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(RerankSettings.model_validate({"api_key": "secret"}))


@pytest.mark.anyio
async def test_without_the_setting_there_is_none() -> None:
    assert await open_reranker(Settings(_env_file=None)) is None
