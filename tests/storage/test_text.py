from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.text import (
    HAS_NUMBER_OR_TIME_WORD,
    IS_QUESTION,
    MAX_INITIALS,
    acronyms,
    close_ids,
    content_hash,
    index_text,
    initials,
    name_id,
    normalise_content,
    notations,
    spelled,
    term_ids,
    terms,
    text_ids,
    wholes,
    written_apart,
)


@pytest.mark.parametrize(
    ("document", "query"),
    [
        ("Sie hat zwei Hunde und wohnt in der Straße am Zürichsee", "Wie heißt ihr HUND?"),
        ("Die STRASSE am Zürichsee", "straße"),
        ("Она любит чёрных кошек", "Какая кошка черная?"),
        ("我有一只叫小黑的猫", "小黑是什么"),
        ("我有一只叫小黑的猫", "猫"),
        ("うちの猫は五歳です", "猫は何歳ですか"),
        ("東京タワーに行きました", "タワー"),
        ("우리 강아지는 귀엽다", "강아지가 몇 살이야?"),
        ("القطة تحب الحليب", "من يشرب حليب؟"),
        ("اشترى مُحَمَّد قهوة", "أين القهوة"),
        ("ฉันชอบกินข้าวผัด", "ข้าวผัด"),
        ("मुझे हिन्दी में लिखना पसंद है", "हिन्दी"),
        ("Η γάτα μου τρώει ψάρι", "γάτες"),
        ("She adopted two puppies", "adopting a puppy"),
        ("Crème brûlée in the café", "cafe creme"),
        ("Paid 1250 on 2023-05-08", "8 May: 1250?"),
        ("٣ قطط", "3"),
        ("ＡＢＣ１２３", "abc123"),
        ("set max_context_tokens", "tokens of the context"),
        ("Caroline’s dog", "dogs"),
    ],
)
def test_a_document_is_found_in_its_own_script(document: str, query: str) -> None:
    assert set(terms(document)) & set(terms(query))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Łódź", "Lodz"),
        ("Đà Nẵng", "da nang"),
        ("Tromsø", "TROMSO"),
        ("Ærø", "Aero"),
        ("Þór", "Thor"),
        ("DIYARBAKIR", "Diyarbakır"),
        ("हिन्दी", "हिंदी"),
        ("सम्बन्ध", "संबंध"),
        ("ज़रूर", "जरूर"),
        ("चाँद", "चांद"),
        ("שָׁלוֹם", "שלום"),
        ("علی", "علي"),
        ("کتاب", "كتاب"),
        ("ٱلكتاب", "الكتاب"),
        ("ảnh", "anh"),
        ("Ấn Độ", "an do"),
        ("Ḥasan", "Hasan"),
        ("ἀγάπη", "αγάπη"),
        ("Пу\u0301шкин", "Пушкин"),
        ("п\u02bcять", "п'ять"),
        ("o\u02bbzbek", "o\u2018zbek"),
    ],
)
def test_a_word_is_the_same_term_in_each_of_its_spellings(one: str, other: str) -> None:
    assert terms(one) == terms(other) != []


def test_words_that_differ_in_more_than_spelling_are_different_terms() -> None:
    assert len({term for word in ("कुल", "कील", "किल", "कल") for term in terms(word)}) == 4


def test_stop_words_are_dropped_unless_there_is_nothing_else() -> None:
    assert terms("What is the name of the dog?") == ["name", "dog"]
    assert terms("Who are you?") == ["who", "are", "you"]
    assert terms("") == terms("?! …") == []


def test_a_single_character_is_a_term_and_a_run_is_bigrams() -> None:
    assert terms("犬") == ["犬"]
    assert terms("タワー") == ["タワ", "ワー"]
    assert terms("東京B") == ["東京", "東", "京", "b"]


def test_the_date_is_indexed_so_that_a_query_meets_it() -> None:
    dated = index_text("We went hiking", None, datetime(2023, 5, 8, tzinfo=UTC))
    for query in ("8 May 2023", "may", "2023", "on the 8th", "08"):
        assert np.isin(term_ids(terms(query)), dated.ids).all(), query
    assert not np.isin(term_ids(terms("2023")), index_text("We went hiking").ids).any()


def test_context_is_indexed_with_the_content() -> None:
    text = index_text("Prefers tea", "when at breakfast")
    assert np.isin(term_ids(terms("breakfast tea")), text.ids).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thermostat: 10.0.4.117", ["10.0.4.117"]),
        ("Flight LH 1234 leaves", ["lh1234"]),
        ("Flight LH1234 leaves", ["lh1234"]),
        ("Release v3.12.1", ["v3.12.1", "3.12.1"]),
        ("B-XY 1234", ["bxy1234"]),
        ("e-mail", ["email"]),
        ("lena.fischer+sales@example.org", ["lenafischersalesexampleorg"]),
        ("call +49 170 5550123", ["49.170.5550123", "491705550123"]),
        ("12.3, not 1.23", ["12.3", "1.23"]),
        ("ГОСТ 1234-56", ["1234.56"]),
        ("ГОСТ 1234", ["гост1234"]),
        ("on May 8 and in 2023", []),
        ("the 1st of chapter 12", []),
        ("a1b2c3d4 is a hash", []),
        ("Ends here. Then 3 apples - no more", []),
        ("tea", []),
        ("", []),
    ],
)
def test_an_identifier_is_one_term(text: str, expected: list[str]) -> None:
    assert [whole.term for whole in wholes(text)] == expected


def test_an_identifier_is_indexed_beside_its_parts_and_makes_no_text_longer() -> None:
    for text in ("Flight LH1234", "Flight LH 1234"):
        indexed = index_text(text)
        assert np.isin(term_ids(["flight", "lh", "1234", "lh1234"]), indexed.ids).all()
        assert indexed.length == len(terms(text))


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("parseUserName", ["pars", "user", "name"]),
        ("parseUserID", ["pars", "user", "id"]),
        ("HTTPServer", ["http", "server"]),
        ("читатьФайл", ["чита", "файл"]),
        ("GmbH", []),
        ("NDAs", []),
        ("Caroline", []),
    ],
)
def test_a_word_with_a_capital_inside_is_found_by_its_parts(word: str, parts: list[str]) -> None:
    assert [part for whole in wholes(word) for part in whole.parts] == parts
    assert np.isin(term_ids(parts), index_text(f"Call {word} first").ids).all()


@pytest.mark.parametrize(
    ("text", "acronym"),
    [
        ("Non-disclosure agreement with Quill", "NDA"),
        ("Non-disclosure agreement with Quill", "NDAs"),
        ("Out of office from 3 August", "OOO"),
        ("The Ministry of Foreign Affairs rejected it", "MoFA"),
        ("The Ministry of Foreign Affairs rejected it", "MFA"),
        ("attention deficit hyperactivity disorder", "adhd"),
        ("Министерство иностранных дел", "МИД"),
        ("в Министерстве иностранных дел", "МИДе"),
        ("φόρος προστιθέμενης αξίας", "ΦΠΑ"),
        ("Das öffentliche Patienten-Netz", "ÖPN"),
    ],
)
def test_a_text_has_the_pairs_of_initials_of_an_acronym(text: str, acronym: str) -> None:
    (pairs,) = acronyms(acronym).values()
    assert set(pairs) <= set(initials(text))
    assert np.isin(term_ids(pairs), index_text(text).ids).all()
    assert index_text(text).length == len(terms(text))


@pytest.mark.parametrize(
    "text",
    ["Nice day. Agreed!", "Non-smoking diner, agreeable", "NDA", "9 days ago", "東京タワーに行きました", "to be", ""],
)
def test_words_on_both_sides_of_a_mark_have_no_initials_together(text: str) -> None:
    (pairs,) = acronyms("NDA").values()
    assert not set(pairs) <= set(initials(text))


def test_a_text_has_so_many_pairs_of_initials_at_most() -> None:
    letters = "bcdfghjklmnpqrstvwxyz"
    words = [f"{letters[number * step % len(letters)]}ood" for step in range(1, 9) for number in range(len(letters))]
    assert len(initials(" ".join(words))) == MAX_INITIALS
    assert len(initials(f"{'good ' * 10_000} bad day")) == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("When does the NDA end?", ["NDA"]),
        ("nda", ["nda"]),
        ("Which dog was it?", []),
        ("WHAT IS THE NDA", []),
        ("Who lives in the US?", []),
        ("What does BFFLS mean?", []),
        ("東京", []),
        ("", []),
    ],
)
def test_words_in_capitals_and_a_query_of_one_short_word_are_acronyms(query: str, expected: list[str]) -> None:
    assert list(acronyms(query)) == expected


def test_neighbouring_words_of_a_query_may_be_one_identifier() -> None:
    found = {whole.term for whole in written_apart("Where is parse user id?")}
    assert found == {"parseus", "userid", "parseuserid"}
    assert found & {whole.term for whole in wholes("Function parse_user_id()")} == {"parseuserid"}
    assert not written_apart("What is it? 12 34 of the")
    assert not written_apart("parse user id " * 20)


@pytest.mark.parametrize(
    ("word", "close"),
    [("stapl", True), ("stable", True), ("satbl", True), ("stabl", False), ("stab", False), ("xtabl", False)],
)
def test_close_terms_are_an_edit_away_begin_alike_and_have_five_letters(word: str, close: bool) -> None:
    assert np.isin(term_ids([word]), close_ids("stabl")).all() == close


def test_a_letter_may_be_left_out_of_a_longer_word_of_any_alphabet() -> None:
    assert np.isin(term_ids(["stable"]), close_ids("staable")).all()
    assert np.isin(term_ids(["велосипед"]), close_ids("велосепед")).all()


def test_words_of_five_letters_may_be_mistyped() -> None:
    assert sorted(spelled("The cats of Reykavik: penicilin, LH12345, 123456, 東京タワーです").values()) == [
        "penicilin",
        "reykavik",
    ]


def test_counts_saturate_and_length_does_not() -> None:
    text = index_text("tea. " * 1000 + "Cake")
    assert sorted(text.counts.tolist()) == [1, 255]
    assert text.length == 1001
    assert text.ids.dtype == np.uint32
    assert text.counts.dtype == np.uint8


@pytest.mark.parametrize(
    "text", ["Are you there?", "元気ですか？", "كيف حالك؟", "Really? 😀", "And you? a photo of a dog"]
)
def test_questions_are_recognised(text: str) -> None:
    assert index_text(text).flags & IS_QUESTION


@pytest.mark.parametrize("text", ["Yes.", "Why? Because.", "Ok", ""])
def test_what_ends_otherwise_is_no_question(text: str) -> None:
    assert not index_text(text).flags & IS_QUESTION


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I have 2 kids", 1),
        ("Ich habe zwei Kinder", 1),
        ("三百块", 1),
        ("Elle part à midi", 1),
        ("I left yesterday", 1),
        ("I moved to Boston in May", 1),
        ("Mar sat in the sun", 0),
        ("Wir waren gestern dort", 1),
        ("Летом в прошлом месяце", 0),
        ("昨日行きました", 1),
        ("Nos vemos el lunes", 1),
        ("One of us likes tea", 0),
    ],
)
def test_numbers_and_words_of_time_are_flagged_in_each_language(text: str, expected: int) -> None:
    assert index_text(text).flags & HAS_NUMBER_OR_TIME_WORD == expected


def test_a_date_of_the_record_is_no_number_in_its_text() -> None:
    assert index_text("I like tea", None, datetime(2023, 5, 8, tzinfo=UTC)).flags == 0


def test_equal_contents_have_equal_hashes() -> None:
    assert content_hash("  Prefers\n TEA ") == content_hash("prefers tea") != content_hash("prefers coffee")
    assert normalise_content("Ｔｅａ\u00a0 time") == "tea time"


def test_hashes_are_signed_64_bit_and_do_not_change() -> None:
    hashes = [content_hash(str(i)) for i in range(50)]
    assert min(hashes) < 0 < max(hashes)
    assert np.array(hashes, np.int64).tolist() == hashes
    assert content_hash("tea") == -5015453343862700912
    assert term_ids(["tea"]).tolist() == [2391201714]


def test_a_name_has_one_code_however_it_is_written() -> None:
    assert name_id("Caroline ") == name_id("CAROLINE") != name_id("Melanie")
    assert name_id(" ") == 0


@given(st.text(max_size=200))
def test_any_text_is_indexed_and_finds_itself(text: str) -> None:
    indexed = index_text(text)
    values = dict.fromkeys(notation.term for notation in notations(text))
    added = [*(term for whole in wholes(text) for term in whole.added), *values, *initials(text)]
    assert np.array_equal(np.unique(term_ids([*terms(text), *added])), indexed.ids)
    assert int(indexed.counts.sum()) == indexed.length + len(added)
    assert isinstance(content_hash(text), int)


@given(st.text(alphabet=st.characters(), max_size=200))
def test_case_and_width_do_not_matter(text: str) -> None:
    folded = normalise_content(text)
    assert normalise_content(folded) == folded
    assert set(terms(text)) == set(terms(folded))


@pytest.mark.parametrize("unit", ["word ", "我的猫", "é", "' ", "u\u0301", "1", "x", "a-", "1 ", "a1.", "é-"])
def test_cost_is_linear(unit: str) -> None:
    text = (unit * 32_000)[:32_000]
    assert index_text(text).length < 64_001


RUNS = st.text(
    st.sampled_from("的了猫犬東京さくらアイウ한국어ไทยလာ𠀀𠮷a1 ,\u0301\u200d🎉👩🏽🇩🇪❤\ufe0f#\u20e3♀"), max_size=300
)


@given(RUNS, st.booleans())
def test_ids_of_a_text_are_those_of_its_terms_however_long_its_runs_are(text: str, repeated: bool) -> None:
    text = text * 20 if repeated else text
    assert sorted(text_ids(text).tolist()) == sorted(term_ids(terms(text)).tolist())


def test_a_long_run_of_stop_words_keeps_its_pairs() -> None:
    assert set(text_ids("的" * 100).tolist()) == set(term_ids(["的的"]).tolist())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("party 🎉!", ["parti", "🎉"]),
        ("👍🏽 👍🏿 👍", ["👍", "👍", "👍"]),  # skin tones are one
        ("❤️❤", ["❤", "❤"]),  # shown as an emoji or as a sign
        ("👨‍👩‍👧", ["👨", "👩", "👧"]),
        ("🤷‍♂️🤷‍♀️🤷", ["🤷", "🤷", "🤷"]),
        ("👩🏽‍🦰", ["👩"]),
        ("🇩🇪🇯🇵", ["🇩🇪", "🇯🇵"]),
        ("🇩", ["🇩"]),
        ("🏳️‍🌈", ["🏳", "🌈"]),
        ("🏴󠁧󠁢󠁥󠁮󠁧󠁿", ["🏴󠁧󠁢󠁥󠁮󠁧󠁿"]),
        ("1️⃣ and #️⃣", ["1", "#⃣"]),
        ("犬🐕", ["犬", "🐕"]),
        ("a→b ✓ 5×3", ["b", "✓", "5", "3"]),
    ],
)
def test_each_emoji_is_a_term(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_an_emoji_of_many_parts_is_bounded() -> None:
    assert len(terms("🏴" + "\U000e0067" * 30_000)) == 1
    assert index_text("👩" + "\u200d👩" * 10_000).length == 10_001


# --- Values and names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Blood group of Ines is A+", "a+"),
        ("Blutgruppe von Omar ist A-, sagt er", "a-"),
        ("Le congélateur est à -18 degrés", "-18"),
        ("The fund lost: \u22124 % in May", "-4 4%"),
        ("佩特拉写C++", "c++"),
        ("The Lyon site cost 1,250,000 euros", "1250000"),
        ("Le site a coûté 1\u202f250\u202f000 euros", "1250000"),
        ("Das Grundstück kostet 1'250'000 Franken", "1250000"),
        ("It cost 12,50,000 rupees", "1250000"),
        ("Dentist: (415) 555-0187", "4155550187"),
        ("Das Paket wiegt 2,35 kg", "2.35"),
        ("Yoga starts at 3 pm", "@900"),
        ("Yoga starts at 15:00", "@900"),
        ("瑜伽下午三点开始", "@900"),
        ("Yoga beginnt um 15 Uhr", "@900"),
        ("Le yoga commence à 15h30", "@930"),
        ("Yoga starts at 3:15", "@195 @915"),
        ("Yoga starts at 12 am", "@0"),
        ("What starts at noon?", "@720"),
        ("The film starts at 8 at night", "@1200"),
        ("Llega a las 2 de la noche", "@120"),
        ("小林晚上12点下班", "@0"),
        ("The visa expires on April 13, 2029", "@2029-04-13 @04-13"),
        ("Das Visum läuft am 13. April 2029 ab", "@2029-04-13 @04-13"),
        ("El visado caduca el 13 de abril de 2029", "@2029-04-13 @04-13"),
        ("签证2029年4月13日到期", "@2029-04-13 @04-13"),
        ("母の誕生日は五月三日です", "@05-03"),
        ("El pasaporte caduca el 02/06/2031", "@2031-06-02 @06-02"),
        ("It is due on 31/12/2031", "@2031-12-31 @12-31"),
        ("Client A pays in 30 days", "client a"),
        ("Where are the S shirts?", "s shirt"),
        ("La vitamine D est dans la boîte", "vitamin d"),
        ("The IT budget is 40k", "it"),
        ("Lena saw The Who in Leeds", "the who"),
        ("A client pays, and I live here", ""),
        ("The door has a width of 3 to 4 metres - or so", ""),
        ("CLIENT A PAYS", ""),
    ],
)
def test_values_and_names_are_terms_in_any_notation(text: str, found: str) -> None:
    expected = found.split() if found not in ("client a", "s shirt", "vitamin d") else [found]
    assert [whole.term for whole in notations(text)] == expected
    assert set(term_ids(expected).tolist()) <= set(index_text(text).ids.tolist())


def test_a_query_in_small_letters_may_mean_a_letter_that_is_a_name() -> None:
    assert [whole.term for whole in notations("when does client a pay", asked=True)] == ["client a"]
    assert notations("when does client a pay") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("She has two dogs", "2"),
        ("twelve thousand four hundred and fifty", "12450"),
        ("Das Bergdorf zählt zwei Millionen Besucher", "2000000"),
        ("zwölftausendvierhundertfünfzig", "12450"),
        ("La tercera etapa es de veintidós kilómetros", "22"),
        ("dos mil millones", "2000000000"),
        ("quatre-vingt-dix-sept", "97"),
        ("soixante et onze", "71"),
        ("Le site sort 2,5 millions de pièces", "2500000 2.5"),
        ("duecentottanta grammi", "280"),
        ("cento e vinte e cinco", "125"),
        ("二百五十", "250"),
        ("250万円", "2500000"),
        ("between five and twenty", "5 20"),
        ("twenty, five", "20 5"),
        ("fünf Cent", "5"),
        ("Rent is due on Monday, not once", ""),
        ("No lo vi once veces", "11"),
        ("um dos meus amigos", ""),
        ("one of them, ein Hund, une amie", ""),
        ("minus eighteen degrees", "18 -18"),
        ("veinte grados bajo cero", "20 -20"),
        ("零下十八度", "18 -18"),
        ("setenta por cento de cacau", "70 70%"),
        ("minus two and a half", "2 -2.5 2.5"),
        ("The choir meets at half past seven in the evening", "7 @1170"),
        ("A quarter to nine in the evening", "9 @1245"),
        ("um halb acht", "8 @450 @1170"),
        ("zwanzig nach fünf", "20 5 @320 @1040"),
        ("a las siete y media de la tarde", "7 @1170"),
        ("cinq heures vingt-cinq du matin", "5 25 @325"),
        ("il treno delle cinque e cinque del pomeriggio", "5 5 @1025"),
        ("all'una meno cinque", "5 @775"),
        ("meio-dia e quarenta", "40 @760"),
        ("七点一刻", "@435 @1155"),
        ("il primo marzo", "@03-01"),
        ("five to ten people", "5 10"),
    ],
)
def test_numbers_and_clock_times_in_words_are_terms(text: str, found: str) -> None:
    assert [whole.term for whole in notations(text)] == found.split()


@given(st.text(max_size=200))
def test_any_text_has_notations(text: str) -> None:
    assert all(whole.term and whole.parts for whole in notations(text))
