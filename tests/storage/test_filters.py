import pytest

from app.storage.schema import EVERYTHING, Absent, And, Eq, Filter, Has, In, Not, Or, Range, both, matches, value_at

DOC = {"a": 1, "none": None, "list": ["x", ""], "nested": {"deep": {"value": "v"}, "empty": None}, "time": "2026-01-01"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("a", 1),
        ("none", None),
        ("nested.deep.value", "v"),
        ("nested.empty.value", None),
        ("a.b", None),
        ("list.0", None),
        ("nothing.at.all", None),
    ],
)
def test_a_path_leads_to_a_value_or_to_none(field: str, value: object) -> None:
    assert value_at(DOC, field) == value


@pytest.mark.parametrize(
    "where",
    [
        Eq("a", 1),
        Eq("nested.deep.value", "v"),
        In("a", (0, 1)),
        Has("list", ""),
        Absent("none"),
        Absent("nested.empty"),
        Range("a", ge=1, le=1),
        Range("a", gt=0, lt=2),
        Range("time", ge="2025"),
        Range("a"),
        Not(Range("none", ge=0)),
        Not(Has("none", "x")),
        EVERYTHING,
        Not(Or(())),
        And((Eq("a", 1), Or((Eq("a", 2), Absent("b"))))),
    ],
)
def test_what_matches(where: Filter) -> None:
    assert matches(DOC, where)
    assert not matches(DOC, Not(where))


@pytest.mark.parametrize(
    "where",
    [
        Eq("none", "None"),
        In("a", ()),
        Has("list", "y"),
        Absent("list"),
        Range("a", gt=1),
        Range("a", lt=1),
        Range("none"),
        Or(()),
        And((Eq("a", 1), Eq("a", 2))),
    ],
)
def test_what_does_not_match(where: Filter) -> None:
    assert not matches(DOC, where)


def test_both_flattens_and_leaves_out_what_is_not_there() -> None:
    one, two, three = Eq("a", 1), Absent("b"), Or((Eq("c", 1),))
    assert both(one, None, And((two, three)), EVERYTHING) == And((one, two, three))
    assert both(None, one) == one
    assert both() == EVERYTHING
