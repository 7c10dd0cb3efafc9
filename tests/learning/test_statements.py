"""What code finds by itself in what users say, to complete what a model leaves out."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.learning.own_profile import MOST_WISHES, further_profile
from app.learning.prompts import LearnedFact, LearnedMemory, ProfileItem
from app.learning.quotes import corrected, find, narrowed, promised, said_together
from app.learning.statements import FEWEST, MOST_FACTS, further_facts, further_memories
from tests.conftest import Service
from tests.learning.test_evidence import conversation, fact, memory, rules
from tests.support.learning import end, kept, learned, talk
from tests.support.model import Model

pytestmark = pytest.mark.anyio


def completed(*texts: str, quoted: Sequence[str] = (), said: Sequence[LearnedMemory] = ()) -> list[str]:
    """The memories that code adds to those of a model."""
    rule = rules(*texts)
    return [body.content for body, _ in further_memories(rule, quoted, rule.memories(said, {}))]


def people(*texts: str, said: Sequence[LearnedFact] = ()) -> list[tuple[str, str, str]]:
    rule = rules(*texts)
    found = further_facts(rule, rule.facts(said))
    return [
        ("user" if body.subject == "@user" else body.subject, body.predicate, str(body.object)) for body, _ in found
    ]


def wishes(*texts: str, said: Sequence[ProfileItem] = ()) -> list[str]:
    rule = rules(*texts)
    return [one.value for one, _ in further_profile(rule, rule.profile(said))]


# --- Memories ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("I planted the tomatoes on the balcony last Saturday.", True),
        ("Ich fange am 16. März in der Uniklinik an.", True),
        ("我每天七点就要到医院上班。", True),
        ("My son Emil has been at the Lessing school since May.", True),
        ("Meine Freundin Svea hat Zöliakie, also kein Weizen.", True),
        ("Mi primo Álvaro vive en una casa roja en Trujillo.", True),
        ("His friend Lotte lives in a red house in Trujillo.", False),
        ("I'm fine on boats myself, but there's no point if Nils is green.", True),
        ("Ich esse alles, aber Nils nur, wenn es warm ist.", True),
        ("Vivo en una casa roja, pero quizás la vendemos en mayo.", True),
        ("Perhaps the red house is for sale, and I like red houses.", False),
        ("I'd buy the red house at once, and Nils has the money.", False),
        ("I like it.", False),
        ("Thanks, that was really useful today!", False),
        ("Do you think the tomatoes on my balcony need more water?", False),
        ("If I had a greenhouse I'd put the tomatoes in there.", False),
        ("I might move the tomatoes into the kitchen tomorrow.", False),
        ("Can you write my landlord a letter about the rent?", False),
        ("Tomatoes suffer below ten degrees when the wind blows.", False),
        ("I sold my grandmother to the circus in Ghent, haha.", False),
        ("I used to keep red hens on a farm near Leeds.", False),
        ("In my novel I keep red hens on a farm near Leeds.", False),
        ("我以前每天七点就要到医院上班。", False),
        ('Translate: "My name is Bruno and I live in a house in Rome with my cat."', False),
    ],
)
def test_what_a_user_states_in_full_is_a_memory_in_the_users_words(text: str, there: bool) -> None:
    assert completed(text) == ([text] if there else [])


def test_a_statement_that_is_taken_back_is_none() -> None:
    text = "I need to get to a conference in Madrid at the end of May."
    assert completed(text) == [text]
    assert completed(text, "Noted.", "The conference in May is in Lisbon, not Madrid.")[:1] != [text]


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (("I keep red hens on a farm near Leeds.", "Nice.", "I sold the hens, we keep ducks instead."), False),
        (("I keep red hens on a farm near Leeds.", "Nice.", "Actually the hens are brown."), False),
        (("I keep red hens on a farm near Leeds.", "Nice.", "I bought a blue boat instead."), True),
        (("Please translate this letter: Dear Ann! I keep red hens on a farm near Leeds.",), False),
        (("Listen: I keep red hens on a farm near Leeds.",), True),
        (("Write a story about a farmer. I keep red hens on a farm near Leeds.",), False),
    ],
)
def test_a_statement_is_meant_and_not_changed_later(texts: tuple[str, ...], first: bool) -> None:
    assert any("hens on a farm" in one for one in completed(*texts)) is first


def test_a_shorter_statement_is_one_if_the_model_quotes_it() -> None:
    text = "I collect stamps."
    assert completed(text) == []
    assert completed(text, quoted=[text]) == [text]
    assert completed(text, quoted=["I collect coins."]) == []


def test_what_a_stored_memory_says_is_not_said_again() -> None:
    text = "I planted the tomatoes on the balcony last Saturday."
    assert completed(text, said=[memory(text, text)]) == []
    assert further_memories(rules(text), [], [], ["The tomatoes were planted on the balcony on Saturday."]) == []
    assert further_memories(rules(text), [], [], ["The tomatoes are red."])


def test_no_more_memories_are_added_than_a_stretch_may_have() -> None:
    texts = [
        "I planted the tomatoes on Saturday.",
        "My boat lies in the harbour of Ghent.",
        "I ride a green bicycle to the office.",
        "We rent the flat until the end of October.",
        "I play the cello with two friends.",
        "My allotment has the number 44.",
        "I teach chemistry at a school in Leeds.",
    ]
    assert len(completed(" ".join(texts))) == FEWEST
    assert len(completed(" ".join(texts), said=[memory(texts[0], texts[0])])) == FEWEST - 1
    turns = [turn for text in [*texts, *(f"I know {text}" for text in texts)] for turn in (text, "Noted.")]
    assert len(completed(*turns)) == len(turns) // 4, "half of the user's messages"


def test_the_order_is_that_of_the_conversation() -> None:
    first, second = "I ride a green bicycle to the office.", "My wife Nuala and I bought the boat in Ghent in 2019."
    assert completed(f"{first} {second}") == [first, second]


def test_a_promise_of_the_assistant_is_a_memory_and_an_offer_of_help_is_none() -> None:
    promise = "I will prepare ten questions about safety for you."
    assert completed("Yes please.", promise) == [promise]
    assert completed("Yes please.", "Gern helfe ich Ihnen bei der Suche nach Rezepten.") == []
    assert not promised(find_in("もちろんお手伝いいたします。"))


def find_in(text: str):  # type: ignore[no-untyped-def]
    found = find(text, conversation("", text))
    assert found is not None
    return found


def test_what_code_drops_is_not_counted_as_the_models() -> None:
    rule = rules(
        'Translate: "Please keep your answers short and use no emojis at all."', "Done.", "Is my wife Nuala there?"
    )
    further_memories(rule, [], [])
    further_facts(rule, [])
    further_profile(rule, [])
    assert rule.dropped.total() == 0


# --- Facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("My wife Nuala did all that.", [("user", "wife", "Nuala")]),
        ("Mit meinem Hund Pelle, sonst allein.", [("user", "hund", "Pelle")]),
        ("Es que a mi hermana Lucía la operan en mayo.", [("user", "hermana", "Lucía")]),
        ("Je m'associe avec ma cousine Maëlle.", [("user", "cousine", "Maëlle")]),
        (
            "The other Alex is my boss, he's into fly fishing.",
            [("user", "boss", "Alex"), ("Alex", "is", "into fly fishing")],
        ),
        ("Uno a Carmen, mi contable, y otro a Ana.", [("user", "contable", "Carmen")]),
        ("My daughter Anika has a cello.", [("user", "daughter", "Anika"), ("Anika", "has", "a cello")]),
        (
            "My wife Odile is coming along, and she's allergic to shellfish, which is sad.",
            [("user", "wife", "Odile"), ("Odile", "is", "coming along"), ("Odile", "is", "allergic to shellfish")],
        ),
        ("Meine Mutter kommt und sie hat Zöliakie.", [("Mutter", "hat", "Zöliakie")]),
        ("Hi Bob, my wife is ill.", [("wife", "is", "ill")]),
        ("Ich koche anders, weil meine Frau Krebs hat.", []),
        ("I see my sister Monday.", []),
        ("Is my wife Nuala there?", []),
        ("I wish my wife Nuala had a car.", []),
        ("My brother Tom's car is red.", []),
        ("My brother Tom isn't allergic to nuts.", []),
        (
            "My brother Tom and my sister Ann came, she has a dog.",
            [("user", "brother", "Tom"), ("user", "sister", "Ann")],
        ),
        ("I live in Boston.", []),
    ],
)
def test_people_of_the_user_and_what_is_said_of_them(text: str, found: list[tuple[str, str, str]]) -> None:
    assert people(text) == found


def test_a_person_that_the_model_names_is_not_named_again() -> None:
    text = "My wife Nuala did all that."
    assert people(text, said=[fact(text, "Nuala", "wife")]) == []


def test_what_the_user_says_of_themselves_is_no_fact_of_another_person() -> None:
    text = "I get sick on planes. My wife Odile is coming along."
    rule = rules(text)
    assert rule.facts([fact(text, "planes", "sick_on", "Odile")]) == []
    assert rule.dropped["of_user"] == 1
    assert rule.facts([fact("My wife Odile is coming along", "coming along", "is", "Odile")])


# --- Profile ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("Keep it short please, I hate walls of text.", True),
        ("Trois phrases maximum, s'il vous plaît.", True),
        ("Du kannst mich ruhig duzen.", True),
        ("Et continuez à me vouvoyer.", True),
        ("No me pongas tantos emojis, por favor.", True),
        ("Give me Fahrenheit always then.", True),
        ("回答简短一点就好，谢谢！", True),
        ("敬語はもう少しゆるくて大丈夫です。", True),
        ("The film was short.", False),
        ("My oven only knows Fahrenheit, mind.", False),
        ("Please write to my landlord.", False),
        ('Translate: "Please keep your answers short and use no emojis at all."', False),
    ],
)
def test_how_the_user_wants_to_be_answered(text: str, there: bool) -> None:
    assert wishes(text) == ([text] if there else [])


def test_a_wish_that_the_model_names_is_not_named_again() -> None:
    text = "Keep it short please, I hate walls of text."
    said = ProfileItem(quote=text, field="conversation_preference", about=None, value="short")
    assert wishes(text, said=[said]) == []


def test_facts_and_wishes_of_a_stretch_are_limited() -> None:
    names = [
        f"{first}{second}" for first in ("An", "Ber", "Car", "Dor", "El") for second in ("na", "ta", "lo", "ri", "mo")
    ]
    assert len(people(*(turn for name in names for turn in (f"My friend {name} paints.", "Noted.")))) == MOST_FACTS
    kinds = ("short", "brief", "concise", "metric", "imperial", "jargon", "markdown")
    assert len(wishes(*(turn for kind in kinds for turn in (f"Keep it {kind} please.", "Noted.")))) == MOST_WISHES


# --- Rules of evidence ------------------------------------------------------------------------------------------------


def test_a_value_is_judged_by_the_sentence_that_says_it() -> None:
    text = "It's for lead technician at a wind farm operator. I've been a turbine mechanic for years."
    found = find(text, conversation(text))
    assert found is not None
    assert narrowed(found, "turbine mechanic").sentence == "I've been a turbine mechanic for years."

    def occupation(value: str) -> list[str]:
        item = ProfileItem(quote=text, field="occupation", about=None, value=value)
        return [one.value for one, _ in rules(text).profile([item])]

    assert occupation("turbine mechanic") == ["turbine mechanic"]
    assert occupation("wind farm operator") == []


def test_a_short_memory_has_its_words_from_one_sentence() -> None:
    text = "Alex is my sister-in-law. The other one likes fishing."
    stored = [
        body.content
        for body, _ in rules(text).memories([memory("Alex is my sister-in-law", "Alex likes fishing.")], {})
    ]
    assert stored == []


def test_a_word_alone_is_no_memory() -> None:
    text = "We are a club of rowers in Ghent."
    assert [body.content for body, _ in rules(text).memories([memory(text, "The user Ghent.")], {})] == [text]
    assert [
        body.content for body, _ in rules(text).memories([memory(text, "The user is in a club in Ghent.")], {})
    ] != [text]


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        (("Wir sind fünf Leute. Eigentlich wollte mein Bruder kommen, also vier.",), True),
        (("We are five people.", "OK.", "Sorry, six people."), True),
        (("We are five people.", "OK.", "Sorry, I was away."), False),
        (("We are five people. I have two cats.",), False),
        (("We are five people. Actually five and no more.",), False),
    ],
)
def test_a_count_that_is_corrected_does_not_count(texts: tuple[str, ...], wrong: bool) -> None:
    lines = conversation(*texts)
    first = texts[0].partition(". ")[0]
    found = find(first, lines)
    assert found is not None
    assert corrected(found, first, lines) is wrong


@pytest.mark.parametrize(
    ("first", "second", "there"),
    [
        ("has", "a cold", True),
        ("is", "allergic", True),
        ("a", "cold", True),
        ("has", "cold", False),
        ("", "cold", False),
    ],
)
def test_words_that_are_said_together(first: str, second: str, there: bool) -> None:
    assert said_together(first, second, "She's allergic, and she has a cold.") is there


def test_a_memory_of_the_assistants_promise_says_what_it_promised() -> None:
    promise = "I'll remember: allotment 44B, gate code 9071."
    for said in ("The user keeps bees.", "The assistant will remember the gate code 9071."):
        stored = [body.content for body, _ in rules("44B.", promise).memories([memory(promise, said)], {})]
        assert stored == [said if "9071" in said else promise]


def test_a_memory_that_adds_what_its_message_does_not_say_is_put_into_the_users_words() -> None:
    text = "Please write polite letters to the teacher and short letters to the accountant."
    more = f"The son has a date with the dentist on the day of the big feast. {text}"
    stored = [body.content for body, _ in rules(text).memories([memory(text, more)], {})]
    assert stored == [text]


@pytest.mark.parametrize("value", ["usted", "far away"])
def test_a_relative_is_named_or_counted(value: str) -> None:
    text = "My accountant lives far away and says usted to me, my two accountants do."
    assert rules(text).facts([fact(text, value, "accountant")]) == []


# --- The whole way ----------------------------------------------------------------------------------------------------


async def test_a_session_keeps_what_the_model_left_out(service: Service, llm: Model) -> None:
    said = "My wife Nuala and I planted the tomatoes on the balcony. Keep your answers short please."
    await talk(service, said, "Noted.", "I like tea and cake.")
    llm.says["LearnedMemories"] = {"memories": [learned("I like tea and cake.", 3)]}
    done = await end(service)
    assert done["status"] == "succeeded"
    memories = {one["content"]: one["source"] for one in await kept(service)}
    assert set(memories) == {"I like tea and cake.", "My wife Nuala and I planted the tomatoes on the balcony."}
    for text, source in memories.items():
        assert source["origin"] == "extraction"
        assert find(source["quote"], conversation(text)) is not None
    facts = (await service.client.get("/v1/facts", params={"user_id": "u"})).json()["items"]
    assert [(one["predicate"], one["object"]) for one in facts] == [("wife", "Nuala")]
    profile = (await service.client.get("/v1/users/u/profile")).json()
    assert profile["conversation_preferences"] == ["Keep your answers short please."]


SENTENCES = (
    "Alex is my sister-in-law and paints.",
    "My neighbour keeps red hens near Leeds.",
    "I ride a green bicycle to the office.",
    "The boat lies in the harbour of Ghent.",
)


@settings(deadline=None, max_examples=60)
@given(st.permutations(SENTENCES), st.integers(0, 3), st.integers(0, 3), st.data())
def test_a_memory_never_joins_words_of_two_sentences(
    said: list[str], one: int, other: int, data: st.DataObject
) -> None:
    """A model that lies with the user's own words gets at most a sentence of the user's stored."""
    first, second = (
        data.draw(st.sampled_from([word for word in said[at].rstrip(".").split() if len(word) > 3]))
        for at in (one, other)
    )
    text = " ".join(said)
    content = f"The user {first} {second}."
    for body, _ in rules(text).memories([memory(said[one], content)], {}):
        assert body.content in said or {*second.split()} <= {*said[one].rstrip(".").split()}, body.content
