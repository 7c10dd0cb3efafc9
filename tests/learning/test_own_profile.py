"""What users say of themselves, found without a model."""

import pytest

from app.learning.own_profile import further_profile
from app.learning.prompts import ProfileItem
from tests.learning.test_evidence import rules


def said_of_self(*texts: str) -> list[tuple[str, str]]:
    """The fields of the profile that code finds."""
    return [(one.field, str(one.value)) for one, _ in further_profile(rules(*texts), [])]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I live in New Haven with two cats.", [("home", "New Haven")]),
        ("Ich wohne in Kiel, gleich am Hafen.", [("home", "Kiel")]),
        ("Yo vivo en Oviedo y voy en tren.", [("home", "Oviedo")]),
        ("J'habite à Nantes depuis mai.", [("home", "Nantes")]),
        ("Abito a Lecce da tre mesi.", [("home", "Lecce")]),
        ("我住在成都,爸爸在绵阳。", [("home", "成都")]),
        ("My name is Zeb Holm.", [("name", "Zeb Holm")]),
        ("Ich heiße Uschi.", [("name", "Uschi")]),
        ("Me llamo Nuria.", [("name", "Nuria")]),
        ("I work as a bridge inspector in Hull.", [("occupation", "bridge inspector")]),
        ("Ich arbeite als Maurerin.", [("occupation", "Maurerin")]),
        ("Trabajo como albañil en Oviedo.", [("occupation", "albañil")]),
        ("I'm 34 years old.", [("age", "34")]),
        ("Ich bin 34 Jahre alt.", [("age", "34")]),
        ("Tengo 34 años.", [("age", "34")]),
        ("I live in fear of the dentist.", []),
        ("Ich wohne in Untermiete.", []),
        ("My brother lives in Kiel.", []),
        ("My brother says they live in Kiel.", []),
        ("I don't live in Kiel.", []),
        ("If I live in Kiel next year, I need a boat.", []),
        ("Should I tell them I live in Kiel?", []),
        ("I used to live in Kiel.", []),
        ("In my novel I live in Kiel.", []),
        ('Translate: "I live in Kiel and I keep bees in my garden."', []),
        ("我住在一个很小的房子里。", []),
        ("My name is on the list.", []),
        ("I work as hard as I can.", []),
        ("Trabajo como siempre.", []),
        ("Tengo 34 años de experiencia.", []),
        ("J'ai 10 ans d'expérience.", []),
        ("My son is 12 years old.", []),
        ("I have 12 years old rum.", []),
    ],
)
def test_what_users_say_of_themselves(text: str, found: list[tuple[str, str]]) -> None:
    assert said_of_self(text) == found


@pytest.mark.parametrize(
    "texts",
    [
        ("I live in Kiel.", "I see.", "Forget it, I said Kiel, but I live in Plön now."),
        ("Ich wohne in Kiel.", "Aha.", "Ich sagte Kiel, aber es ist Plön."),
        ("Vivo en Gijón.", "Ajá.", "Dije Gijón, pero es Oviedo."),
    ],
)
def test_a_home_that_is_corrected_later_is_none(texts: tuple[str, ...]) -> None:
    assert not {("home", "Kiel"), ("home", "Gijón")} & set(said_of_self(*texts))


def test_a_field_that_the_model_names_is_not_named_again() -> None:
    text = "I live in Kiel."
    home = ProfileItem(quote=text, field="home", about=None, value="Kiel")
    rule = rules(text)
    assert further_profile(rule, rule.profile([home])) == []
    assert said_of_self(text, "Nice.", "As I said, I live in Kiel.") == [("home", "Kiel")]
