"""The order of the first hits: newer before older, a statement before a question and before what an assistant said, and
what replaces another before it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memories.schemas import MEMORIES
from app.retrieval.first_hits import (
    FIRST,
    NO_ORDER,
    PROPERTIES,
    compare_hits,
    find_alike,
    find_reversed,
    first_hits,
    gains,
    merged,
    order_first_hits,
    properties,
    repetitions_among,
    same_subject,
)
from app.retrieval.model_weights import DEFAULT, FirstHitWeights, Weights, weights_for
from app.retrieval.query import SettledQuery
from app.retrieval.ranking import Ranked
from app.storage.protocol import Fetched
from app.storage.search import Columns, Floats
from app.storage.text import IS_QUESTION, SAID_BY_ASSISTANT, SAID_BY_USER, SUMMARY, name_id
from tests.support.columns import NOBODY, NOW, columns_of, rank, scopes

NEWER = replace(DEFAULT.weights, first_turns=FirstHitWeights(newness=1.0, statement=2.0))
NO_PARTS: Mapping[str, Floats] = {}
RENEWED = replace(DEFAULT.weights, first_plain=FirstHitWeights(replaced=-1.0))


def conversation(n: int, by_assistant: int | None) -> Columns:
    """n turns of one session, oldest first, the one at `by_assistant` an assistant's."""
    said = np.arange(n) == (-1 if by_assistant is None else by_assistant)
    return replace(
        columns_of(n),
        session=np.zeros(n, np.int64),
        speaker=np.where(said, name_id("assistant"), name_id("user")),
        flags=np.where(said, SAID_BY_ASSISTANT, SAID_BY_USER),
        time=np.arange(n) * 1_000,
        has_vector=np.zeros(n, bool),
    )


def notes(*hits: list[int]) -> Columns:
    """Plain memories, oldest first, that have these terms of the query as often as said."""
    terms = np.array(hits, np.float32).T
    columns = replace(columns_of(len(hits)), time=np.arange(len(hits)) * 1_000, has_vector=np.zeros(len(hits), bool))
    return replace(columns, term_counts=terms, df=np.count_nonzero(terms, axis=1).astype(np.float32))


Parts = Mapping[str, Floats]


def order_and_gain(
    columns: Columns, odds: Sequence[float], weights: Weights, query: SettledQuery = NOBODY, parts: Parts = NO_PARTS
) -> tuple[list[int], Floats | None]:
    """The texts are taken to speak of one subject."""
    of_each = np.array(odds, np.float32)
    ranked = Ranked((-of_each).argsort(kind="stable"), of_each, dict(parts))
    first = first_hits(ranked, columns, query, weights)
    order_first_hits(ranked, columns, first, weights, first.may_replace)
    return list(ranked.order.tolist()), ranked.other_parts.get("first")


def ordered(columns: Columns, odds: list[float], weights: Weights, query: SettledQuery = NOBODY) -> list[int]:
    return order_and_gain(columns, odds, weights, query)[0]


def properties_of(
    columns: Columns, odds: Sequence[float], group: Sequence[int], parts: Parts = NO_PARTS, *, past: bool = False
) -> Floats:
    first = compare_hits(columns, np.array(group), later_replaces=not past)
    replaced = [(at, later) for later in group for at in group if columns.time[at] < columns.time[later]]
    return properties(columns, np.array(odds, np.float32), first, parts, replaced)


def test_of_two_memories_with_the_same_words_of_the_query_the_later_is_first() -> None:
    columns = notes([1, 1], [1, 1], [0, 1])
    assert ordered(columns, [0.5, 0.0, -3.0], RENEWED) == [1, 0, 2]


@pytest.mark.parametrize("model", ["recalld-minilm-1", "multilingual-e5-small-aligned"])
def test_with_the_weights_of_both_models_a_later_statement_comes_first(model: str) -> None:
    weights = weights_for(model).weights
    assert ordered(notes([1, 1], [1, 1], [0, 1]), [0.5, 0.0, -3.0], weights) == [1, 0, 2]
    told = replace(conversation(3, by_assistant=2), cosine=np.zeros(3, np.float32))
    assert ordered(told, [0.5, 0.0, -1.0], weights) == [1, 0, 2]


def test_a_summary_replaces_nothing_and_is_no_newer_than_what_it_repeats() -> None:
    columns = replace(notes([1, 1], [1, 1]), flags=np.array([0, SUMMARY]))
    assert ordered(columns, [0.5, 0.0], RENEWED) == [0, 1]
    newness = PROPERTIES.index("newness")
    assert properties_of(columns, [0.5, 0.0], [0, 1])[newness].tolist() == [0, 0]
    assert properties_of(replace(columns, flags=np.array([0, 0])), [0.5, 0.0], [0, 1])[newness, 1] > 0


def test_a_memory_stands_for_the_summary_that_repeats_it() -> None:
    columns = replace(notes([1], [1], [1]), flags=np.array([0, 0, SUMMARY]))
    documents = dict.fromkeys(range(3), Fetched({"content": "The user likes tea."}))
    (repetition,) = repetitions_among(columns, [[0, 1, 2]], documents, MEMORIES.spec)
    assert repetition == [1, 0, 2]
    assert merged(columns, [[0, 2]], [[2, 1]]) == [[1, 0, 2]]


def test_without_the_evidence_of_the_texts_no_memory_replaces_another() -> None:
    columns, ranked = notes([1, 1], [1, 1]), Ranked(np.arange(2), np.array([0.5, 0.0], np.float32), {})
    first = first_hits(ranked, columns, NOBODY, RENEWED)
    assert first.may_replace == [(0, 1)]
    order_first_hits(ranked, columns, first, RENEWED)
    assert ranked.order.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("earlier", "later", "query"),
    [
        ("The budget is 20k", "Sorry, the budget is 12k", "What is the budget?"),
        ("The meeting is on Tuesday at 4", "The meeting is on Thursday at 5", "When is the meeting?"),
        (
            "Forty guests come to the party",
            "Only twenty guests come to the party",
            "How many guests come to the party?",
        ),
        ("Our contact is Mr. Olsen", "Ms. Varga has replaced Mr. Olsen as our contact", "Who is our contact?"),
        ("Sie hat Schuhgröße 38", "Korrektur: Sie hat Schuhgröße 39, nicht 38", "Welche Schuhgröße hat sie?"),
        ("Vivo en Madrid", "Perdón, vivo en Sevilla", "¿Dónde vivo?"),
        ("Mon médecin est Blanc", "Mon médecin est Noir", "Qui est mon médecin ?"),
        ("我住在杭州", "我住在上海", "我住在哪里？"),
    ],
)
def test_a_new_value_is_about_the_same_subject(earlier: str, later: str, query: str) -> None:
    assert same_subject(earlier, later, query)


@pytest.mark.parametrize(
    ("earlier", "later", "query"),
    [
        ("My dog is called Rex", "My sister's dog is called Bo", "What is my dog called?"),
        (
            "The API key for staging is in A7",
            "The API key for staging backups is in C2",
            "Where is the API key for staging?",
        ),
        (
            "The budget for marketing is 20k",
            "The budget for marketing events is 12k",
            "What is the budget for marketing?",
        ),
        ("I live in Oslo", "My brother lives in Turin", "Where do I live?"),
        ("Mein Chef heißt Ruth", "Der Chef meiner Frau heißt Ingo", "Wie heißt mein Chef?"),
        ("Mi cumpleaños es el 3 de mayo", "El cumpleaños de mi madre es el 9 de junio", "¿Cuándo es mi cumpleaños?"),
        ("Mon chien s'appelle Filou", "Le chien de ma sœur s'appelle Bijou", "Comment s'appelle mon chien ?"),
        ("我的狗叫雷克斯", "我姐姐的狗叫波波", "我的狗叫什么？"),
        ("My flight leaves at 9", "Tom's flight leaves at 11", "When does my flight leave?"),
        ("Il mio cane si chiama Rex", "Il cane di mia sorella si chiama Bo", "Come si chiama il mio cane?"),
    ],
)
def test_a_new_owner_or_part_is_another_subject(earlier: str, later: str, query: str) -> None:
    assert not same_subject(earlier, later, query)


def test_a_later_memory_with_fewer_words_of_the_query_does_not_come_first() -> None:
    assert ordered(notes([1, 1], [0, 1]), [0.9, 0.0], RENEWED) == [0, 1]


def test_a_later_memory_that_is_far_behind_renews_nothing() -> None:
    assert properties_of(notes([1], [1]), [4.0, 0.0], range(2))[-1].tolist() == [0, 0]


def test_a_text_that_is_said_again_renews_nothing() -> None:
    columns = replace(notes([1, 1], [1, 1]), content=np.zeros(2, np.int64))
    assert ordered(columns, [0.5, 0.0], RENEWED) == [0, 1]


def test_a_query_for_the_earliest_or_for_a_time_keeps_the_order() -> None:
    columns = notes([1], [1])
    assert ordered(columns, [0.5, 0.0], RENEWED, replace(NOBODY, order="earliest")) == [0, 1]
    named = {"when": np.ones(2, np.float32)}
    assert order_and_gain(columns, [0.5, 0.0], RENEWED, parts=named) == ([0, 1], None)


def test_what_another_one_says_or_asks_later_renews_nothing() -> None:
    columns = conversation(3, by_assistant=1)
    columns.flags[2] |= IS_QUESTION
    columns = replace(columns, term_counts=np.ones((1, 3), np.float32), df=np.array([3], np.float32))
    assert properties_of(columns, [0] * 3, range(3))[-1].tolist() == [0, 0, 0]


def test_of_equal_turns_the_newest_statement_is_first_and_the_assistants_last() -> None:
    columns = conversation(4, by_assistant=3)
    columns.flags[2] |= IS_QUESTION
    order, gained = order_and_gain(columns, [0] * 4, NEWER)
    assert order == [1, 0, 2, 3]
    assert gained is not None
    assert gained[1] > gained[0] == 0 > gained[2] >= gained[3]


def test_what_an_assistant_answered_to_the_same_question_is_second_hand() -> None:
    columns = conversation(4, by_assistant=2)  # a statement; the question; the assistant's answer; a statement
    columns = replace(columns, previous=np.arange(-1, 3), following=np.array([1, 2, 3, -1]))
    columns.flags[1] |= IS_QUESTION
    echo = {"echo": np.array([0, 1, 0, 0], np.float32)}
    at = PROPERTIES.index("second_hand")
    assert properties_of(columns, [0] * 4, (2, 0, 3), echo)[at].tolist() == [1, 0, 0]
    assert properties_of(columns, [0] * 4, (2, 0, 3))[at].tolist() == [0, 0, 0]


def test_in_a_talk_of_named_people_the_order_stays() -> None:
    columns = conversation(4, by_assistant=None)
    columns.speaker[:] = name_id("Ada")
    assert order_and_gain(columns, [0] * 4, NEWER) == ([0, 1, 2, 3], None)


def test_what_a_user_writes_down_alone_is_ordered() -> None:
    columns = conversation(4, by_assistant=None)
    assert ordered(columns, [0.0] * 4, NEWER) == [3, 2, 1, 0]


def test_without_weights_the_order_stays() -> None:
    weights = replace(DEFAULT.weights, first_turns=NO_ORDER)
    assert order_and_gain(conversation(4, by_assistant=3), [0] * 4, weights) == ([0, 1, 2, 3], None)


def test_the_newness_of_a_long_text_counts_less() -> None:
    columns = notes([1], [1], [1])
    columns.length[:] = (10, 10, 400)
    newness = properties_of(columns, [0] * 3, range(3), past=True)[PROPERTIES.index("newness")]
    assert newness[1] > newness[2] == newness[0] == 0


def test_plain_memories_keep_their_log_odds_where_turns_are_ordered() -> None:
    columns = conversation(4, by_assistant=3)
    columns.session[1] = -1
    _, gained = order_and_gain(columns, [0] * 4, NEWER)
    assert gained is not None
    assert gained[1] == 0
    assert gained[2] > gained[0] > gained[3]


@given(
    st.integers(2, FIRST),
    st.lists(st.floats(-10, 10), min_size=len(PROPERTIES), max_size=len(PROPERTIES)),
)
def test_the_first_one_gains_nothing(n: int, weights: list[float]) -> None:
    columns = conversation(n, by_assistant=0)
    columns.session[n // 2 :] = -1
    first = compare_hits(columns, np.arange(n))
    found = properties(columns, -np.arange(n).astype(np.float32), first, {})
    assert found.shape == (len(PROPERTIES), n)
    of_both = FirstHitWeights(*weights)
    gain = gains(found, first, replace(DEFAULT.weights, first_turns=of_both, first_plain=of_both))
    assert gain[0] == gain[n // 2] == 0


@given(
    st.integers(2, FIRST),
    st.lists(st.floats(-10, 10, width=32), min_size=len(PROPERTIES), max_size=len(PROPERTIES)),
    st.lists(st.floats(-4, 4, width=32), min_size=len(PROPERTIES), max_size=len(PROPERTIES)),
)
def test_equal_hits_gain_the_same_at_every_place(n: int, weights: list[float], of_each: list[float]) -> None:
    values = np.tile(np.array(of_each, np.float32)[:, None], n)
    first = compare_hits(notes(*[[1]] * n), np.arange(n), later_replaces=False)
    assert (gains(values, first, replace(DEFAULT.weights, first_plain=FirstHitWeights(*weights))) == 0).all()


def test_a_first_hit_that_loses_is_placed_by_its_score_beyond_the_first() -> None:
    columns = notes([1, 1], [1, 1], *[[0, 1]] * 40)
    order = ordered(columns, [0.5, 0.6, *(0.4 - 0.01 * np.arange(40))], RENEWED)
    assert order == [1, *range(2, 42), 0], "the second memory replaces the first one, which is as probable as the last"


@given(scopes(40))
def test_a_ranking_with_it_is_sorted_by_its_score(columns: Columns) -> None:
    ranked = rank(columns, NOBODY, "hybrid", NOW, replace(NEWER, first_plain=RENEWED.first_plain))
    assert (np.diff(ranked.score[ranked.order]) <= 0).all()
    assert sorted(ranked.order.tolist()) == np.flatnonzero(columns.matched).tolist()


def test_a_text_that_is_said_again_is_as_new_as_its_newest() -> None:
    columns = notes([1], [1], [1])
    columns.content[:] = (7, 8, 7)
    newness = properties_of(columns, [0] * 3, range(3), past=True)[PROPERTIES.index("newness")]
    assert newness[0] == newness[2] > newness[1]


def test_equal_texts_under_two_keys_replace_nothing() -> None:
    columns = notes([1], [1], [1])
    columns.has_vector[:] = True
    columns.cosine[:] = (0.5, 0.5, 0.4)
    of_each = properties_of(columns, [0] * 3, range(3))
    assert of_each[:, 0].tolist() == of_each[:, 1].tolist()
    assert (of_each[:, 0] != of_each[:, 2]).any()


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        ("Who manages Olaf?", "Mira manages Olaf", "Olaf manages Pia"),
        ("Whom does Nadia report to?", "Nadia reports to Beatrice", "Stefan reports to Nadia"),
        ("What depends on the ledger?", "billing depends on ledger", "ledger depends on archive"),
        ("Who is Olaf's parent?", "Mira parent of Olaf", "Olaf parent of Pia"),
        ("Who is the parent of Olaf?", "Mira parent of Olaf", "Olaf parent of Pia"),
        ("¿Quién invitó a Bea?", "Adela invitó a Bea", "Bea invitó a Gonzalo"),
        ("Wer erbt von Irmgard?", "Jo erbt von Irmgard", "Irmgard erbt von Walter"),
        ("Chi ha tamponato Ilaria?", "Un furgone ha tamponato Ilaria", "Ilaria ha tamponato un taxi"),
    ],
)
def test_words_of_the_query_the_other_way_round_are_another_statement(query: str, right: str, wrong: str) -> None:
    assert find_reversed({3: right, 5: wrong}, query) == [5]
    assert find_reversed({5: wrong}, query) == []


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        ("From whom did Grace learn swimming?", "Aunt Jo taught Grace to swim", "Grace taught Harvey to swim"),
        ("Who was hired by Clara?", "Clara hired Mr. Doyle in May", "Clara was hired by Mr. Voss"),
        ("Who was hired by Clara?", "Mr. Doyle was hired by Clara", "Clara was hired by Mr. Voss"),
        ("Who was Clara hired by?", "Mr. Voss hired Clara", "Clara hired Mr. Doyle"),
        (
            "Von wem hat Emil Schach gelernt?",
            "Herr Franke hat Emil Schach beigebracht",
            "Emil hat Jo Schach beigebracht",
        ),
        ("Da chi ha imparato a cucire Sara?", "Sara ha imparato da nonna Pina", "Da Sara ha imparato la vicina"),
        ("Par qui Léa a-t-elle été opérée ?", "Léa a été opérée par Marc", "Léa a opéré le fils de Marc"),
        ("¿Por quién fue elegida Marta?", "Marta fue elegida por el comité", "Marta eligió a Pablo"),
        ("Quem foi convidado pela Inês?", "O Tiago foi convidado pela Inês", "A Inês foi convidada pelo Rui"),
    ],
)
def test_a_by_phrase_says_who_did_it(query: str, right: str, wrong: str) -> None:
    assert find_reversed({3: right, 5: wrong}, query) == [5]
    assert find_reversed({5: wrong}, query) == []


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        ("Wem hat Silke das Auto geliehen?", "Silke hat Martin das Auto geliehen", "Frank hat Silke das Auto geliehen"),
        ("Wer hat Silke das Auto geliehen?", "Frank hat Silke das Auto geliehen", "Silke hat Martin das Auto geliehen"),
        ("Wen hat Paula angezeigt?", "Paula hat den Vermieter angezeigt", "Der Nachbar hat Paula angezeigt"),
        ("¿A quién cuida Rosa?", "Rosa cuida a Nico", "Pilar cuida a Rosa"),
        ("Qui Claire a-t-elle invité au bal ?", "Claire a invité Hugo au bal", "Luc a invité Claire au bal"),
        ("Qui a invité Claire au bal ?", "Luc a invité Claire au bal", "Claire a invité Hugo au bal"),
        (
            "A chi ha prestato i soldi Giulia?",
            "Giulia ha prestato i soldi a Sandro",
            "Marta ha prestato i soldi a Giulia",
        ),
        ("Quem a Joana ensina a tocar?", "A Joana ensina o Pedro a tocar", "O Caio ensina a Joana a tocar"),
    ],
)
def test_the_form_of_a_question_says_whether_the_one_it_names_does_it(query: str, right: str, wrong: str) -> None:
    assert find_reversed({3: right, 5: wrong}, query) == [5]
    assert find_reversed({5: wrong}, query) == []


def test_function_words_the_other_way_round_tell_nothing() -> None:
    older, newer = "Unser Passwort ist Apfelbaum77", "Wir haben das Passwort geändert, es heißt Birnbaum12"
    assert find_reversed({3: older, 5: newer}, "Welches Passwort haben wir?") == []


def test_what_is_turned_falls_behind_what_is_not() -> None:
    columns, ranked = notes([1, 1], [1, 1]), Ranked(np.arange(2), np.array([0.5, 0.0], np.float32), {})
    first = first_hits(ranked, columns, NOBODY, DEFAULT.weights)
    assert first.alike == find_alike(columns, NOBODY, ranked.order, ranked.score) == [[0, 1]]
    order_first_hits(ranked, columns, first, DEFAULT.weights, reversed_words=[0])
    assert ranked.order.tolist() == [1, 0]
