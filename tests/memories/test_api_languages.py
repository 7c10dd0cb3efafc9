"""Text search in any script: by another form of a word, or by a part of it where no spaces are written."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.embedding.onnx import OnnxModel
from app.settings import Settings
from tests.support.memories import batch, found, shared_service

pytestmark = pytest.mark.anyio

TEXTS = {
    "German": "Ada fährt gern mit den schnellen Zügen über die Größenordnung",
    "Russian": "Ада любит зелёные яблоки и читает книги о кораблях",
    "Chinese": "她喜欢在早上喝绿茶，住在上海浦东新区",
    "Japanese": "彼女は東京都でコーヒーを毎朝飲みます",
    "Arabic": "تحب المعلمة قراءة الكتب القديمة في المكتبة",
    "Thai": "เธอชอบดื่มชาเขียวทุกเช้า",
    "Korean": "에이다는 매일 아침에 녹차를 마신다",
    "Hindi": "उसे सुबह हरी चाय पीना पसंद है",
    "Greek": "Η Άντα πίνει πράσινο τσάι το πρωί",
    "Turkish": "İSTANBUL'da yaşıyor",
}


@pytest.fixture(scope="module")
async def api(shared_settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    async with shared_service(shared_settings, model) as service:
        await batch(service.client, *({"content": content} for content in TEXTS.values()))
        yield service.client


@pytest.mark.parametrize(
    ("language", "query"),
    [
        ("German", "FÄHRT"),
        ("German", "fahrt"),
        ("German", "groessenordnung oder größenordnung"),
        ("Russian", "яблоко корабль"),
        ("Russian", "книга"),
        ("Russian", "ЯБЛОКАМИ"),
        ("Chinese", "绿茶"),
        ("Chinese", "浦东"),
        ("Chinese", "她住在哪里？上海"),
        ("Japanese", "コーヒー"),
        ("Japanese", "ｺｰﾋｰ"),
        ("Japanese", "東京"),
        ("Arabic", "كتب"),
        ("Arabic", "مكتبة"),
        ("Arabic", "الْمُعَلِّمَة"),
        ("Thai", "ชาเขียว"),
        ("Korean", "녹차"),
        ("Korean", "아침"),
        ("Hindi", "चाय"),
        ("Greek", "ΠΡΑΣΙΝΟ"),
        ("Turkish", "istanbul"),
    ],
)
async def test_a_word_in_another_form_is_found(api: httpx.AsyncClient, language: str, query: str) -> None:
    assert (await found(api, query, mode="text"))[:1] == [TEXTS[language]]


@pytest.mark.parametrize("language", TEXTS)
async def test_a_text_finds_itself_in_every_mode(api: httpx.AsyncClient, language: str) -> None:
    for mode in ("text", "hybrid", "vector"):
        assert (await found(api, TEXTS[language], mode=mode, record_access=False))[0] == TEXTS[language]


async def test_words_of_one_script_find_nothing_in_others(api: httpx.AsyncClient) -> None:
    assert await found(api, "zebra", mode="text") == []
    assert await found(api, "犬", mode="text") == []
