import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.query import LONG_QUERY, MAX_TERMS, AnalysedQuery, analyse, analyse_off_loop, leading_part
from app.storage.text import name_id, term_ids, terms, text_ids, wholes

SPEAKERS = ("Caroline Smith", "Melanie", "user")


def test_a_named_speaker_is_taken_out_and_noted() -> None:
    query = analyse("When did Caroline's sister visit?", SPEAKERS)
    assert query.stripped == "When did sister visit?"
    assert query.speaker == name_id("Caroline Smith")
    assert (
        np.setdiff1d(query.terms, [*query.if_present]).tolist()
        == np.unique(term_ids(["carolin", "sister", "visit"])).tolist()
    )


@pytest.mark.parametrize(
    "query", ["what does CAROLINE SMITH eat", "what does caroline eat", "what does Caroline’s eat"]
)
def test_full_name_first_name_and_possessive_are_the_same(query: str) -> None:
    assert analyse(query, SPEAKERS).stripped == "what does eat"
    assert analyse(query, SPEAKERS).speaker == name_id("Caroline Smith")


def test_two_named_speakers_are_no_one() -> None:
    query = analyse("Where did Caroline and Melanie meet?", SPEAKERS)
    assert (query.stripped, query.speaker) == ("Where did and meet?", 0)


def test_a_first_name_that_two_share_is_no_one() -> None:
    assert analyse("Where is Ann?", ("Ann Lee", "Ann Fox")).speaker == 0


@pytest.mark.parametrize("query", ["what did the user say", "Melanies", "Carolines dog", "nobody"])
def test_roles_and_parts_of_words_are_no_names(query: str) -> None:
    assert analyse(query, SPEAKERS).stripped == query
    assert analyse(query, SPEAKERS).speaker == 0


def test_a_query_that_is_only_a_name_is_embedded_as_it_is() -> None:
    query = analyse("Caroline?", SPEAKERS)
    assert (query.stripped, query.speaker) == ("Caroline?", name_id("Caroline Smith"))


def test_names_are_found_in_scripts_without_spaces() -> None:
    query = analyse("田中さんの犬は", ("田中",))
    assert (query.stripped, query.speaker) == ("さんの犬は", name_id("田中"))


@given(st.text(max_size=50), st.lists(st.text(max_size=12), max_size=4))
def test_any_query_and_any_names_will_do(text: str, speakers: list[str]) -> None:
    query = analyse(text, speakers)
    added = [term for whole in wholes(text) for term in whole.added]
    looked_for = np.unique(
        np.concatenate([term_ids([*terms(text), *added]), *(one.looked_for for one in query.acronyms)])
    )
    assert np.array_equal(query.terms, np.union1d(looked_for, np.array([*query.if_present], np.uint32)))
    assert query.speaker in {0, *map(name_id, speakers)}
    assert query.stripped or not text.strip() or query.stripped == text


def test_of_a_query_with_too_many_terms_the_first_are_looked_for() -> None:
    words = [f"word{number}" for number in range(MAX_TERMS + 500)]
    query = analyse(" ".join(words), ())
    assert [*query.terms] == sorted(term_ids(words[:MAX_TERMS]).tolist())
    assert len(analyse(" ".join(words[:MAX_TERMS]), ()).terms) == MAX_TERMS


def test_words_of_a_long_query_come_before_pairs_of_characters() -> None:
    characters = "".join(chr(0x4E00 + number) for number in range(MAX_TERMS + 10))
    found = {*analyse(f"{characters} Caroline", ()).terms.tolist()}
    assert len(found) == MAX_TERMS
    assert {*text_ids("Caroline").tolist()} <= found
    assert {*term_ids([characters[:2]]).tolist()} <= found
    assert not {*term_ids([characters[:1]]).tolist()} & found


@pytest.mark.anyio
async def test_a_long_query_is_analysed_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def noted(query: str, speakers: Sequence[str]) -> AnalysedQuery:
        threads.append(threading.get_ident())
        return analyse(query, speakers)

    monkeypatch.setattr("app.retrieval.query.analyse", noted)
    for query in ("\u4e00" * LONG_QUERY, "\u4e00" * (LONG_QUERY + 1)):
        assert len((await analyse_off_loop(query, ())).terms) == 2
    here = threading.get_ident()
    assert [thread == here for thread in threads] == [True, False]


# --- What a long query asks -------------------------------------------------------------------------------------------

TRANSCRIPT = "User: hi\nAssistant: Hello! How can I help?\nUser: The tomatoes keep rotting.\nAssistant: Water evenly.\n"


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        (TRANSCRIPT + "User: thanks. Who has my spare keys?", "thanks. Who has my spare keys?"),
        (TRANSCRIPT + "User: yes", "Water evenly.\nyes"),
        ("**Ana:** hola\n**Bot:** ¡hola!\n**Ana:** ¿Cuál es mi grupo sanguíneo?", "¿Cuál es mi grupo sanguíneo?"),
        ("用户：你好\n助手：你好！\n用户：我的狗叫什么？", "我的狗叫什么？"),
        ("The hedge is high. " * 110 + "Who trims it? We are away.", "Who trims it?"),
        ("Shopping:\nmilk\nTo do:\ncall Ben", "Shopping:\nmilk\nTo do:\ncall Ben"),
        ("Where do I live?", "Where do I live?"),
        ("The hedge is high. " * 110, "The hedge is high. " * 110),
    ],
)
def test_of_a_transcript_the_last_turn_asks(query: str, asked: str) -> None:
    assert leading_part(query) == asked


def test_a_han_character_weighs_less_than_its_pairs() -> None:
    query = analyse("今天的天气怎么样？", ())
    assert set(term_ids(["天", "气"]).tolist()) <= set(query.characters.tolist())
    assert not len(analyse("狗", ()).characters)
