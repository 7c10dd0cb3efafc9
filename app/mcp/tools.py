"""The table of the MCP tools (name, description, arguments and hints of each), and the tools as one connection may call
them, whose owners it may fix.
"""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

from app.api.errors import at_fault
from app.api.strict import DECODER, faults_of
from app.auth.keys import Principal
from app.core.limits import BODY_LIMITS
from app.core.prompt_text import map_strings, unquote
from app.core.schemas import Json, Schema, identifier
from app.core.work import characters, off_loop
from app.errors import BadRequest, Forbidden, invalid
from app.mcp import record_tools
from app.mcp import schemas as args
from app.mcp.record_tools import get_profile
from app.mcp.schemas import GetProfile
from app.mcp.transport import Api, Result, Tool, ToolError, ToolRequest

TOOLS: dict[str, Tool[Any]] = {
    tool.name: tool
    for tool in (
        Tool(
            "remember",
            "Remember",
            "Store one lasting thing: a fact, a preference, a lesson. Not small talk, not secrets. "
            "An equal memory is not stored twice. To correct one, give its memory_id in supersedes.",
            args.RememberArguments,
            record_tools.remember,
            idempotent=True,
        ),
        Tool(
            "recall",
            "Recall",
            "Search long-term memory by meaning, names and words; best first. Use it before answering what may depend "
            "on earlier conversations. A weak match seldom answers.",
            args.RecallArguments,
            record_tools.recall,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "get_context",
            "Get context",
            "All that bears on a message, within a budget: profile, facts, procedures, memories, actions, task, "
            "messages. For the start of a conversation or task; recall is for one question.",
            args.GetContext,
            record_tools.get_context,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "log_action",
            "Log an action",
            "Record what you did and how it ended, once per task or tool call that matters, so that later runs learn "
            "from it.",
            args.LogAction,
            record_tools.log_action,
        ),
        Tool(
            "find_procedure",
            "Find a procedure",
            "Look up how something is done here, with steps and how often they worked. Use it before a task of more "
            "than one step.",
            args.FindProcedure,
            record_tools.find_procedure,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "update_task",
            "Update a task",
            "Keep the state of long work outside the conversation: begin a task, set its plan, mark a step, note "
            "something, end it. Answers the task's working memory; with task_id alone it only reads it.",
            args.UpdateTask,
            record_tools.update_task,
        ),
        Tool(
            "memory_feedback",
            "Memory feedback",
            "After answering: say which recalled memories helped and which misled, so that later searches rank better.",
            args.MemoryFeedback,
            record_tools.memory_feedback,
            idempotent=True,
        ),
        Tool(
            "list_memories",
            "List memories",
            "Page through what is remembered, newest first. For a question use recall.",
            args.ListMemories,
            record_tools.list_memories,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "get_memory",
            "Get a memory",
            "Read one memory in full, with its source and status.",
            args.GetMemory,
            record_tools.get_memory,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "update_memory",
            "Update a memory",
            "Fix a memory that was stored wrongly; only the fields given change. If the world changed, use remember "
            "with supersedes.",
            args.UpdateMemory,
            record_tools.update_memory,
            idempotent=True,
        ),
        Tool(
            "forget",
            "Forget",
            "Delete memories for good, by the memory_ids that recall gave, with the ones that they superseded. Only "
            "when the user asks for it; to correct one, use remember with supersedes.",
            args.Forget,
            record_tools.forget,
            destroys=True,
            idempotent=True,
        ),
        Tool(
            "assert_fact",
            "Assert a fact",
            "Record subject, predicate and object with the time when it is true, such as who lives or works where. It "
            "ends the earlier fact that it contradicts.",
            args.AssertFact,
            record_tools.assert_fact,
            idempotent=True,
        ),
        Tool(
            "find_facts",
            "Find facts",
            "Ask facts: what is true now, was true at a time (as_of), or was known at one (known_at).",
            args.FindFacts,
            record_tools.find_facts,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "append_messages",
            "Append messages",
            "Keep the wording of a conversation, in order. Its messages become memories.",
            args.AppendMessages,
            record_tools.append_messages,
        ),
        Tool(
            "get_profile",
            "Get the profile",
            "What is known of the user for good: name, home, interests, preferences.",
            args.GetProfile,
            record_tools.get_profile,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "update_profile",
            "Update the profile",
            "Add to the user's profile: lists grow, the rest is overwritten, null clears.",
            args.UpdateProfile,
            record_tools.update_profile,
            idempotent=True,
        ),
    )
}


MAX_ERRORS = 5
"""The limit of argument errors in one message."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Whom:
    """The agent and user of a connection. Tools do not take the ones that it fixes as arguments."""

    agent_id: str | None = None
    user_id: str | None = None

    @property
    def fixed(self) -> frozenset[str]:
        """The names of the fixed owners."""
        return frozenset(self.values())

    def values(self) -> Json:
        """Returns the fixed owners by name."""
        named = {"agent_id": self.agent_id, "user_id": self.user_id}
        return {name: value for name, value in named.items() if value is not None}


def connected(principal: Principal, given: Whom, pointer: str, *, rules: bool = False) -> tuple[Principal, Whom]:
    """Returns the principal and owners of a connection: the owners it asks for, or else the only ones that its key is
    bound to. A connection for a user has the rights of a key bound to that user. `rules`: the model may write rules
    (`RECALLD_MCP_INSTRUCTIONS`). Raises Invalid or Forbidden."""
    named = given.values()
    principal = replace(principal, scope=replace(principal.scope, rules=principal.scope.rules and rules))
    for name, bound in (("agent_id", principal.scope.agents), ("user_id", principal.scope.users)):
        if name not in named:
            if bound is not None and len(bound) == 1:
                (named[name],) = bound
            continue
        try:
            named[name] = identifier(named[name])
        except ValueError as error:
            raise invalid(pointer.format(name), str(error)) from None
        if bound is not None and named[name] not in bound:
            raise Forbidden(f"This key is bound to others than this {name}.")
    whom = Whom(**named)
    if whom.user_id is not None:
        principal = replace(principal, scope=replace(principal.scope, users=frozenset({whom.user_id})))
    return principal, whom


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a connection."""

    api: Api
    whom: Whom = Whom()
    instructions: bool = False

    async def call(self, name: str, arguments: Json, key: str | None = None) -> Result:
        """Runs a tool. Raises ToolError, and KeyError for an unknown tool."""
        tool = TOOLS[name]
        body = await off_loop(characters(arguments), self._read, tool.arguments, arguments)
        try:
            return await tool.run(ToolRequest(self.api, key), body)
        except ToolError:
            raise
        except Exception as error:
            log.exception("tool failed", extra={"tool": name})
            raise ToolError("Something went wrong in the service; its log says what.", code="internal_error") from error

    def _read(self, wanted: type[Schema], arguments: Json) -> Schema:
        faults = [
            f"{fault.pointer or '/'}: {fault.detail}" for fault in islice(faults_of(arguments, _WIDTHS), MAX_ERRORS)
        ]
        if faults:
            raise ToolError("The arguments are not valid.", errors=tuple(faults))
        arguments = map_strings(arguments, unquote)
        for name, value in self.whom.values().items():
            if (given := arguments.get(name)) not in args.ABSENT and not _is_id(given, value):
                raise ToolError(f"/{name}: this connection is for {value} only: leave it out.", code="forbidden")
        ours = {name: value for name, value in self.whom.values().items() if name in wanted.model_fields}
        try:
            return _validated(wanted, {**arguments, **ours})
        except ValidationError as error:
            found = error.errors(include_url=False)[:MAX_ERRORS]
            fields = [at_fault(fault, fault["loc"], arguments, wanted, "argument") for fault in found]
            faults = [f"{field.pointer or '/'}: {field.detail}" for field in fields]
            raise ToolError("The arguments are not valid.", errors=tuple(faults)) from error

    async def profile(self, user_id: str) -> Json:
        """Returns a user's profile, which may be empty. Raises ToolError."""
        if self.whom.user_id not in (None, user_id):
            raise ToolError("There is no such record.", code="not_found")
        return await get_profile(ToolRequest(self.api), GetProfile(user_id=user_id))


_WIDTHS = replace(BODY_LIMITS, text_chars=sys.maxsize)
"""Of objects and lists, before they are read: 150,000 unknown arguments would be as many errors. Texts have their limit
without the entities that they are quoted with."""


def _validated(wanted: type[Schema], arguments: Json) -> Schema:
    """Returns the arguments. Several clients send lists, objects and numbers as JSON in a string (`"[1, 2]"`): such a
    string is parsed once, where no string is wanted. Raises ValidationError."""
    try:
        return wanted.model_validate(arguments)
    except ValidationError as error:
        parsed = arguments
        for fault in error.errors(include_url=False):
            if isinstance(fault["input"], str) and fault["type"].endswith("_type") and fault["type"] != "string_type":
                parsed = _parsed_at(parsed, fault["loc"])
        if parsed is arguments:
            raise
        return wanted.model_validate(parsed)


def _parsed_at(value: Any, place: Sequence[int | str]) -> Any:
    """Returns the value with the JSON in the string at a place parsed. Nothing that is not JSON changes. Raises
    ToolError if a key occurs twice in an object."""
    if isinstance(value, str):
        try:
            return DECODER.decode(value)
        except BadRequest as error:
            raise ToolError(error.detail, code=error.code) from error
        except (ValueError, RecursionError):
            return value
    if not place or not isinstance(value, list | dict):
        return value
    name, *rest = place
    if isinstance(value, dict):
        return {**value, name: _parsed_at(value[name], rest)} if name in value else value
    return [_parsed_at(item, rest) if at == name else item for at, item in enumerate(value)]


def _is_id(given: Any, fixed: str) -> bool:
    """Returns whether an argument is the id that the connection fixes, in any spelling."""
    try:
        return isinstance(given, str) and identifier(given) == fixed
    except ValueError:
        return False
