"""What validation found, in the words of this service: `int_type` becomes "must be a whole number".

The library's own sentences speak of its types ("Input should be a valid dictionary") and quote regular expressions.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from pydantic_core import ErrorDetails

_OBJECT, _LIST, _TEXT, _BOOL = "must be an object", "must be a list", "must be a text", "must be true or false"
_WHOLE, _NUMBER, _TIME = "must be a whole number", "must be a number", "must be an RFC 3339 time with a zone"
_NULL = "must not be given, or be null"
_OTHER = "does not have the form that is asked for here"
"""Of a kind that has no words below."""

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "missing": "is required",
        "extra_forbidden": "is not known",
        "invalid_key": "has a key that is no text",
        "json_invalid": "must be valid JSON",
        "none_required": _NULL,
        **dict.fromkeys(
            ("model_type", "model_attributes_type", "dict_type", "mapping_type", "dataclass_type"), _OBJECT
        ),
        **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), _LIST),
        **dict.fromkeys(("string_type", "json_type", "bytes_type"), _TEXT),
        "string_unicode": "must be valid Unicode",
        **dict.fromkeys(("bool_type", "bool_parsing"), _BOOL),
        **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), _WHOLE),
        "int_parsing_size": "must be a whole number of at most 64 bits",
        **dict.fromkeys(("float_type", "float_parsing", "decimal_type", "decimal_parsing"), _NUMBER),
        "finite_number": "must be a finite number",
        "greater_than": "must be greater than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "multiple_of": "must be a multiple of {multiple_of}",
        **dict.fromkeys(("literal_error", "enum"), "must be {expected}"),
        "union_tag_invalid": "has a {discriminator} that must be one of {expected_tags}",
        "union_tag_not_found": "needs {discriminator}, which says what it is",
        **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing", "timezone_naive"), _TIME),
        **dict.fromkeys(("date_type", "date_parsing", "date_from_datetime_parsing"), "must be a date: 2026-11-21"),
        **dict.fromkeys(("url_type", "url_parsing", "url_scheme", "url_syntax_violation"), "must be a URL"),
        **dict.fromkeys(("uuid_type", "uuid_parsing"), "must be a UUID"),
    }
)
_CHARACTERS = re.compile(r"\^\[(?P<set>.+)\]\{(?P<least>\d+)(?:,(?P<most>\d+))?\}\$")


def in_words(fault: ErrorDetails) -> str:
    """Returns what is wrong, as `must be at least 1`. `fault` is one of `ValidationError.errors()`: its type, context
    and message."""
    kind, context = fault["type"], fault.get("ctx", {})
    match kind:
        case "value_error" | "assertion_error":  # raised by a validator of ours
            return str(fault["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
        case "string_pattern_mismatch":
            # the rule of a regular expression in words: a caller should not have to read one
            pattern = context["pattern"]
            if pattern == r"\S":
                return "must not be blank"
            if "https?://" in pattern:
                begins = str(fault.get("input")).startswith(("http://", "https://"))
                return "must hold no spaces and nothing secret" if begins else "must begin with http:// or https://"
            match = _CHARACTERS.fullmatch(pattern)
            if match is None:
                return _OTHER
            count = f"{match['least']} to {match['most']}" if match["most"] else match["least"]
            signs = " ".join(re.findall(r".-.|.", match["set"]))
            return f"must be {count} characters of {signs}"
        case "string_too_short" if context["min_length"] == 1:
            return "must not be empty"
        case "string_too_short" | "bytes_too_short":
            return f"must have at least {_counted(context['min_length'], 'character')}"
        case "string_too_long" | "bytes_too_long" | "url_too_long":
            return f"must have at most {_counted(context['max_length'], 'character')}"
        case "too_short":
            return f"must have at least {_counted(context['min_length'], 'item')}"
        case "too_long":
            return f"must have at most {_counted(context['max_length'], 'item')}"
    return _WORDS.get(kind, _OTHER).format_map(context)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
