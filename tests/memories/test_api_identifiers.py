"""Identifiers: addresses, flights, versions, orders. One that matches whole goes before its siblings."""

import httpx
import pytest

from tests.support.memories import batch, found, recall, remember

pytestmark = pytest.mark.anyio

MEMORIES = (
    "Camera in the hall has the address 10.0.4.17",
    "The door sensor uses 10.0.4.71",
    "Thermostat: 10.0.4.117",
    "Flight LH 1234 leaves at nine",
    "Flight LH 1243 leaves at ten",
    "Flight BA1234 leaves at eleven",
    "Release v1.12.3 broke uploads",
    "Release v3.12.1 broke login",
    "Order 4711-0815 was for the oak table",
    "Order 0815-4711 was for the carpet",
    "Meeting code is 123-456-789 for the board",
    "Meeting code is 789-456-123 for the team",
    "Car plate B-XY 1234 belongs to Ida",
    "Car plate B-YX 1234 belongs to Emil",
    "IBAN DE89 3704 0044 0532 0130 00 pays the rent",
    "IBAN DE89 3704 0044 0532 0031 00 pays the phone bill",
    "The deployment target is called orla-cloud-dev",
    "The deployment target of staging is called orla-cloud-stg",
)


@pytest.mark.parametrize("mode", ["hybrid", "text"])
async def test_an_identifier_that_matches_whole_goes_before_its_siblings(api: httpx.AsyncClient, mode: str) -> None:
    await batch(api, *({"content": content} for content in MEMORIES))
    for query, expected in {
        "Who uses 10.0.4.117?": "Thermostat",
        "Who uses 10.0.4.71?": "door sensor",
        "When does LH1234 go?": "nine",
        "When does LH 1243 go?": "ten",
        "When does BA 1234 go?": "eleven",
        "What broke in 3.12.1?": "login",
        "What was in order 0815-4711?": "carpet",
        "Who uses the code 789456123?": "team",
        "BXY1234 whose car": "Ida",
        "What is paid from DE89370400440532013000?": "rent",
        "orla-cloud-stg": "staging",
    }.items():
        assert expected in (await found(api, query, mode=mode))[0], query


async def test_an_identifier_that_no_memory_has_is_no_good_match(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "Ticket PAY-4312 is about refunds"}, {"content": "The cat is called Pixel"})
    (best, *_) = (await recall(api, "What is QX-9907 about?"))["items"]
    assert best["score"] < 0.3


async def test_a_joined_word_is_found_as_one_word_and_by_its_parts(api: httpx.AsyncClient) -> None:
    await remember(api, "Her e-mail is checked on Mondays")
    await remember(api, "Prefers tea")
    for query in ("email", "e-mail", "mail"):
        assert await found(api, query, mode="text") == ["Her e-mail is checked on Mondays"], query


ACRONYMS = (
    "Our chief financial officer is Maren Holt",
    "Non-disclosure agreement with Quill was signed in May",
    "The service level agreement promises 99.9 percent",
    "Out of office from 3 to 10 August",
    "Work from home is allowed on Mondays",
    "Министерство иностранных дел отказало в визе",
)


@pytest.mark.parametrize("mode", ["hybrid", "text"])
async def test_an_acronym_finds_the_words_that_it_is_made_of(api: httpx.AsyncClient, mode: str) -> None:
    await batch(api, *({"content": content} for content in ACRONYMS))
    for query, expected in {
        "NDA": "Quill",
        "nda": "Quill",
        "When was the NDA signed?": "Quill",
        "OOO": "Out of office",
        "WFH": "Work from home",
        "МИД": "визе",
    }.items():
        assert expected in (await found(api, query, mode=mode))[0], query


async def test_an_acronym_that_is_written_goes_before_words_of_its_initials(api: httpx.AsyncClient) -> None:
    await batch(
        api,
        {"content": "The service level agreement of the gym ends in May"},
        {"content": "The SLA of the hoster is 99.5 percent"},
        {"content": "Some lazy afternoon"},
    )
    assert "99.5" in (await found(api, "SLA"))[0]


async def test_a_short_word_that_the_scope_has_is_no_acronym(api: httpx.AsyncClient) -> None:
    await batch(api, {"content": "Drove over Grafton"}, {"content": "The dog is called Rex"})
    assert await found(api, "dog", mode="text") == ["The dog is called Rex"]
    assert await found(api, "xyz", mode="text") == []


async def test_words_find_the_identifier_that_they_are_parts_of(api: httpx.AsyncClient) -> None:
    await batch(
        api,
        {"content": "Function parse_user_id() is in utils/parse.py"},
        {"content": "Function parseUserName is in utils/names.ts"},
        {"content": "The user of the phone is Ida"},
    )
    assert "parse.py" in (await found(api, "parse user id function"))[0]
    assert "names.ts" in (await found(api, "parse user name function"))[0]
    assert "names.ts" in (await found(api, "parse_user_name", mode="text"))[0]
