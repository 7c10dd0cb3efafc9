"""What a quote has to show before something is learned from it."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.characters import is_idle
from app.learning import evidence, prompts, quotes
from app.learning.extraction import Rules
from app.learning.prompts import (
    SENTENCE_END,
    LearnedFact,
    LearnedLesson,
    LearnedMemory,
    ProfileItem,
    TranscriptLine,
)
from app.learning.quotes import find
from app.learning.summaries import MAX_WORDS, faithful
from tests.support.memories import Json

AT = "2026-05-10T10:00:00Z"
OWNER = {"agent_id": "a", "user_id": "ada"}


def conversation(*texts: str) -> list[TranscriptLine]:
    """The user and the assistant in turn."""
    roles = ("user", "assistant")
    return [TranscriptLine(seq + 1, roles[seq % 2], None, AT, text) for seq, text in enumerate(texts)]


def rules(*texts: str) -> Rules:
    return Rules(conversation(*texts), OWNER, names=["Ada"])


def fact(quote: str, object: str, predicate: str = "lives_in", subject: str = "Ada", **more: object) -> LearnedFact:
    fields = {"quote": quote, "subject": subject, "predicate": predicate, "object": object}
    return LearnedFact.model_validate({**fields, "cardinality": "one", "valid_from": None, **more})


def memory(quote: str, content: str, **more: object) -> LearnedMemory:
    fields: Json = {"context": None, "memory_type": "fact", "importance": 0.5, "superseded_ids": []}
    return LearnedMemory.model_validate({"quote": quote, "content": content, **fields, **more})


# --- Quotes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quote", "seq"),
    [
        ("I live in Boston", 1),
        ("i LIVE, in boston!", 1),
        ("I live ... now", 1),
        ("Noted", 2),
        ("café", 3),
        ("cafe", 3),
        ("北京", 3),
        ("I live in Paris", None),
        ("Boston in live", None),
        ("live in Bost", None),
        ("", None),
        ("...", None),
    ],
)
def test_a_quote_is_found_by_its_words_in_their_order(quote: str, seq: int | None) -> None:
    lines = conversation("I live in Boston now.", "Noted.", "The café in 北京 is nice.")
    found = find(quote, lines)
    assert (found.line.seq if found else None) == seq


def test_the_users_own_words_go_first() -> None:
    found = find("Boston", conversation("Hello.", "", "Hm.", "You like Boston?", "Boston."), "user")
    assert found is not None
    assert found.line.seq == 5


# --- Whom it is about -------------------------------------------------------------------------------------------------

OF_USER = [
    ("I'm allergic to penicillin", "penicillin"),
    ("I live with my brother in Oslo", "Oslo"),
    ("My brother and I live in Oslo", "Oslo"),
    ("She lives in Rome and I live in Oslo", "Oslo"),
    ("Spicy food upsets me", "spicy food"),
    ("My favourite colour is blue", "blue"),
    ("Ich wohne in Berlin", "Berlin"),
    ("Vivo en Madrid", "Madrid"),
    ("J'habite à Lyon", "Lyon"),
    ("Abito a Roma", "Roma"),
    ("Moro em Lisboa", "Lisboa"),
    ("Ik woon in Utrecht", "Utrecht"),
    ("Я живу в Москве", "Москве"),
    ("我住在北京", "北京"),
    ("東京に住んでいます", "東京"),
]
OF_ANOTHER = [
    ("My brother is allergic to penicillin.", "penicillin"),
    ("I think my brother is allergic to nuts", "nuts"),
    ("Marco is allergic to nuts", "nuts"),
    ("Meine Schwester wohnt in Berlin", "Berlin"),
    ("Mi hermano vive en Madrid", "Madrid"),
    ("Mon frère habite à Lyon", "Lyon"),
    ("Mia sorella abita a Roma", "Roma"),
    ("Мой брат живет в Москве", "Москве"),
    ("我哥哥住在北京", "北京"),
]


@pytest.mark.parametrize(("text", "value"), OF_USER)
def test_the_first_person_is_about_the_user(text: str, value: str) -> None:
    found = find(text, conversation(text))
    assert found is not None
    assert evidence.about_user(found, value) is None


@pytest.mark.parametrize(("text", "value"), OF_ANOTHER)
def test_what_is_said_of_a_relative_is_not_the_users(text: str, value: str) -> None:
    found = find(text, conversation(text))
    assert found is not None
    assert evidence.about_user(found, value) == "of_another_person"


def test_a_short_answer_to_a_question_is_about_the_user() -> None:
    found = find("Vegetarian.", conversation("Hi.", "What is your diet?", "Vegetarian."))
    assert found is not None
    assert evidence.about_user(found, "vegetarian") is None
    alone = find("Vegetarian.", conversation("Vegetarian."))
    assert alone is not None
    assert evidence.about_user(alone, "vegetarian") == "not_about_user"


# --- Facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "one", "reason"),
    [
        ("I live in Boston.", fact("I live in Boston", "Boston"), None),
        ("I moved to Boston.", fact("I moved to Boston", "Boston", "lives_in"), None),
        ("I live in Boston, so no Boston jokes.", fact("I live in Boston", "Boston"), None),
        ("I live in Boston.", fact("I live in Oslo", "Boston"), "unfounded"),
        ("I live in Boston.", fact("I live in Boston", "Oslo"), "not_said"),
        ("I live in Boston.", fact("I live in Boston", "unknown"), "no_value"),
        ("I live in Boston.", fact("I live in Boston", "Boston", "works_for"), "predicate_not_said"),
        ("Do I live in Boston?", fact("I live in Boston", "Boston"), "question"),
        ("I might move to Boston.", fact("I might move to Boston", "Boston"), "unsure"),
        ("I want to live in Boston.", fact("I want to live in Boston", "Boston"), "unsure"),
        ("I don't live in Boston.", fact("I don't live in Boston", "Boston"), "negated"),
        ("My brother lives in Boston.", fact("My brother lives in Boston", "Boston"), "of_another_person"),
        ("My brother lives in Boston.", fact("My brother lives in Boston", "Boston", subject="brother"), None),
        ("My brother Max is here.", fact("My brother Max", "Max", "has_brother"), None),
        ("Max lives in Boston.", fact("Max lives in Boston", "Boston", subject="Max"), None),
        ("Max lives in Boston.", fact("Max lives in Boston", "Boston", subject="Eva"), "subject_not_said"),
        ("Boston is lovely.", fact("Boston is lovely", "Boston"), "predicate_not_said"),
        ("I have two kids.", fact("I have two kids", "2 kids", "has_children"), None),
        ("I ride an e-bike, a Halcyon E3.", fact("I ride an e-bike, a Halcyon E3", "Halcyon E3", "rides"), None),
        ("That joke again.", fact("That joke again", "joke", "joke"), "predicate_not_said"),
        ("I ride here, Max sells a Halcyon.", fact("Max sells a Halcyon", "Halcyon", "rides"), "predicate_not_said"),
    ],
)
def test_a_fact_needs_a_quote_that_states_it(text: str, one: LearnedFact, reason: str | None) -> None:
    rule = rules(text)
    stored = rule.facts([one])
    assert dict(rule.dropped) == ({reason: 1} if reason else {})
    assert [body.object for body, _ in stored] == ([] if reason else [one.object])


def test_what_the_assistant_says_is_no_fact() -> None:
    rule = rules("Hi.", "You live in Boston.")
    assert rule.facts([fact("You live in Boston", "Boston")]) == []
    assert dict(rule.dropped) == {"said_by_assistant": 1}


@pytest.mark.parametrize(
    ("time", "stored"),
    [("2026-04-01T00:00:00Z", "2026-04-01"), ("2019-01-01T00:00:00Z", AT[:10]), ("soon", AT[:10]), (None, AT[:10])],
)
def test_a_time_is_taken_if_the_message_says_it(time: str | None, stored: str) -> None:
    ((body, source),) = rules("I have lived in Boston since April.").facts(
        [fact("I have lived in Boston since April", "Boston", valid_from=time)]
    )
    assert str(body.valid_from)[:10] == stored
    assert source["quote"] == "I have lived in Boston since April"


# --- Memories ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "one", "reason"),
    [
        ("I prefer tea.", memory("I prefer tea", "Ada prefers tea."), None),
        ("I moved to Boston last month.", memory("I moved to Boston", "Ada moved to Boston in April 2026."), None),
        ("I moved to Boston.", memory("I moved to Boston", "Ada moved to Paris."), "name_not_said"),
        ("I moved to Boston.", memory("I moved to Boston", "Ada moved to Boston in 2019."), "number_not_said"),
        ("I moved to Boston.", memory("I moved to Boston", "The user is a bank manager with a pension."), "not_said"),
        ("My brother is allergic to nuts.", memory("My brother is", "Ada is allergic to nuts."), "of_another_person"),
        ("My brother is allergic to nuts.", memory("My brother", "Ada's brother is allergic to nuts."), None),
        ("Boston is lovely.", memory("Boston is lovely", "The user lives in Boston."), "of_another_person"),
        ("I might move to Boston.", memory("I might move", "Ada moved to Boston."), "unsure"),
        ("I might move to Boston.", memory("I might move", "Ada might move to Boston."), None),
        ("I eat meat.", memory("I eat meat", "Ada does not eat meat."), "negated"),
        ("I don't eat meat.", memory("I don't eat meat", "Ada does not eat meat."), None),
        ("Do I eat meat?", memory("Do I eat meat", "Ada eats meat."), "question"),
        ("Answer in German.", memory("Answer in German", "Answer in German.", memory_type="instruction"), None),
    ],
)
def test_a_memory_says_what_its_message_says(text: str, one: LearnedMemory, reason: str | None) -> None:
    rule = rules(text)
    stored = rule.memories([one], {})
    assert dict(rule.dropped) == ({reason: 1} if reason else {})
    assert [body.content for body, _ in stored] == ([] if reason else [one.content])


def test_a_promise_of_the_assistant_is_learned_and_its_advice_is_not() -> None:
    rule = rules("Help me.", "I'll send the report on Monday. Paris is a good place to eat.")
    items = [
        memory("I'll send the report on Monday", "The assistant will send the report on Monday."),
        memory("Paris is a good place to eat", "Paris is a good place to eat."),
    ]
    assert [body.content for body, _ in rule.memories(items, {})] == ["The assistant will send the report on Monday."]
    assert dict(rule.dropped) == {"said_by_assistant": 1}


def test_an_invented_condition_is_left_out_and_the_memory_stays() -> None:
    rule = rules("At home I drink tea.")
    items = [
        memory("I drink tea", "Ada drinks tea at home.", context="at home"),
        memory("I drink tea", "Ada drinks tea.", context="only at work"),
    ]
    assert [body.context for body, _ in rule.memories(items, {})] == ["at home", None]
    assert dict(rule.dropped) == {"context": 1}


# --- Profile and lessons ----------------------------------------------------------------------------------------------


def test_a_profile_is_in_the_users_own_words() -> None:
    rule = rules("I'm Ada, 34, and live in Boston. My brother is a pilot.", "Seat 12, aisle?", "I prefer aisle seats.")

    def item(field: str, value: str, quote: str) -> ProfileItem:
        return ProfileItem.model_validate({"quote": quote, "field": field, "about": None, "value": value})

    items = [
        item("name", "Ada", "I'm Ada"),
        item("home", "Boston", "live in Boston"),
        item("occupation", "pilot", "My brother is a pilot"),
        item("home", "none", "live in Boston"),
        item("preference", "window", "I prefer aisle seats"),
        item("preference", "aisle seats", "I prefer aisle seats"),
        item("interest", "aisle", "Seat 12, aisle?"),
    ]
    assert [one.value for one, _ in rule.profile(items)] == ["Ada", "Boston", "aisle seats"]
    reasons = {"of_another_person": 1, "no_value": 1, "not_said": 1, "said_by_assistant": 1, "question": 0}
    assert sum(rule.dropped.values()) == 4
    assert {*rule.dropped} <= {*reasons}


def test_a_known_lesson_is_no_evidence_for_itself() -> None:
    rule = rules("Check the date first.")
    lessons = [
        LearnedLesson(quote="Check the date first", kind="heuristics", text="Check the date first."),
        LearnedLesson(quote="Check the date first", kind="heuristics", text="Ask for the date."),
        LearnedLesson(quote="Ask for the date", kind="heuristics", text="Ask early."),
    ]
    found = rule.lessons(lessons, {"heuristics": ["check the date FIRST."]})
    assert [one.text for one in found] == ["Ask for the date."]
    assert dict(rule.dropped) == {"known": 1, "unfounded": 1}


def test_a_lesson_has_no_name_and_no_number_that_nobody_said() -> None:
    rule = rules("Check the date of order 4471 first.")
    lessons = [
        LearnedLesson(quote="Check the date", kind="heuristics", text="Remember Bartholomew Quexley."),
        LearnedLesson(quote="Check the date", kind="heuristics", text="Check the date of order 4472."),
        LearnedLesson(quote="Check the date", kind="heuristics", text="Check the date of an order."),
    ]
    assert [one.text for one in rule.lessons(lessons, {})] == ["Check the date of an order."]
    assert dict(rule.dropped) == {"name_not_said": 2}


# --- What the speaker does not state himself --------------------------------------------------------------------------

LETTER = 'Translate this: "My name is Bruno, I am 45 and I live in Rome with a cat." I live in Oslo.'


def profile_item(field: str, value: str, quote: str) -> ProfileItem:
    return ProfileItem.model_validate({"quote": quote, "field": field, "about": None, "value": value})


@pytest.mark.parametrize(
    ("text", "quote", "field", "value", "reason"),
    [
        (LETTER, "My name is Bruno", "name", "Bruno", "cited"),
        (LETTER, "I live in Rome", "home", "Rome", "cited"),
        (LETTER, "I live in Oslo", "home", "Oslo", None),
        ("翻译：“我叫陈大伟，今年四十五岁，在青岛开了一家餐馆。”", "我叫陈大伟", "name", "陈大伟", "cited"),
        ('I love the film "The Third Man" best.', "I love the film", "interest", "The Third Man", None),
        ("I am allergic to dogs.", "I am allergic", "name", "allergic", "field_not_said"),
        ("We are 212 members.", "We are 212", "name", "212", "field_not_said"),
        ("I'm fond of my age group.", "I'm fond", "age", "fond", "field_not_said"),
        ("I'm 34.", "I'm 34", "age", "34", None),
        ("I wore a fleece.", "I wore a fleece", "interest", "fleece", "field_not_said"),
        ("I play the cello.", "I play the cello", "interest", "cello", None),
        ("My mate Gavin plays chess.", "Gavin plays chess", "interest", "chess", "of_another_person"),
        ("Can you do that by email?", "by email", "preference", "email", None),
        ("Can I do that by email?", "by email", "preference", "email", "question"),
        ("Ich esse ohne Fleisch.", "ohne Fleisch", "preference", "ohne Fleisch", None),
        ("Ich fange am 16. März als Logopädin an.", "als Logopädin", "preference", "Logopädin", None),
        ("Meine Mutter kommt und sie hat Zöliakie.", "sie hat Zöliakie", "preference", "Zöliakie", "of_another_person"),
        ("A ver, no tengo coche.", "no tengo coche", "preference", "coche", "negated"),
        ("我不过喜欢绿茶。", "喜欢绿茶", "preference", "绿茶", None),
        ("わたしは敬語で大丈夫です。", "敬語", "preference", "敬語", None),
    ],
)
def test_a_profile_value_is_the_speakers_own(text: str, quote: str, field: str, value: str, reason: str | None) -> None:
    rule = rules(text)
    stored = rule.profile([profile_item(field, value, quote)])
    assert dict(rule.dropped) == ({reason: 1} if reason else {})
    assert [one.value for one, _ in stored] == ([] if reason else [value])


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ("Sorry, the conference is in Lisbon, not Madrid.", "taken_back"),
        ("It is not in Madrid.", "taken_back"),
        ("Madrid is not right.", "taken_back"),
        ("I do not like the food of Madrid.", None),
        ("Madrid it is.", None),
    ],
)
def test_what_is_corrected_later_is_not_learned(later: str, reason: str | None) -> None:
    rule = rules("The conference is in Madrid.", "Fine.", later)
    stored = rule.memories([memory("The conference is in Madrid", "The conference is in Madrid.")], {})
    assert dict(rule.dropped) == ({reason: 1} if reason else {})
    assert len(stored) == (reason is None)


@pytest.mark.parametrize(
    "text", ["I sleep badly, so I'd rather walk.", "Remember: my plot is 44B and the code is 9071."]
)
def test_the_words_of_a_message_are_always_said(text: str) -> None:
    rule = rules(text)
    assert rule.memories([memory(text, text)], {}), rule.dropped


@pytest.mark.parametrize(
    ("text", "promised"),
    [
        ("I'll send it on Friday.", True),
        ("Ich erstelle Ihnen die Tabelle bis morgen.", True),
        ("Je vous préparerai la comparaison.", True),
        ("Ich empfehle Ihnen Leipzig.", False),
        ("Je vous conseille Lyon.", False),
        ("You will love Lisbon.", False),
    ],
)
def test_a_promise_is_no_advice(text: str, promised: bool) -> None:
    found = find(text, conversation("Hi.", text))
    assert found is not None
    assert quotes.promised(found) is promised


# --- Summaries --------------------------------------------------------------------------------------------------------


def test_a_summary_keeps_what_was_said() -> None:
    lines = conversation("I need a flight to Oslo on 12 May for two.", "The flight SK 1 leaves at 9.")
    text = "The user needs a flight to Oslo on 12 May. The user was informed by Boris. It costs 400 euros."
    assert faithful([text], lines, None).text == "The user needs a flight to Oslo on 12 May."


def test_a_number_inside_a_name_is_part_of_the_name() -> None:
    lines = conversation("I moved to Bergedorf and ride a Halcyon E3 now.")
    text = "Ada moved to Bergedorf and rides a Halcyon E3 now."
    assert faithful([text], lines, "Ada rode.").text == text


def test_a_summary_is_no_longer_than_what_it_sums_up() -> None:
    lines = conversation("I need tea.", "Noted.")
    assert len(faithful(["The user needs tea. " * 50], lines, None).text.split()) <= 12
    many = conversation(*["I need tea and coffee and cake."] * 100)
    assert len(faithful(["The user needs tea and coffee. " * 100], many, None).text.split()) <= MAX_WORDS


# --- Prompts ----------------------------------------------------------------------------------------------------------

NAMES = ("memories", "facts", "profile", "experience", "summary", "conversation", "episodes", "episode_facts", "day")
STATED = conversation("I am a nurse and live in Boston with two cats.", "Good to know.", "I prefer tea at work.")


@pytest.mark.parametrize("name", NAMES)
def test_no_word_of_a_prompt_comes_back_as_something_learned(name: str) -> None:
    text = prompts.load(name).text
    words = sorted({*re.findall(r"[^\W\d_][\w'-]*", text)})
    runs = [" ".join(words[at : at + 3]) for at in range(len(words))]
    said = {word.casefold() for line in STATED for word in re.findall(r"\w+", line.text)}
    for word in [*words, *runs]:
        if {*word.casefold().split()} & said:
            continue
        for quote in (word, "I am a nurse", STATED[0].text):
            rule = Rules(STATED, OWNER, names=["Ada"])
            value = ProfileItem.model_validate(
                {"quote": quote, "field": "preference", "about": word[:100], "value": word}
            )
            assert rule.facts([fact(quote, word), fact(quote, word, word, word)]) == [], (word, quote)
            assert rule.profile([value]) == [], (word, quote)
            assert rule.memories([memory(quote, f"Ada likes {word}."), memory(quote, word)], {}) == [], (word, quote)


def test_the_prompt_check_finds_a_planted_copy() -> None:
    """If a word of the prompt stands in the conversation, the same loop does store it."""
    rule = Rules(conversation("I live in Boston."), OWNER, names=["Ada"])
    assert rule.facts([fact("I live in Boston", "Boston")])


# --- Records in the words of their quote ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "content", "stored"),
    [
        ("The fair is in Lisbon.", "The user goes to a fair in Lisbon.", "The fair is in Lisbon."),
        ("I get sick on planes.", "The user has difficulties with planes and journeys.", "I get sick on planes."),
        ("Je reprends tout le dépôt.", "The user is taking over all of the code.", "Je reprends tout le dépôt."),
        ("姉は猫アレルギーです。", "My sister has an allergy to cats.", "姉は猫アレルギーです。"),
        ("I get sick on planes.", "The user owns a restaurant with a terrace.", None),
        ("Do I get sick on planes?", "The user has difficulties with planes and journeys.", None),
    ],
)
def test_what_a_model_words_differently_is_kept_in_the_users_words(text: str, content: str, stored: str | None) -> None:
    rule = rules(text)
    found = [body.content for body, _ in rule.memories([memory(text, content)], {})]
    assert found == ([stored] if stored else [])
    assert rule.dropped["reworded"] == (stored is not None)


def test_of_a_promise_only_the_promise_is_kept() -> None:
    said = "Lyon is a good place to eat. I'll send the list on Monday. Shall I book?"
    rule = rules("Help me.", said)
    assert [body.content for body, _ in rule.memories([memory(said, said)], {})] == ["I'll send the list on Monday."]


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ("Sorry, it is 3.10.", "taken_back"),
        ("Pardon, c'est 3.10.", "taken_back"),
        ("My colleague has 3.10.", None),
        ("Sorry, I have 12 of them.", None),
    ],
)
def test_a_number_that_is_corrected_later_is_not_learned(later: str, reason: str | None) -> None:
    rule = rules("I have Python 3.9.", "Fine.", later)
    rule.memories([memory("I have Python 3.9", "I have Python 3.9.")], {})
    assert dict(rule.dropped) == ({reason: 1} if reason else {})


def test_a_lesson_about_one_user_is_none() -> None:
    rule = rules("Check the date first.")
    lesson = LearnedLesson(quote="Check the date", kind="heuristics", text="The user checks the date.")
    assert rule.lessons([lesson], {}) == []
    assert dict(rule.dropped) == {"of_one_user": 1}


# --- Sentences of a summary -------------------------------------------------------------------------------------------

TALK = conversation(
    "I need a flight to Oslo on 12 May, my brother comes along and he is vegan.",
    "The flight SK 1 leaves at 9. A window seat costs 30 euros.",
    "Book it. I'd rather sit in front.",
    "I'll book it tomorrow.",
)


@pytest.mark.parametrize(
    ("sentence", "kept"),
    [
        ("The user needs a flight to Oslo on 12 May.", True),
        ("The assistant will book the flight tomorrow.", True),
        ("The assistant said that flight SK 1 leaves at 9.", True),
        ("The user said that Zanzibar.", False),
        ("The user said that vegan.", False),
        ("The user is vegan.", False),
        ("The user needs a flight to Oslo on 13 May.", False),
        ("The user met the president of a large company in a hotel by the sea.", False),
        ("The user flies to Oslo because of a wedding.", False),
    ],
)
def test_a_sentence_of_a_summary_is_kept_if_it_was_said(sentence: str, kept: bool) -> None:
    found = faithful([sentence], TALK, None)
    assert (found.text == sentence) is kept, found
    assert dict(found.dropped) == ({} if kept else {"not_borne_out": 1})


def test_a_sentence_that_a_model_repeats_stands_once() -> None:
    sentence = "The user needs a flight to Oslo on 12 May."
    found = faithful([sentence] * 8, TALK, None)
    assert (found.text, dict(found.dropped)) == (sentence, {"repeated": 7})


@given(
    st.lists(st.text(max_size=200), max_size=12), st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=6)
)
@settings(max_examples=50, deadline=None)
def test_a_summary_is_bounded_whatever_the_model_writes(told: list[str], said: list[str]) -> None:
    lines = conversation(*said)
    found = faithful(told, lines, None)
    if not found.text.startswith("(extract)"):
        everything = evidence.all_terms(" ".join(f"{line.at} {line.text}" for line in lines))  # a time is known, too
        # joined by a space, a sentence without an end would make a name of the next one's first word
        parts = [part.strip() for part in SENTENCE_END.split("\n".join(told)) if part.strip() in found.text]
        assert all(find(part, lines) or evidence.hard_terms(part) <= everything for part in parts if part)
    assert len(found.text.split()) <= MAX_WORDS + 1 + len(lines)


@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_what_is_idle_leaves_no_record(text: str) -> None:
    rule = rules(text)
    stored = rule.memories([memory(text, text if text.strip() else "x")], {})
    assert not (stored and is_idle(text))


def test_a_summary_does_not_join_what_was_said_apart() -> None:
    lines = conversation("Hello.", "The tutor comes on Sunday.", "My son has swimming on Saturday.")
    assert faithful(["The user said that tutor swimming."], lines, None).dropped["not_borne_out"] == 1


def test_a_summary_in_another_language_is_not_borne_out() -> None:
    lines = conversation(
        "Die Heizung wird nicht warm und der Druck ist zu gering.", "Dann füllen Sie das System bitte auf 1,5 bar nach."
    )
    told = "The assistant suggests filling the system at 1,5 bar."
    assert faithful([told], lines, None).dropped["not_borne_out"] == 1


def test_the_speaker_named_twice_is_no_promise() -> None:
    text = "I have no body, but I come alive with wind."
    rule = rules("A riddle!", text)
    assert rule.memories([memory(text, text)], {}) == []
    assert dict(rule.dropped) == {"said_by_assistant": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [("No, I live in Leith.", "Leith"), ("Nein, ich wohne in Kiel.", "Kiel"), ("No, vivo en Gijón.", "Gijón")],
)
def test_a_no_that_answers_a_question_denies_nothing_behind_it(text: str, value: str) -> None:
    rule = rules("Hi.", "Do you live in Oslo?", text)
    assert [body.object for body, _ in rule.facts([fact(text, value)])] == [value]
    denied = text.replace("I live", "I don't live").replace("ich wohne", "ich wohne nicht").replace("vivo", "no vivo")
    assert rules("Hi.", "Do you live in Oslo?", denied).facts([fact(denied, value)]) == []


@pytest.mark.parametrize(
    "text",
    [
        "I got a plot in the shared garden in Leith, and I know nothing about it.",
        "J'ai récupéré une parcelle au jardin des Lilas, à Nantes, et je n'y connais rien.",
        "Ich habe einen Garten in Kiel, und ich kenne mich nicht aus.",
    ],
)
def test_a_sentence_in_the_users_words_may_deny_something(text: str) -> None:
    assert [body.content for body, _ in rules(text).memories([memory(text, text)], {})] == [text]
