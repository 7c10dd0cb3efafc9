"""The figures of functions."""

from tools.measure_functions import functions_of, measure, names_that_say_nothing

SOURCE = '''"""A module that one reads."""

from typing import Any

Doc = dict[str, Any]


def show(doc: Doc, names: list[str], extra: dict[str, int]) -> list[Doc]:
    """Returns one thing."""
    # a comment
    found = [_named(doc, name) for name in names]

    return [one for one in found if _kept(one) or _kept(doc)]


def _named(doc: Doc, name: str) -> Doc:
    return doc | {"name": name}


def _kept(doc: Doc | None) -> bool:
    if doc is None:
        return False
    return bool(doc)
'''


def test_a_function_is_as_long_as_its_code() -> None:
    assert [function.lines for function in functions_of(SOURCE)] == [2, 1, 3]


def test_a_helper_used_once_is_told_from_one_used_twice() -> None:
    assert [(function.used_once, function.one_statement) for function in functions_of(SOURCE)] == [
        (False, False),
        (True, True),
        (False, False),
    ]


def test_untyped_records_are_counted_in_parameters_and_returns() -> None:
    figures = measure([SOURCE])
    assert (figures["untyped parameters"], figures["untyped returns"]) == (3, 2)


def test_words_of_docstrings_are_no_names() -> None:
    assert names_that_say_nothing(SOURCE) == {"found": 2, "one": 3}
