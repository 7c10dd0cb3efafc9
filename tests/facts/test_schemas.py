"""What an object is taken for."""

import pytest

from app.facts.schemas import object_type


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Boston", "entity"),
        ("Dr. Ben Ng", "entity"),
        ("3M", "entity"),
        ("U2", "entity"),
        ("May Fair", "entity"),
        ("42", "literal"),
        ("-3.5e7", "literal"),
        ("1,200.50 €", "literal"),
        ("80 kg", "literal"),
        ("12:30", "literal"),
        ("2026-05-01", "literal"),
        ("2026-05-01T10:00:00Z", "literal"),
        ("1 May 2026", "literal"),
        ("May 1st, 2026", "literal"),
        ("true", "literal"),
        ("she prefers short answers with one example, and never more than two of them", "literal"),
    ],
)
def test_a_short_text_that_is_no_number_or_date_is_an_entity(text: str, kind: str) -> None:
    assert object_type(text) == kind
