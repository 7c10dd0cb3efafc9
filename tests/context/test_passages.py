"""The passage of a long text that answers a query."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.context.passages import CUT, LONGEST_PASSAGE, best_passage
from app.core import prompt_text
from app.storage.text import term_ids, terms

QUICK = settings(deadline=None, max_examples=60)
RARE = {
    "English": ("The zeppelin landed in Friedrichshafen. ", "The weather was as it often is. ", "zeppelin"),
    "German": ("Der Zeppelin kam aus Konstanz! ", "Das Wetter war so wie immer. ", "Zeppelin"),
    "Russian": ("Дирижабль прилетел из Самары. ", "Погода была такой же как всегда. ", "дирижабль"),
    "Arabic": ("وصل المنطاد من القاهرة؟ ", "كان الطقس كما هو دائما. ", "المنطاد"),
    "Hindi": ("ज़ेपेलिन दिल्ली से आया! ", "मौसम हमेशा जैसा ही था. ", "ज़ेपेलिन"),
    "Chinese": ("飞艇降落在腓特烈港。", "天气和往常一样好。", "飞艇"),
    "Japanese": ("飛行船は湖に着陸した。", "いつもと同じ天気でした。", "飛行船"),
    "Chinese without stops": ("飞艇降落在腓特烈港", "天气和往常一样好", "飞艇"),
    "Thai": ("เรือเหาะลงจอดที่ทะเลสาบ", "อากาศเหมือนเดิมทุกวัน", "เรือเหาะ"),
    "long words": ("zeppelin ", "0123456789abcdef" * 3 + " ", "zeppelin"),
}
TEXT = st.text(max_size=60) | st.sampled_from(
    ["汉字" * 90, "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ", "👩‍👩‍👧‍👦" * 30, "a" * 900, "x. ", "\n\n", " " * 300, "…"]
)
LONG = st.lists(TEXT, min_size=1, max_size=8).map(lambda parts: "".join(parts) * 12)


def weights(query: str) -> dict[int, float]:
    return dict.fromkeys(term_ids(terms(query)).tolist(), 1.0)


def unmarked(text: str) -> str:
    return text.removeprefix(f"{CUT} ").removesuffix(f" {CUT}")


def test_a_text_that_is_not_long_stays_as_it_is() -> None:
    text = "  The zeppelin landed.\n\nIt was late.  "
    assert best_passage(text, weights("zeppelin")) == text


@pytest.mark.parametrize("language", RARE)
@pytest.mark.parametrize("place", [0, 7, 60, 119])
def test_it_holds_the_sentence_with_the_rare_words_of_the_query(language: str, place: int) -> None:
    rare, often, query = RARE[language]
    text = often * place + rare + often * (120 - place)
    shown = best_passage(text, weights(query))
    assert query.lower() in shown.lower()
    assert prompt_text.count(shown) <= LONGEST_PASSAGE
    assert prompt_text.count(shown) > LONGEST_PASSAGE / 2  # it goes on to both sides


@pytest.mark.parametrize("language", ["English", "German", "Russian", "Arabic", "Hindi", "Chinese", "Japanese"])
def test_a_sentence_is_not_cut(language: str) -> None:
    rare, often, query = RARE[language]
    assert rare.strip() in best_passage(often * 40 + rare + often * 40, weights(query))


def test_rare_words_count_more_than_frequent_ones() -> None:
    text = "The weather is the weather. " * 30 + "A zeppelin came. " + "The sky is the sky. " * 30
    both = {**dict.fromkeys(weights("weather sky"), 0.1), **dict.fromkeys(weights("zeppelin"), 4.0)}
    assert "zeppelin" in best_passage(text, both)


def test_the_run_with_most_of_the_query_is_shown() -> None:
    far = "It rained all day long in the mountains. " * 30
    text = f"Ada owns a boat. {far}Ada sold the boat in Boston. {far}"
    assert "sold the boat in Boston" in best_passage(text, weights("Where did Ada sell the boat? Boston"))


@pytest.mark.parametrize(("place", "ends"), [(0, (False, True)), (40, (True, True)), (80, (True, False))])
def test_it_is_marked_where_the_text_goes_on(place: int, ends: tuple[bool, bool]) -> None:
    rare, often, query = RARE["English"]
    shown = best_passage(often * place + rare + often * (80 - place), weights(query))
    assert (shown.startswith(f"{CUT} "), shown.endswith(f" {CUT}")) == ends


def test_without_a_term_of_the_query_it_is_the_beginning() -> None:
    text = "".join(f"Sentence number {at} is here. " for at in range(200))
    shown = best_passage(text, weights("zeppelin"))
    assert shown.startswith("Sentence number 0 is here.")
    assert shown.endswith(f" {CUT}")
    assert best_passage(text, {}) == shown


@QUICK
@given(LONG, st.text(max_size=20), st.integers(8, LONGEST_PASSAGE))
def test_it_is_a_part_of_the_text_within_its_tokens(text: str, query: str, most: int) -> None:
    shown = best_passage(text, weights(query), most)
    assert prompt_text.count(shown) <= most
    assert shown == text or unmarked(shown) in text
    assert shown.strip() or not text.strip()


@QUICK
@given(LONG)
def test_most_of_the_room_is_used(text: str) -> None:
    if prompt_text.count(text.strip()) > LONGEST_PASSAGE:
        assert unmarked(best_passage(text, {})) != ""
