"""Which texts say the same."""

import pytest

from app.retrieval.first_hits import says_the_same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Likes oat milk in coffee", "likes oat milk in her coffee."),
        ("I live in Boston!", "i live in  BOSTON"),
        ("The dog is called Rex", "Dog called Rex"),
        ("Она любит чай.", "она любит чай"),
        ("我喜欢喝茶", "我喜欢喝茶。"),
    ],
)
def test_texts_that_differ_in_stop_words_and_marks_alone_say_the_same(one: str, other: str) -> None:
    assert says_the_same(one, other)
    assert says_the_same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Room 12 has the projector", "Room 14 has the projector"),
        ("The period is 4 seconds", "The period is 4.5 seconds"),
        ("He likes tea", "He does not like tea"),
        ("I like tea", "I don't like tea"),
        ("I can swim", "I can't swim"),
        ("Sie mag Tee", "Sie mag keinen Tee"),
        ("她喜欢茶", "她不喜欢茶"),
        ("Flew from Oslo to Rome", "Flew to Oslo from Rome"),
        ("Turned the heating on", "Turned the heating off"),
        ("She is a nurse", "She was a nurse"),
        ("Ann moved to Boston", "Ben moved to Boston"),
        ("The backend is in C#", "The backend is in C++"),
        ("The backend is in C", "The backend is in C#"),
        ("It was -5 degrees", "It was 5 degrees"),
        ("word " * 400, "word " * 400 + "the"),
    ],
)
def test_texts_that_differ_in_a_number_a_name_or_a_negation_do_not(one: str, other: str) -> None:
    assert not says_the_same(one, other)
