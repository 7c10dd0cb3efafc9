"""What code checks of an item: its fields, its quote, its numbers and its values, in any language."""

from typing import Any

import pytest

from app.facts.schemas import FactCreate
from app.learning.checks import Quote, find_quote, numbers_said, quoted, stands, value_shown
from app.learning.extraction import Rules, is_user
from app.learning.prompts import CitedItem, LearnedLesson, LearnedStatement, TranscriptLine
from app.memories.schemas import MemoryCreate, Source

AT = "2026-05-11T09:00:00.000Z"
"""A Monday."""


def line(text: str, role: str = "user", seq: int = 1) -> TranscriptLine:
    return TranscriptLine(seq, role, None, AT, text)


def talk(*texts: str) -> list[TranscriptLine]:
    return [line(text, ("user", "assistant")[at % 2], at + 1) for at, text in enumerate(texts)]


def stated(quote: str, **more: Any) -> LearnedStatement:
    fields = {"subject": "user", "text": quote, "kind": "fact", "certainty": "stated", "holds": "now"}
    return LearnedStatement.model_validate({"quote": quote, **fields, **more})


def fact(quote: str, **more: Any) -> LearnedStatement:
    return stated(quote, **{"predicate": "lives_in", "object": "Oslo", "cardinality": "one", **more})


def lesson(quote: str, **more: Any) -> LearnedLesson:
    fields = {"certainty": "stated", "holds": "now", "kind": "heuristics", "text": "Ask first.", "about": "work"}
    return LearnedLesson.model_validate({"quote": quote, **fields, **more})


def rules(*texts: str, looked: bool = True) -> Rules:
    return Rules(talk(*texts), {"agent_id": "a", "user_id": "u"}, names=["Ada"], looked=looked)


# --- The quote --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("I LIVE  in oslo", "Well. I live in Oslo! Do you?"),
        ("I don't eat meat", "I don\u2019t eat meat."),
        ("住在北京", "我住在北京。"),
        ("cafe", "Das Café."),
        ("école à Besançon", "Je vais à l\u2019école à Besançon"),
        ("a well known baker", "He's a well-known baker"),
        ("10km every day", "I run 10 km every day"),
        ("\u201eein Haus\u201c am See", "Wir haben «ein Haus» am See"),
        ("I moved to Bergen … on the first of May", "I moved to Bergen, at last. It was on the first of May."),
        ("搬到成都 [...] 教语文", "我去年搬到成都。现在在学校教语文。"),
        ("Vivo en Lugo. Tengo dos gatos.", "Vivo en Lugo. Ya sabes. Tengo dos gatos."),
    ],
)
def test_a_quote_stands_word_for_word_whatever_its_case_spaces_and_quotation_marks(quote: str, text: str) -> None:
    assert find_quote(quote, talk(text)) is not None


@pytest.mark.parametrize("quote", ["I live Oslo", "I live ... Oslo", "", "…", "Oslo in"])
def test_words_left_out_or_turned_round_are_no_quote(quote: str) -> None:
    assert find_quote(quote, talk("I live in Oslo.")) is None


def test_what_was_left_out_of_a_quote_is_left_out_of_its_sentences() -> None:
    quote = find_quote(
        "We moved to Bergen ... our flat is small", talk("Hi. We moved to Bergen. Rain! So our flat is small, ok.")
    )
    assert quote is not None
    assert quote.text == "We moved to Bergen … our flat is small"
    assert quote.sentence == "We moved to Bergen. … So our flat is small, ok."
    assert find_quote(quote.text, [quote.line]) == quote
    assert find_quote("our flat is small ... we moved to Bergen", [quote.line]) is None, "in another order"


def test_the_users_words_go_before_the_assistants() -> None:
    quote = find_quote("tea", talk("Hello.", "Some tea?", "I prefer tea. Always."), "user")
    assert quote is not None
    assert (quote.line.role, quote.sentence) == ("user", "I prefer tea.")
    assert [one.text for one in quote.lines] == ["Some tea?", "I prefer tea. Always."]


# --- The fields -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (stated("I live in Oslo"), None),
        (stated("I live in Oslo", holds="planned"), None),
        (stated("I live in Oslo", holds="then", subject="Mira"), None),
        (stated("I live in Oslo", certainty="guessed"), "not_stated"),
        (stated("I live in Oslo", certainty="asked"), "not_stated"),
        (stated("I live in Oslo", certainty="corrected"), "not_stated"),
        (stated("I live in Bergen"), "not_quoted"),
        (lesson("I live in Oslo"), None),
        (lesson("I live in Oslo", about="person"), "not_of_this_part"),
        (lesson("I live in Oslo", holds="then"), "not_of_this_part"),
    ],
)
def test_the_fields_of_an_item_say_whether_it_is_kept(item: CitedItem, reason: str | None) -> None:
    quote = quoted(item, talk("I live in Oslo."))
    assert (quote if isinstance(quote, str) else None) == reason


def test_of_the_assistants_words_promises_and_findings_are_kept_and_nothing_about_the_user() -> None:
    said = talk("Hello.", "I'll send you the list on Monday. The cache key holds only the branch. You live in Oslo.")
    promise = stated("I'll send you the list", subject="assistant", holds="planned")
    finding = stated("The cache key holds only the branch", subject="cache key", kind="issue")
    lecture = stated("The cache key holds only the branch", subject="cache key")
    claim, plan = stated("You live in Oslo"), stated("You live in Oslo", holds="planned")
    assert all(isinstance(quoted(one, said), Quote) for one in (promise, finding, lesson("The cache key holds")))
    assert quoted(lecture, said) == "not_quoted"
    assert [quoted(one, said, of_user=True) for one in (claim, plan)] == ["not_quoted", "not_quoted"]
    heard = Rules(said, {"agent_id": "a", "user_id": "u"}, looked=True)
    accepted = heard.accepted([fact("I'll send you the list", subject="assistant", holds="planned", at="2026-05-18")])
    assert (len(accepted), heard.facts(accepted)) == (1, []), "a promise of the assistant is no fact"


# --- Numbers and values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said", "stands_there", "worded"),
    [
        ("The user is 34.", "I'm 34.", True, False),
        ("The user is 35.", "I'm 34.", False, True),
        ("Two kids.", "I have two kids.", True, False),
        ("The user has 2 kids.", "I have two kids.", True, True),
        ("The user turns 40.", "I turn forty.", True, True),
        ("The user has 48213 bees.", "I keep bees.", False, True),
        ("1200 Euro", "1.200 Euro", True, False),
        ("46 pupils", "四十六个学生", True, False),
        ("On 12 May 2026.", "It's tomorrow.", True, False),
        ("Am 18.05.2026.", "Nächsten Montag.", True, False),
        ("On 3 March 2027.", "On the 3rd of March.", True, False),
        ("On 28 March 2026.", "On Thursday at 9.", False, True),
        ("On 12 and 19 May 2026.", "Tomorrow, and on Tuesday next week again.", True, False),
        ("Am 12. und am 17. Mai.", "Morgen früh und nochmal am Sonntag.", True, False),
        ("Alle 20:00.", "Stasera alle 8.", True, True),
        ("Nata nel 1990.", "Ho 36 anni.", True, True),
        ("For 38 years.", "I've been with them since 1988.", True, True),
        ("18.000.000 de pesos", "unos 18 millones", True, True),
        ("12500 words", "at most 12.5k words", True, True),
        ("30000元", "一个月3万", True, True),
        ("500 Euro", "Fünfhundert hat es gekostet.", True, True),
        ("700 Euro", "Es hat 500 gekostet.", False, True),
        ("731 Euro", "Es hat etwas gekostet.", False, True),
        ("Born in 1951.", "I'm 36.", False, True),
    ],
)
def test_numbers_stand_in_the_message_or_follow_from_its_date(
    text: str, said: str, stands_there: bool, worded: bool
) -> None:
    assert numbers_said(text, talk(said)) == (stands_there, worded)


@pytest.mark.parametrize(
    ("value", "text", "there"),
    [
        ("hiking", "I hike every weekend.", True),
        ("vegetarian", "Soy vegetariano.", True),
        ("the bakery", "I work in a bakery.", True),
        ("Oslo", "I moved to Bergen.", False),
        ("青城山", "她住青城山那边", True),
        ("not dark blue", "dark blue", False),
        ("midwife", "Ich bin Hebamme.", False),
        ("22b", "plot 22b", True),
        ("22c", "plot 22b", False),
        ("", "anything", False),
    ],
)
def test_a_value_stands_in_a_text_in_one_of_its_forms(value: str, text: str, there: bool) -> None:
    assert stands(value, text) is there


def test_a_value_may_be_a_number_word_or_stand_in_the_question() -> None:
    quote = find_quote("Yes", talk("Hm.", "Do you live in Oslo?", "Yes, with two cats."))
    assert isinstance(quote, Quote)
    assert value_shown("Oslo", quote) == (True, False)
    assert value_shown("2 cats", quote) == (True, True)
    assert value_shown("48213 bees", quote).stands is False
    assert value_shown("Norwegens Hauptstadt", quote) == (True, True)


# --- What is stored ---------------------------------------------------------------------------------------------------


def made_memories(said: Rules, *statements: LearnedStatement) -> list[tuple[MemoryCreate, Source]]:
    return said.memories(said.accepted(statements), {})


def made_facts(said: Rules, *statements: LearnedStatement, known: str = "") -> list[tuple[FactCreate, Source]]:
    return said.facts(said.accepted(statements), known)


def test_a_number_of_a_text_may_stand_elsewhere_in_what_the_user_said() -> None:
    text = "Bilal, 17, begins on 1 September 2026."
    told = stated("He begins on 1 September", text=text, holds="planned", subject="Bilal")
    ((body, source),) = made_memories(rules("Bilal is 17.", "Nice.", "He begins on 1 September."), told)
    assert (body.content, source["quote"]) == (text, "He begins on 1 September")
    assert made_memories(rules("He begins on 1 September."), told) == []


def test_without_a_second_look_other_words_than_the_quotes_become_its_sentence() -> None:
    said = rules("I sing alto with Maud. Every week.", looked=False)
    ((body, _),) = made_memories(said, stated("I sing alto", text="The user is in a choir."))
    assert (body.content, said.dropped) == ("I sing alto with Maud.", {"reworded": 1})
    same = stated("I sing alto", text="I sing alto with Maud")
    assert made_memories(rules("I sing alto with Maud.", looked=False), same)[0][0].content == "I sing alto with Maud"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"holds": "planned"}, "not_of_this_part"),
        ({"holds": "then"}, "not_of_this_part"),
        ({"object": "flat 7231"}, "not_said"),
        ({"profile_field": "age", "object": "unknown"}, None),
    ],
)
def test_a_statement_that_states_no_fact_is_still_a_memory(fields: dict[str, str], reason: str | None) -> None:
    said = rules("I live in Oslo. And you?")
    told = fact("I live in Oslo", **fields)
    assert made_facts(said, told) == []
    assert said.dropped == ({} if reason is None else {reason: 1})
    assert [body.content for body, _ in made_memories(rules("I live in Oslo. And you?"), told)] == ["I live in Oslo"]


def test_what_is_guessed_is_kept_nowhere() -> None:
    said = rules("If I lived in Oslo, I'd ski.")
    assert said.accepted([fact("If I lived in Oslo", certainty="guessed")]) == []
    assert said.dropped == {"not_stated": 1}


def test_a_time_that_does_not_follow_from_the_message_is_that_of_the_message() -> None:
    times = {"2026-05-01T00:00:00Z": "2026-05-01T00:00:00.000Z", "1987-07-04T00:00:00Z": AT, "some day": AT, None: AT}
    for given, kept in times.items():
        ((body, _),) = made_facts(rules("I have lived in Oslo since May."), fact("I have lived in Oslo", at=given))
        assert body.valid_from == kept, given


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-05-15T15:00+02:00", ("2026-05-15T13:00:00.000Z", "instant")),
        ("2026-05-15T18:00:00Z", ("2026-05-15T00:00:00.000Z", "day")),
        ("2026-05-15T00:00:00Z", ("2026-05-15T00:00:00.000Z", "day")),
        ("2026-05-15", ("2026-05-15T00:00:00.000Z", "day")),
        ("2026-05", ("2026-05-01T00:00:00.000Z", "month")),
        ("2026", ("2026-01-01T00:00:00.000Z", "year")),
        ("2031-05", None),
        ("2026-05-45", None),
        ("on Friday", None),
        (None, None),
    ],
)
def test_a_memory_has_the_time_that_was_said_with_its_precision(
    given: str | None, kept: tuple[str, str] | None
) -> None:
    said = rules("The dentist is on 15 May at 3 pm.", looked=False)
    ((body, source),) = made_memories(said, stated("The dentist is on 15 May at 3 pm", holds="planned", at=given))
    assert (body.event_at, body.event_at_precision) == (kept or (None, None))
    assert source["said_at"] == AT


@pytest.mark.parametrize(
    ("text", "given", "stands"),
    [
        ("Am Samstag backen wir", "2026-05-16", True),
        ("Am Samstag backen wir", "2026-05-30", True),
        ("Am Samstag backen wir", "2026-05-21", False),
        ("Am Samstag backen wir", "2026-08-15", False),
        ("We meet on the 14th", "2026-06-14", True),
        ("We meet on the 14th", "2026-06-15", False),
        ("El catorce vienen a pintar", "2026-06-14", True),
        ("我们八号下午四点半开家长会", "2026-06-08T16:30:00Z", True),
    ],
)
def test_a_day_is_one_that_the_sentence_may_mean(text: str, given: str, stands: bool) -> None:
    ((body, _),) = made_memories(rules(f"{text}."), stated(text, holds="planned", at=given))
    assert (body.event_at or "")[:10] == (given[:10] if stands else "")
    assert "T" not in given or body.event_at_precision == "instant"


@pytest.mark.parametrize("more", [{}, {"predicate": None, "profile_field": "home"}])
def test_what_is_planned_for_a_day_becomes_true_on_it_and_is_remembered(more: dict[str, Any]) -> None:
    said = rules("I'm moving to Oslo on 1 June.")
    told = fact("I'm moving to Oslo on 1 June", holds="planned", at="2026-06-01", **more)
    ((body, _),) = made_facts(said, told)
    assert (body.subject, body.predicate, body.object) == ("@user", "lives_in", "Oslo")
    assert body.valid_from == "2026-06-01T00:00:00.000Z"
    ((memory, _),) = made_memories(said, told)
    assert (memory.content, memory.event_at) == (told.text, "2026-06-01T00:00:00.000Z")
    assert made_facts(said, told.model_copy(update={"at": None})) == []


def test_what_has_an_end_is_true_until_the_last_moment_of_it() -> None:
    ((body, _),) = made_facts(
        rules("I live in Oslo until 31 May."), fact("I live in Oslo until 31 May", until="2026-05-31")
    )
    assert (body.valid_from, body.valid_until) == (AT, "2026-05-31T23:59:59.999Z")


def test_what_is_over_is_a_fact_until_its_message_and_a_memory() -> None:
    told = fact("I lived in Oslo", predicate="went_to_school_in", holds="then")
    said = rules("I lived in Oslo for a while.")
    ((body, _),) = made_facts(said, told)
    assert (body.valid_until, "valid_from" in body.model_fields_set) == (AT, False)
    assert len(made_memories(said, told)) == 1
    dated = told.model_copy(update={"at": "2019-01-01T00:00:00Z"})
    ((body, _),) = made_facts(rules("I lived in Oslo from 2019 on."), dated)
    assert (body.valid_from, body.valid_until) == ("2019-01-01T00:00:00.000Z", AT)


def test_a_value_in_another_language_needs_the_second_look() -> None:
    told = stated("Ich bin Hebamme", profile_field="occupation", object="midwife")
    ((body, _),) = made_facts(rules("Ich bin Hebamme."), told)
    assert (body.predicate, body.object, body.cardinality) == ("works_as", "midwife", "one")
    unlooked = rules("Ich bin Hebamme.", looked=False)
    assert made_facts(unlooked, told) == []
    assert [memory.content for memory, _ in made_memories(unlooked, told)] == ["Ich bin Hebamme"]


def test_an_age_is_its_number() -> None:
    told = stated("I'm 58 years old", profile_field="age", object="58 years")
    assert [body.object for body, _ in made_facts(rules("I'm 58 years old."), told)] == ["58"]


def test_a_number_of_a_subject_or_predicate_stands_in_the_conversation_or_in_a_known_fact() -> None:
    heard = rules("It squeals in the rain.")
    squeals = fact("It squeals in the rain", subject="Kestrel 518", predicate="squeals_in", object="rain")
    invented = fact("It squeals in the rain", predicate="lost_4711_euros_in", object="rain")
    made = made_facts(heard, squeals, invented, known="Kestrel 518 has_brakes")
    assert [body.subject for body, _ in made] == ["Kestrel 518"]
    assert made_facts(heard, squeals) == []
    assert heard.dropped == {"not_said": 2}


@pytest.mark.parametrize(
    ("topic", "looked", "kept"),
    [
        ("seat", True, "seat"),
        ("likes_seat", True, "likes seat"),
        ("row_147", True, "on the aisle"),
        ("aisle", False, "aisle"),
        ("debts", False, "on the aisle"),
        (None, True, "on the aisle"),
    ],
)
def test_a_topic_that_nobody_said_is_left_out(topic: str | None, looked: bool, kept: str) -> None:
    said = rules("I like to sit on the aisle", looked=looked)
    preference = stated(
        "I like to sit on the aisle", profile_field="preference", predicate=topic, object="on the aisle"
    )
    ((patch, _),) = said.profile(said.accepted([preference]))
    assert patch == {"preferences": {kept: "on the aisle"}}


@pytest.mark.parametrize("fields", [{"subject": "Mira"}, {"holds": "then"}, {"holds": "planned"}, {"object": "4711"}])
def test_the_profile_has_what_is_so_of_the_user_now(fields: dict[str, str]) -> None:
    said = rules("I climb. Mira swims.")
    told = stated("I climb", **{"profile_field": "interest", "object": "climb", **fields})
    assert said.profile(said.accepted([told])) == []
    assert sum(said.dropped.values()) == 1


@pytest.mark.parametrize(
    ("subject", "user"), [("user", True), ("ada", True), ("@user", True), ("Mira", False), ("", False)]
)
def test_the_user_is_the_subject_by_a_word_or_by_a_name(subject: str, user: bool) -> None:
    assert is_user(subject, ["Ada Lovelace"]) is user
