"""What wire shapes share."""

from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import Field, TypeAdapter, ValidationError

from app.core.schemas import MAX_WHOLE, OWNED, WHOLE, Count, NotNull, Owned, Schema, TopK

Json = dict[str, Any]


class Patch(Schema):
    size: Annotated[Annotated[int, Field(strict=True, ge=1, le=5), WHOLE] | None, NotNull] = None


def accepted(shape: type[Schema], value: Json) -> bool:
    try:
        shape.model_validate(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        *((Owned, value) for value in ({"agent_id": "a"}, {"user_id": "u", "agent_id": None}, {"other": 1})),
        *((Patch, {"size": value}) for value in (None, 0, 1, 5, 6, 5.0, 5.5, "5", True, 1e300)),
        (Patch, {}),
    ],
)
def test_the_document_says_what_is_accepted(shape: type[Schema], value: Json) -> None:
    assert Draft202012Validator(shape.model_json_schema()).is_valid(value) == accepted(shape, value)


@pytest.mark.parametrize("nobody", [{}, {"agent_id": None}, {"agent_id": None, "user_id": None}])
def test_that_an_owner_is_needed_is_told_in_words(nobody: Json) -> None:
    """As JSON Schema it makes client generators require both ids, or make a class for each choice."""
    assert not accepted(Owned, nobody)
    document = Owned.model_json_schema()
    assert document["x-requires-one-of"] == ["agent_id", "user_id"]
    assert OWNED in document["description"]
    assert "required" not in document


@pytest.mark.parametrize(("given", "taken"), [(7, 7), (7.0, 7), (float(MAX_WHOLE), MAX_WHOLE)])
def test_a_number_without_a_fraction_is_an_integer(given: float, taken: int) -> None:
    found = TypeAdapter(Annotated[Count, WHOLE]).validate_python(given)
    assert (found, type(found)) == (taken, int)


@pytest.mark.parametrize("given", [7.5, "7", True, None, -1.0, 1e16, float("nan"), float("inf")])
def test_what_is_no_integer_is_refused(given: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Count).validate_python(given)


def test_bounds_stand_in_the_document() -> None:
    found = TypeAdapter(TopK).json_schema()
    assert (found["type"], found["minimum"], found["maximum"]) == ("integer", 1, 100)
