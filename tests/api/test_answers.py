"""A typed answer and the model that the OpenAPI document has of it have the same fields.

Answers are sent as they were made, and nothing validates them again: mypy checks what is made by its type
(`ContextAnswer`), and clients read what comes by the model (`Context`).
"""

import sys
import typing
from collections.abc import Iterator
from typing import Any, NotRequired, TypedDict

import pytest
import typing_extensions
from pydantic import BaseModel

from app.context.response import ContextAnswer
from app.context.schemas import Context
from app.main import create_app

ANSWERS: list[tuple[Any, type[BaseModel]]] = [
    (ContextAnswer, Context),
]


def parts(annotation: Any) -> Iterator[Any]:
    """Yields an annotation and all that is in it: `list[A] | None` has `list[A]`, `A` and None."""
    yield annotation
    for inner in typing.get_args(annotation):
        yield from parts(inner)


def compared(answer: Any, model: type[BaseModel], place: str = "") -> Iterator[tuple[str, Any, type[BaseModel]]]:
    """Yields an answer with its model, and those of their fields, each with its place: `items` for the changes of a
    page."""
    yield place, answer, model
    fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    for name, hint in typing.get_type_hints(answer).items():
        inner_answers = [part for part in parts(hint) if typing_extensions.is_typeddict(part)]
        inner_models = [
            part for part in parts(fields.get(name)) if isinstance(part, type) and issubclass(part, BaseModel)
        ]
        if len(inner_answers) == len(inner_models) == 1:
            yield from compared(inner_answers[0], inner_models[0], f"{place}.{name}".strip("."))


def differences(answer: Any, model: type[BaseModel]) -> list[str]:
    """Returns the fields that one of them has alone: `items.cursor`."""
    alone = []
    for place, inner_answer, inner_model in compared(answer, model):
        answered = set(typing.get_type_hints(inner_answer))
        documented = {field.alias or name for name, field in inner_model.model_fields.items()}
        if inner_model.model_config.get("extra") == "allow":
            answered &= documented
        alone += [f"{place}.{name}".strip(".") for name in sorted(answered ^ documented)]
    return alone


@pytest.mark.parametrize(
    ("answer", "model"), ANSWERS, ids=[f"{answer.__name__}-{model.__name__}" for answer, model in ANSWERS]
)
def test_an_answer_has_the_fields_of_its_model(answer: Any, model: type[BaseModel]) -> None:
    assert differences(answer, model) == []


def test_every_typed_answer_is_compared() -> None:
    create_app()  # imports all that answers
    declared = {
        name
        for module_name, module in [*sys.modules.items()]
        if module_name.startswith("app.")
        for name, value in vars(module).items()
        if name.endswith("Answer")
        and typing_extensions.is_typeddict(value)
        and not hasattr(value, "__pydantic_config__")
    }
    assert declared - {inner.__name__ for pair in ANSWERS for _, inner, _ in compared(*pair)} == set()


class Leaf(BaseModel):
    name: str
    size: int | None


class Tree(BaseModel):
    height: int
    leaves: list[Leaf] | None


class LeafAnswer(TypedDict):
    name: str
    colour: NotRequired[str]


class TreeAnswer(TypedDict):
    leaves: list[LeafAnswer]
    height: int
    age: int


def test_a_field_that_only_one_has_is_noticed() -> None:
    assert differences(TreeAnswer, Tree) == ["age", "leaves.colour", "leaves.size"]
