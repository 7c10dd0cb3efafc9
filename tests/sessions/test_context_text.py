"""The text of a session's last messages: what does not fit is not read."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from app.sessions.service import as_many_as_could_fit, fit

LINES = st.lists(st.text(alphabet="ab \n.汉é", max_size=40), max_size=12)


def test_messages_behind_the_budget_are_not_made() -> None:
    made = 0

    def newest_first() -> Iterator[str]:
        nonlocal made
        for number in range(100):
            made += 1
            yield f"user: {'the weather was fine ' * 1_500}{number}"

    assert len([*as_many_as_could_fit(newest_first(), 10_000)]) == made == 2
    assert len([*as_many_as_could_fit(newest_first(), None)]) == 100


@settings(deadline=None)
@given(LINES, st.lists(st.text(alphabet="ab ", max_size=20), max_size=1), st.integers(0, 60))
def test_the_text_is_the_same_as_if_all_were_read(oldest_first: list[str], head: list[str], budget: int) -> None:
    kept = [*as_many_as_could_fit(reversed(oldest_first), budget)][::-1]
    assert fit(head, kept, budget) == fit(head, oldest_first, budget)
