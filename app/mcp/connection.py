"""One connection of an MCP client: the owners that it fixes, and the tools as it may call them."""

import logging
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from app.api.errors import known_fields, pointer, sentence
from app.auth.keys import Principal
from app.core.identifiers import identifier
from app.core.schemas import Json, Schema
from app.errors import Forbidden, invalid
from app.mcp.calls import Result, ToolRequest
from app.mcp.knowledge_tools import get_profile
from app.mcp.schemas import GetProfile
from app.mcp.tools import TOOLS
from app.mcp.transport import Api, ToolError

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


def connected(principal: Principal, given: Whom, pointer: str) -> tuple[Principal, Whom]:
    """Returns the principal and owners of a connection: the owners it asks for, or else the only ones that its key is
    bound to. A connection for a user has the rights of a key bound to that user. Raises Invalid or Forbidden."""
    named = given.values()
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

    async def call(self, name: str, arguments: Json, key: str | None = None) -> Result:
        """Runs a tool. Raises ToolError, and KeyError for an unknown tool."""
        tool = TOOLS[name]
        body = self._read(tool.arguments, arguments)
        try:
            return await tool.run(ToolRequest(self.api, key), body)
        except ToolError:
            raise
        except Exception as error:
            log.exception("tool failed", extra={"tool": name})
            raise ToolError("Something went wrong in the service; its log says what.", code="internal_error") from error

    def _read(self, wanted: type[Schema], arguments: Json) -> Schema:
        for name, value in self.whom.values().items():
            if name in arguments and not _is(arguments[name], value):
                raise ToolError(f"/{name}: this connection is for {value} only: leave it out.", code="forbidden")
        ours = {name: value for name, value in self.whom.values().items() if name in wanted.model_fields}
        try:
            return wanted.model_validate({**arguments, **ours})
        except ValidationError as error:
            found = tuple(_told(wanted, fault) for fault in error.errors(include_url=False)[:MAX_ERRORS])
            raise ToolError("The arguments are not valid.", errors=found) from error

    async def profile(self, user_id: str) -> Json:
        """Returns a user's profile, which may be empty. Raises ToolError."""
        if self.whom.user_id not in (None, user_id):
            raise ToolError("There is no such record.", code="not_found")
        return await get_profile(ToolRequest(self.api), GetProfile(user_id=user_id))


def _is(given: Any, fixed: str) -> bool:
    """Returns whether an argument is the id that the connection fixes, in any spelling."""
    try:
        return isinstance(given, str) and identifier(given) == fixed
    except ValueError:
        return False


def _told(wanted: type[Schema], fault: Any) -> str:
    known = known_fields(wanted, fault["loc"][:-1])
    return f"{pointer(fault['loc']) or '/'}: {sentence(fault, known, 'argument')}"
