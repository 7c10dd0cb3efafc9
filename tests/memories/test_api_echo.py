"""A question that was asked before does not outrank what answers it, however often it was asked."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.embedding.onnx import OnnxModel
from app.settings import Settings
from tests.support.memories import found, shared_service

pytestmark = pytest.mark.anyio

STORIES = {
    "English": (
        "I moved to Boston in May and I still miss New York pizza.",
        "Which city do I live in?",
        "Of course I know!",
        "What city am I living in these days?",
    ),
    "German": (
        "Im Mai bin ich nach Freiburg gezogen, die Stadt gefällt mir.",
        "In welcher Stadt wohne ich?",
        "Natürlich weiß ich das!",
        "In welcher Stadt wohne ich eigentlich?",
    ),
    "Spanish": (
        "En mayo me mudé a Valencia, ahora vivo en esa ciudad.",
        "¿En qué ciudad vivo?",
        "¡Claro que lo sé!",
        "¿En qué ciudad vivo ahora?",
    ),
    "French": (
        "En mai, j'ai déménagé à Nantes, j'habite cette ville depuis.",
        "Dans quelle ville est-ce que j'habite ?",
        "Bien sûr que je le sais !",
        "Dans quelle ville j'habite maintenant ?",
    ),
    "Chinese": (
        "我五月份搬到了杭州这个城市，现在住在西湖边。",
        "我住在哪个城市？",
        "我当然记得！",
        "我现在住在哪个城市？",
    ),
}


@pytest.fixture(scope="module")
async def api(shared_settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    async with shared_service(shared_settings, model) as service:
        for language, (told, question, reply, _) in STORIES.items():
            talks = [(told, "Noted!"), *[(question, reply)] * 6]
            for number, (user, assistant) in enumerate(talks):
                said = [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
                body = {"agent_id": "a", "user_id": language, "messages": said}
                answer = await service.client.post(f"/v1/sessions/{language}-{number}/messages", json=body)
                assert answer.status_code == 201
        yield service.client


@pytest.mark.parametrize("language", STORIES)
async def test_the_answer_comes_before_the_same_question_asked_six_times(api: httpx.AsyncClient, language: str) -> None:
    told, question, _, _ = STORIES[language]
    assert (await found(api, question, user_id=language))[0] == told


@pytest.mark.parametrize("language", STORIES)
async def test_the_answer_comes_before_a_question_in_other_words(api: httpx.AsyncClient, language: str) -> None:
    told, _, _, reworded = STORIES[language]
    assert (await found(api, reworded, user_id=language))[0] == told


@pytest.mark.parametrize("language", STORIES)
async def test_the_answer_is_in_a_default_prompt(api: httpx.AsyncClient, language: str) -> None:
    told, question, _, _ = STORIES[language]
    body = {"agent_id": "a", "user_id": language, "session_id": f"{language}-now", "query": question}
    answer = await api.post("/v1/context", json=body)
    assert answer.status_code == 200
    assert told in answer.json()["text"]
