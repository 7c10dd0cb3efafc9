"""Emoji are words: a search by text finds them, however they are put together."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.embedding.onnx import OnnxModel
from app.settings import Settings
from tests.support.memories import batch, found, shared_service

pytestmark = pytest.mark.anyio

TEXTS = (
    "The release is out 🎉",
    "Thumbs up from the team 👍🏽",
    "I ❤️ the new office",
    "Works from home 👩‍💻",
    "Visited the grandparents 🇯🇵🇩🇪",
    "Cannot say 🤷‍♂️",
    "Fan of 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "Fan of 🏴󠁧󠁢󠁳󠁣󠁴󠁿",
)


@pytest.fixture(scope="module")
async def stocked(shared_settings: Settings, model: OnnxModel, anyio_backend: str) -> AsyncIterator[httpx.AsyncClient]:
    async with shared_service(shared_settings, model) as service:
        await batch(service.client, *({"content": text} for text in TEXTS))
        yield service.client


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("🎉", [TEXTS[0]]),
        ("🎉🎉", [TEXTS[0]]),
        ("👍", [TEXTS[1]]),
        ("👍🏿", [TEXTS[1]]),
        ("❤", [TEXTS[2]]),
        ("❤️", [TEXTS[2]]),
        ("👩‍💻", [TEXTS[3]]),
        ("💻", [TEXTS[3]]),
        ("🇩🇪", [TEXTS[4]]),
        ("🇯🇵", [TEXTS[4]]),
        ("🇵🇩", []),  # what stands between two flags is none
        ("🤷", [TEXTS[5]]),
        ("🤷‍♀️", [TEXTS[5]]),
        ("🏴󠁧󠁢󠁥󠁮󠁧󠁿", [TEXTS[6]]),
        ("🚀", []),
    ],
)
async def test_a_text_is_found_by_its_emoji(stocked: httpx.AsyncClient, query: str, texts: list[str]) -> None:
    assert await found(stocked, query, mode="text") == texts


async def test_words_and_emoji_stand_side_by_side(stocked: httpx.AsyncClient) -> None:
    assert (await found(stocked, "release🎉team", mode="text"))[0] == TEXTS[0]
