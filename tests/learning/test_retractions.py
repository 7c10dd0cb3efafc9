"""What a speaker stands for: plans that were given up, stories, fragments and values that are set anew leave no record.

Each rule has cases that it refuses and, beside them, near ones that stay.
"""

from dataclasses import replace

import pytest

from app.learning import evidence, quotes, retractions
from app.learning.extraction import Rules
from app.learning.prompts import LearnedLesson, ProfileItem
from app.learning.quotes import find
from tests.learning.test_evidence import conversation, fact, memory, rules


def stored(talk: Rules, quote: str, content: str) -> list[str]:
    return [body.content for body, _ in talk.memories([memory(quote, content)], {})]


def quote_of(rule: Rules, text: str) -> quotes.Quote:
    found = find(text, rule.lines)
    assert found is not None
    return found


def wish(quote: str, value: str, field: str = "interest") -> ProfileItem:
    return ProfileItem.model_validate({"quote": quote, "field": field, "about": None, "value": value})


# --- Given up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "former", "now"),
    [
        ("I was going to live in Oslo, but I live in Leith", "Oslo", "Leith"),
        ("Ich hatte vor, in Oslo zu wohnen, aber ich wohne in Kiel", "Oslo", "Kiel"),
        ("Iba a vivir en Oslo, pero vivo en Gijón", "Oslo", "Gijón"),
        ("J'allais habiter à Oslo, mais j'habite à Nantes", "Oslo", "Nantes"),
        ("Volevo vivere a Oslo, ma vivo a Lecce", "Oslo", "Lecce"),
        ("I used to live in Oslo, now I live in Leith", "Oslo", "Leith"),
        ("Als Kind wohnte ich in Oslo, ich wohne in Kiel", "Oslo", "Kiel"),
        ("De niña vivo en Oslo, hoy vivo en Gijón", "Oslo", "Gijón"),
        ("I said we live in Oslo, but we live in Bergen", "Oslo", "Bergen"),
        ("Ich sagte, ich wohne in Kiel, aber ich wohne in Plön", "Kiel", "Plön"),
        ("Dije que vivo en Gijón, pero vivo en Oviedo", "Gijón", "Oviedo"),
    ],
)
def test_a_plan_that_was_given_up_is_no_fact_and_what_became_of_it_is(text: str, former: str, now: str) -> None:
    rule = rules(text)
    kept = rule.facts([fact(text, former), fact(text, now)])
    assert [body.object for body, _ in kept] == [now]
    assert retractions.given_up(quote_of(rule, text), former)
    assert not retractions.given_up(quote_of(rule, text), now)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I was going to say that I live in Oslo", "Oslo"),
        ("Ich hatte vor zu sagen, dass ich in Kiel wohne", "Kiel"),
        ("Había pensado contarte que vivo en Gijón", "Gijón"),
        ("Volevo dirti che vivo a Lecce", "Lecce"),
        ("I thought of you, and I live in Oslo", "Oslo"),
        ("I used to run marathons, live in Oslo, and swim", "Oslo"),
        ("I told you that I live in Oslo", "Oslo"),
        ("I told them that I live in Oslo, but they forgot", "Oslo"),
        ("Ich habe gesagt, dass ich in Kiel wohne, aber niemand hört zu", "Kiel"),
        ("Dije que vivo en Gijón, pero nadie escucha", "Gijón"),
    ],
)
def test_what_was_meant_to_be_said_or_was_not_heard_is_no_plan(text: str, value: str) -> None:
    rule = rules(text)
    assert [body.object for body, _ in rule.facts([fact(text, value)])] == [value]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("I play the cello, but I gave it up", False),
        ("Ich spiele Cello, aber ich habe aufgehört", False),
        ("Toco el cello, pero lo dejé y no me acuerdo", False),
        ("I play the cello, but I gave up smoking in March", True),
        ("Ich spiele Cello und habe im März mit dem Rauchen aufgehört", True),
        ("Toco el cello, pero en marzo dejé de fumar", True),
    ],
)
def test_what_is_over_is_no_interest(text: str, kept: bool) -> None:
    value = "cello" if "cello" in text else "Cello"
    assert bool(rules(text).profile([wish(text, value)])) is kept
    assert retractions.given_up(quote_of(rules(text), text), value) is not kept


@pytest.mark.parametrize(
    ("text", "former"),
    [
        ("We said Monday for the party but the hall is taken, so it's Friday", "Monday"),
        ("We said the blue sofa, but it is the green one", "blue sofa"),
        ("本来要住在上海，现在不去了", "上海"),
    ],
)
def test_what_was_said_before_is_given_up_if_something_else_follows(text: str, former: str) -> None:
    assert retractions.given_up(quote_of(rules(text), text), former)
    without = text.split(" but")[0].split(", but")[0].replace("本来", "")
    assert not retractions.given_up(quote_of(rules(without), without), former)


def test_what_a_plan_was_is_kept_with_what_became_of_it() -> None:
    text = "I thought of a second cello teacher for Ada, but she does fine"
    rule = rules(text)
    assert stored(rule, text, "The user has a second cello teacher.") == [text]
    assert rule.dropped["reworded"] == 1
    assert retractions.given_up(quote_of(rule, text), "second cello teacher")
    assert not retractions.given_up(quote_of(rule, text), text)


# --- Set anew ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "later", "value"),
    [
        ("We meet on Monday.", "I said Monday, but it is on Friday.", "Monday"),
        ("On ouvre le lundi.", "Finalement on ouvre le jeudi, pas le lundi.", "lundi"),
        ("J'ouvre du mardi au samedi.", "Finalement on ferme mardi, on ouvre dimanche.", "mardi"),
        ("Wir treffen uns am Montag.", "Nun doch nicht Montag, sondern Freitag.", "Montag"),
        ("The tour takes six days.", "Make it eight.", "six days"),
        ("Die Tour dauert sechs Tage.", "Machen wir lieber acht.", "sechs Tage"),
        ("La ruta dura seis días.", "Mejor pon ocho.", "seis días"),
        ("金额大概三十五万。", "不对，看错了，是三十一万。", "三十五万"),
        ("On arrive le 3, non, le 4, il y a une fête.", "", "3"),
        ("Wir kommen am 3, nein, am 4, da ist ein Fest.", "", "3"),
        ("Llegamos el 3, no, el 4, hay una fiesta.", "", "3"),
        ("We arrive on the 3rd, no, the 4th, there is a party.", "", "3rd"),
    ],
)
def test_a_value_that_is_set_anew_is_taken_back(first: str, later: str, value: str) -> None:
    lines = conversation(first, "Noted.", later)
    found = find(value, lines)
    assert found is not None
    assert retractions.withdrawn(found, value, lines) == "taken_back"
    assert retractions.withdrawn(found, value, [lines[0]]) == (None if later else "taken_back")


@pytest.mark.parametrize(
    ("first", "later", "value"),
    [
        ("The tour takes six days.", "Make it snappy.", "six days"),
        ("Die Tour dauert sechs Tage.", "Machen wir lieber einen Plan.", "sechs Tage"),
        ("La ruta dura seis días.", "Mejor pon una lista.", "seis días"),
        ("We meet on Monday.", "Finally a free day, on Friday.", "Monday"),
        ("We arrive on the 3rd, no, really, there is a party.", "", "party"),
    ],
)
def test_a_request_or_another_day_sets_no_value_anew(first: str, later: str, value: str) -> None:
    lines = conversation(first, "Noted.", later)
    found = find(value, lines)
    assert found is not None
    assert retractions.withdrawn(found, value, lines) is None


def test_a_sentence_that_corrects_itself_stands_as_a_whole() -> None:
    text = "On arrive le 3, non, le 4, il y a une fête."
    assert stored(rules(text), text, text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "The walk along the Dales Way takes six days. Sorry, eight.",
        "Die Wanderung auf dem Rennsteig dauert sechs Tage. Nein, Moment, acht.",
        "La ruta por los Picos dura seis días. Perdón, ocho.",
    ],
)
def test_a_memory_that_holds_the_correction_stands_as_a_whole(text: str) -> None:
    first = quotes.sentences(text)[0]
    assert stored(rules(text), text, text) == [text]
    assert retractions.without_withdrawn(
        f"{first} I walk alone.", quote_of(rules(f"{first} I walk alone. Make it eight."), first), ()
    )


def test_of_a_quote_the_sentences_that_stand_are_kept() -> None:
    lines = ("I walk the Dales Way in May. It takes six days.", "Fine.", "Make it eight.")
    assert stored(rules(*lines), lines[0], lines[0]) == ["I walk the Dales Way in May."]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Forget what I said about my love of Oslo.", "Oslo"),
        ("Bitte vergiss, dass ich Segeln liebe.", "Segeln"),
        ("Por favor, olvida que me gusta la vela.", "vela"),
        ("Oublie que j'aime la voile.", "voile"),
    ],
)
def test_what_is_to_be_forgotten_is_not_learned(text: str, value: str) -> None:
    rule = rules(text)
    assert rule.profile([wish(text, value)]) == []
    assert dict(rule.dropped) == {"taken_back": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I forget names, I love Oslo.", "Oslo"),
        ("Forget it! I love Oslo.", "Oslo"),
        ("They ignore me, I love Oslo.", "Oslo"),
        ("Ich vergesse Namen, aber ich liebe Segeln.", "Segeln"),
        ("Vergiss nicht, dass ich Segeln liebe.", "Segeln"),
        ("Me olvido de todo, pero me gusta la vela.", "vela"),
    ],
)
def test_who_forgets_or_wants_nothing_forgotten_is_learned_from(text: str, value: str) -> None:
    assert [one.value for one, _ in rules(text).profile([wish(text, value)])] == [value]


# --- Stories ----------------------------------------------------------------------------------------------------------

STORIES = (
    ("My novel is stuck: the hero is a pilot.", "She drinks since her husband Nils moved to Tromsø.", "husband"),
    ("Mein Roman hängt: die Heldin ist Pilotin.", "Sie trinkt, seit ihr Mann Nils nach Tromsø zog.", "Mann"),
    ("Mi novela está parada: la heroína es piloto.", "Ella bebe desde que su marido Nils vive en Tromsø.", "marido"),
)


@pytest.mark.parametrize(("story", "said", "relation"), STORIES)
def test_somebody_in_a_story_is_no_person_of_the_users(story: str, said: str, relation: str) -> None:
    rule = rules(story, "Why?", said)
    assert stored(rule, said, said) == []
    assert rule.facts([fact(said, "Nils", relation)]) == []
    assert rule.dropped["fiction"] >= 1
    assert stored(rules("Hello.", "Why?", said), said, said) == [said]


@pytest.mark.parametrize(
    ("story", "real", "said"),
    [
        (STORIES[0][0], "My sister is ill.", "She drinks a lot of tea since May."),
        (STORIES[1][0], "Meine Schwester ist krank.", "Sie trinkt seit Mai sehr viel Tee."),
        (STORIES[2][0], "Mi hermana está enferma.", "Ella bebe mucho té desde mayo."),
    ],
)
def test_a_person_whom_the_user_names_after_the_story_is_real(story: str, real: str, said: str) -> None:
    assert stored(rules(story, "Why?", f"{real} {said}"), said, said) == [said]
    assert stored(rules(story, "Who helps?", real, "And?", said), said, said) == [said]
    assert stored(rules(real, "And?", story, "Why?", said), said, said) == []


def test_a_story_that_is_long_is_no_fiction() -> None:
    said = "He drives the van to Tromsø every week."
    assert stored(rules("My uncle is a baker, long story.", "I see.", said), said, said) == [said]


# --- What states nothing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "text", "kept"),
    [
        ("What has keys and opens no lock?", "a piano, easy", False),
        ("Was hat Tasten und öffnet kein Schloss?", "ein Klavier, leicht", False),
        ("¿Qué tiene teclas y no abre nada?", "un piano, fácil", False),
        ("What is your favourite instrument?", "a piano, easy", True),
        ("Was ist dein Lieblingsinstrument?", "ein Klavier, leicht", True),
        ("¿Cuál es tu instrumento favorito?", "un piano, fácil", True),
        ("Any allergies?", "nuts mostly", True),
        ("Allergien?", "ein paar Nüsse", True),
        ("¿Alergias?", "sobre todo nueces", True),
        ("Hello.", "oh right nice", False),
        ("Hallo.", "ach ja klar", False),
        ("Hola.", "ah sí claro", False),
        ("Hello.", "no nuts", True),
        ("Hallo.", "keine Nüsse", True),
        ("Hola.", "sin nueces", True),
        ("Hello.", "room 14", True),
        ("Hello.", "a towel. come on", False),
        ("Hello.", "the boat, tomorrow", True),
        ("Hallo.", "das Boot, morgen", True),
        ("Hola.", "el barco, mañana", True),
    ],
)
def test_a_few_words_that_state_nothing_are_no_memory(asked: str, text: str, kept: bool) -> None:
    rule = rules("Hi.", asked, text)
    assert (stored(rule, text, text) == [text]) is kept
    assert kept or rule.dropped["fragment"] + rule.dropped["small_talk"] == 1


def test_a_few_words_beside_a_statement_are_a_part_of_it() -> None:
    assert stored(rules("We fix the boat. A saw, a file."), "A saw, a file.", "A saw, a file.") == ["A saw, a file."]


def test_a_condition_that_repeats_the_memory_is_none() -> None:
    text = "I drink tea at home"
    rule = rules(text)
    found = rule.memories([memory(text, text, context=text), memory(text, text, context="at home")], {})
    assert [body.context for body, _ in found] == [None, "at home"]
    assert dict(rule.dropped) == {"context": 1}


def test_of_a_quote_the_sentences_that_another_says_are_left_out() -> None:
    own = "I got this flyer from the neighbour who paints boats in the old harbour of Leith."
    text = f'{own} "Ada keeps brown bees in her garden."'
    assert stored(rules(text), text, text) == [own]


# --- Of another, or in words that nobody said -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "thing", "state"),
    [
        ("Nils comes to us by train, his boat is broken so I fetch him", "boat", "broken"),
        ("Uschi kommt mit dem Zug, ihr Boot ist kaputt und ich hole sie", "Boot", "kaputt"),
        ("Nuria viene en tren, su barco está roto y yo la recojo", "barco", "roto"),
    ],
)
def test_what_is_said_of_the_thing_of_another_is_not_the_users(text: str, thing: str, state: str) -> None:
    rule = rules(text)
    assert rule.facts([fact(text, state, thing)]) == []
    assert dict(rule.dropped) == {"of_another_person": 1}


@pytest.mark.parametrize(
    ("text", "thing", "state"),
    [
        ("Nils fetches me, my boat is broken", "boat", "broken"),
        ("Uschi holt mich, mein Boot ist kaputt", "Boot", "kaputt"),
        ("Nuria me recoge, mi barco está roto", "barco", "roto"),
    ],
)
def test_what_is_said_of_the_users_thing_is(text: str, thing: str, state: str) -> None:
    assert [body.object for body, _ in rules(text).facts([fact(text, state, thing)])] == [state]


@pytest.mark.parametrize(
    ("text", "content", "said"),
    [
        ("I train to join the firemen in Gijón", "The user is a fireman.", "The user trains to join the firemen."),
        ("We record in a flat of a friend, in Triana", "The user likes Triana.", "The user records in a flat."),
        ("Ich lerne mit den Bäckern in Plön", "Der Nutzer arbeitet in Plön.", "Der Nutzer lerne in Plön."),
        ("Estudio con los bomberos de Gijón", "El usuario trabaja en Gijón.", "El usuario estudio con los bomberos."),
        ("我本周要看黄山的照片", "用户喜欢黄山", "用户要看黄山的照片"),
    ],
)
def test_a_memory_has_no_verb_that_nobody_said(text: str, content: str, said: str) -> None:
    rule = rules(text)
    assert content not in stored(rule, text, content)
    assert retractions.says_verbs(content, quote_of(rule, text)) == "other_words"
    assert retractions.says_verbs(said, quote_of(rule, text)) is None


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("I prefer tea", "The user likes tea."),
        ("Ich mag Tee", "Der Nutzer bevorzugt Tee."),
        ("Me gusta el té", "El usuario prefiere el té."),
    ],
)
def test_a_verb_that_was_said_in_other_words_is_no_objection(text: str, content: str) -> None:
    assert stored(rules(text), text, content) == [content]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I thought about my job, but with the loan impossible", "impossible"),
        ("Ich denke an meinen Job, aber mit dem Kredit unmöglich", "unmöglich"),
        ("Pienso en mi trabajo, pero con el crédito imposible", "imposible"),
    ],
)
def test_a_predicate_is_not_said_behind_a_contrast(text: str, value: str) -> None:
    rule = rules(text)
    assert rule.facts([fact(text, value, "works_as")]) == []
    assert dict(rule.dropped) == {"predicate_not_said": 1}


def test_a_predicate_is_said_behind_a_contrast_that_has_its_word() -> None:
    text = "I have a loan, but I work as a baker"
    assert [body.object for body, _ in rules(text).facts([fact(text, "baker", "works_as")])] == ["baker"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("El jueves vivo en Gijón", None),
        ("El violín lo toco en Gijón", None),
        ("Él toca en Gijón", "of_another_person"),
        ("El vive en Gijón", "of_another_person"),
    ],
)
def test_a_spanish_article_is_no_other_person(text: str, reason: str | None) -> None:
    assert evidence.about_user(quote_of(rules(text), text), "Gijón") == reason


# --- Wishes and lessons -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "kept"),
    [
        ("Twenty minutes, because of the neighbours' baby, is what I have", "baby", False),
        ("Zwanzig Minuten, wegen dem Baby nebenan, habe ich", "Baby", False),
        ("Veinte minutos, por la siesta, tengo para el violín", "siesta", False),
        ("Please keep it to twenty words", "twenty words", True),
        ("Bitte nur zwanzig Wörter", "zwanzig Wörter", True),
        ("Responde en veinte palabras", "veinte palabras", True),
        ("Don't call me Mister, I am Zeb", "Zeb", True),
    ],
)
def test_a_wish_for_answers_is_about_answers(text: str, value: str, kept: bool) -> None:
    rule = rules(text)
    assert bool(rule.profile([wish(text, value, "conversation_preference")])) is kept
    assert dict(rule.dropped) == ({} if kept else {"field_not_said": 1})


def lesson(quote: str, text: str) -> LearnedLesson:
    return LearnedLesson(quote=quote, kind="heuristics", text=text)


@pytest.mark.parametrize(
    ("quote", "text", "reason"),
    [
        ("I go on holiday to see rocks", "Use geology tools to plan holidays.", "not_shown"),
        ("I go on holiday to see rocks", "Go on holiday to see rocks.", "not_shown"),
        ("Ich fahre in Urlaub zu Felsen", "Fahre in Urlaub zu Felsen.", "not_shown"),
        ("Voy de vacaciones a ver rocas", "Ir de vacaciones a ver rocas.", "not_shown"),
        ("The upload failed until we split the file", "I split the file.", "of_one_user"),
        ("The upload failed until we split the file", "Water the roses.", "not_shown"),
        ("The upload failed until we split the file", "Split the file before an upload.", None),
        ("Das Hochladen hat erst mit kleinen Dateien geklappt", "Kleine Dateien hochladen.", None),
        ("La subida siempre fallo con el archivo grande", "Dividir el archivo antes de la subida.", None),
    ],
)
def test_a_lesson_needs_an_outcome_in_words_that_were_said(quote: str, text: str, reason: str | None) -> None:
    rule = rules(quote)
    assert bool(rule.lessons([lesson(quote, text)], {})) is (reason is None)
    assert dict(rule.dropped) == ({reason: 1} if reason else {})


def test_what_a_tool_gave_back_is_evidence_of_a_lesson() -> None:
    said = "Find me a flight to Oslo"
    talk = rules(said)
    called = replace(talk, lines=[*talk.lines, replace(talk.lines[0], seq=2, role="tool", text="unknown city")])
    code = lesson(said, "Search by codes.")
    assert (talk.lessons([code], {}), called.lessons([code], {})) == ([], [code])
