"""A word that no memory has is looked for as one that is a letter away."""

import httpx
import pytest

from tests.support.memories import batch, found, recall, remember

pytestmark = pytest.mark.anyio

MEMORIES = (
    "Allergic to penicillin",
    "The accommodation in Reykjavik is booked",
    "Uses Wireguard at the office",
    "Subscribed to the Economist",
    "Купила велосипед",
)


@pytest.mark.parametrize("mode", ["hybrid", "text"])
async def test_a_mistyped_word_finds_what_the_right_one_finds(api: httpx.AsyncClient, mode: str) -> None:
    await batch(api, *({"content": content} for content in MEMORIES))
    for query, expected in {
        "penicilin": MEMORIES[0],  # a letter left out
        "penicilllin": MEMORIES[0],  # one added
        "Reykjawik": MEMORIES[1],  # one replaced
        "acommodation": MEMORIES[1],
        "wierguard": MEMORIES[2],  # two exchanged
        "Who reads the Econmist?": MEMORIES[3],
        "велосепед": MEMORIES[4],
    }.items():
        assert (await found(api, query, mode=mode))[0] == expected, query


async def test_a_short_word_stands_for_itself(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "The car is in the garage"}, {"content": "The form is on the desk"})
    assert await found(api, "cat", mode="text") == await found(api, "farm", mode="text") == []


async def test_a_word_that_some_memory_has_is_not_corrected(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "The stable is warm"}, {"content": "The staple is bent"})
    assert await found(api, "stable", mode="text") == ["The stable is warm"]


async def test_a_memory_of_another_user_corrects_nothing(api: httpx.AsyncClient) -> None:
    await remember(api, "Allergic to penicillin", user_id="other")
    await remember(api, "Prefers tea")
    assert await found(api, "penicilin", mode="text") == []


async def test_a_deleted_memory_corrects_nothing(api: httpx.AsyncClient) -> None:
    await remember(api, "Prefers tea")
    gone = (await remember(api, "Allergic to penicillin"))["memory_id"]
    assert await found(api, "penicilin", mode="text") == ["Allergic to penicillin"]
    await api.delete(f"/v1/memories/{gone}")
    assert await found(api, "penicilin", mode="text") == []


async def test_a_corrected_word_weighs_less_than_a_right_one(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "Allergic to penicillin"}, {"content": "Prefers tea"})
    right, wrong = [(await recall(api, query))["items"][0]["score"] for query in ("penicillin", "penicilin")]
    assert right > wrong
