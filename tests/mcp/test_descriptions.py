"""What a model reads of the tools at every turn is short, whole and true."""

import json
from typing import Any

from jsonschema import Draft202012Validator

from app.core import tokens
from app.mcp.server import INSTRUCTIONS, listed
from app.mcp.tools import TOOLS

BOTH = frozenset({"agent_id", "user_id"})


def described(fixed: frozenset[str]) -> list[dict[str, Any]]:
    """As clients hand tools to their models: name, description and schema."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        for tool in listed(fixed)
    ]


def size(fixed: frozenset[str]) -> int:
    return tokens.count(json.dumps(described(fixed), separators=(",", ":")))


def test_all_tools_together_take_few_tokens() -> None:
    assert size(BOTH) <= 1_400
    assert size(frozenset()) <= 1_600
    assert tokens.count(INSTRUCTIONS) <= 80


def test_every_schema_is_one_and_takes_what_the_tool_takes() -> None:
    for tool in described(frozenset()):
        schema = tool["input_schema"]
        Draft202012Validator.check_schema(schema)
        assert set(schema["properties"]) == set(TOOLS[tool["name"]].arguments.model_fields)
        assert "$ref" not in json.dumps(schema)


def test_hints_tell_what_changes_and_what_is_lost() -> None:
    hints = {tool.name: tool.annotations for tool in listed(BOTH)}
    assert {name for name, one in hints.items() if one and one.read_only_hint} == {
        "recall",
        "get_context",
        "find_procedure",
    }
    assert {name for name, one in hints.items() if one and one.destructive_hint} == {"forget"}
    assert all(one and one.open_world_hint is False for one in hints.values())
