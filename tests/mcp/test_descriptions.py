"""What a model reads of the tools at every turn is short, whole and true."""

import json
from typing import Any

from jsonschema import Draft202012Validator

from app.core import prompt_text
from app.mcp.server import INSTRUCTIONS, PROMPTS, listed
from app.mcp.tools import CORE, TOOLS
from tests.support.server import ROOT

BOTH = frozenset({"agent_id", "user_id"})


def described(fixed: frozenset[str], *, every: bool = True, instructions: bool = False) -> list[dict[str, Any]]:
    """As clients hand tools to their models: name, description and schema."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        for tool in listed(fixed, instructions, every=every)
    ]


def size(fixed: frozenset[str], *, every: bool = True, instructions: bool = False) -> int:
    tools = described(fixed, every=every, instructions=instructions)
    return prompt_text.count(json.dumps(tools, separators=(",", ":")))


def test_the_core_is_listed_unless_all_are_asked_for() -> None:
    assert [tool["name"] for tool in described(BOTH, every=False)] == list(CORE)
    assert [tool["name"] for tool in described(BOTH)] == list(TOOLS)


def test_the_core_takes_at_most_900_tokens_on_any_connection() -> None:
    for fixed in (BOTH, frozenset({"agent_id"}), frozenset({"user_id"}), frozenset[str]()):
        for instructions in (False, True):
            assert size(fixed, every=False, instructions=instructions) <= 900


def test_all_tools_together_take_few_tokens() -> None:
    assert size(BOTH) <= 2_600
    assert size(frozenset()) <= 2_930
    assert prompt_text.count(INSTRUCTIONS) <= 80


def test_the_pages_state_the_tokens_that_are_measured_and_name_each_tool() -> None:
    guide, full = (
        (ROOT / "docs" / folder / "mcp.md").read_text(encoding="utf-8") for folder in ("guides", "contributing")
    )
    assert f"take {size(BOTH, every=False)} tokens (all 17: {size(BOTH):,})" in full
    assert f"{size(frozenset(), every=False)} (all: {size(frozenset()):,}) where it fixes neither" in full
    assert [name for name in (*TOOLS, *PROMPTS) if f"`{name}`" not in guide] == []


def test_what_null_clears_may_be_null() -> None:
    schemas = {tool["name"]: tool["input_schema"]["properties"] for tool in described(BOTH)}
    assert schemas["update_memory"]["key"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert schemas["update_memory"]["content"]["type"] == "string"
    assert schemas["update_profile"]["age"]["anyOf"][1] == {"type": "null"}


def test_no_type_is_a_list_of_types() -> None:
    """One client refuses `"type": ["string", "null"]`."""

    def types(node: Any) -> list[Any]:
        if isinstance(node, list):
            return [kind for item in node for kind in types(item)]
        if not isinstance(node, dict):
            return []
        own = [node["type"]] if "type" in node and "properties" not in node.get("type", ()) else []
        return own + [kind for name, item in node.items() for kind in types(item)]

    for fixed in (BOTH, frozenset[str]()):
        for tool in described(fixed):
            assert all(isinstance(kind, str | dict) for kind in types(tool["input_schema"])), tool["name"]


def test_a_model_is_offered_the_type_instruction_where_it_may_store_it() -> None:
    for instructions in (False, True):
        tools = {tool.name: tool.input_schema["properties"] for tool in listed(BOTH, instructions, every=True)}
        for name in ("remember", "update_memory"):
            assert ("instruction" in tools[name]["memory_type"]["enum"]) == instructions
        assert "instruction" in tools["list_memories"]["memory_type"]["enum"]


def test_every_schema_is_one_and_takes_what_the_tool_takes() -> None:
    for tool in described(frozenset()):
        schema = tool["input_schema"]
        Draft202012Validator.check_schema(schema)
        assert set(schema["properties"]) == set(TOOLS[tool["name"]].arguments.model_fields) - {
            "limit" if tool["name"] == "recall" else ""
        }
        assert "$ref" not in json.dumps(schema)


def test_hints_tell_what_changes_and_what_is_lost() -> None:
    hints = {tool.name: tool.annotations for tool in listed(BOTH, every=True)}
    assert {name for name, one in hints.items() if one and one.read_only_hint} == {
        "recall",
        "get_context",
        "find_procedure",
        "list_memories",
        "list_upcoming",
        "get_memory",
        "find_facts",
        "get_profile",
    }
    assert {name for name, one in hints.items() if one and one.destructive_hint} == {"forget"}
    assert all(one and one.open_world_hint is False for one in hints.values())
