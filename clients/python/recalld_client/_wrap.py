"""Clients of models that remember."""

from typing import TypeVar

from recalld_client._async.remembering import AsyncRemembering
from recalld_client._async.session import AsyncUserSession
from recalld_client._async.user import AsyncUserMemory
from recalld_client._events import Hook
from recalld_client._requests import NO_RETRY
from recalld_client._sync.remembering import Remembering
from recalld_client._sync.session import UserSession
from recalld_client._sync.user import UserMemory

Client = TypeVar("Client")
TIMEOUT = 5.0
"""Seconds that memory may take for one request before the model is called without it."""


def wrap_openai(
    client: Client,
    memory: UserMemory | AsyncUserMemory | UserSession | AsyncUserSession,
    *,
    budget: int = 2000,
    remember: bool = True,
    on_event: Hook | None = None,
    timeout: float = TIMEOUT,
) -> Client:
    """Returns a copy of an OpenAI client that recalls before each call and stores what was said.

    client: OpenAI or AsyncOpenAI, or a subclass; the copy shares its connections. memory: of one user, which makes a
    new session, or one session (`me.session()`). budget: tokens of what is recalled, 0 for nothing. remember:
    whether turns are stored. on_event: is called with a `MemoryEvent` for each thing done. timeout: seconds.

    It covers `chat.completions` and `responses` (`create`, `parse`, `stream`, tools). The user's turn is stored before
    the model is asked. If memory fails, the model is called without it, and `on_event` gets the error. Turns that could
    not be stored are stored with the next ones. Raises TypeError if one of both is asynchronous and the other is not.
    """
    return _wrapped(client, memory, budget, remember, on_event, timeout)


def wrap_anthropic(
    client: Client,
    memory: UserMemory | AsyncUserMemory | UserSession | AsyncUserSession,
    *,
    budget: int = 2000,
    remember: bool = True,
    on_event: Hook | None = None,
    timeout: float = TIMEOUT,
) -> Client:
    """Returns a copy of a client of Anthropic that recalls before each call and stores what was said.

    client: Anthropic or AsyncAnthropic. The rest is that of `wrap_openai`. It covers `create`, streams and tools
    included, and `parse` of `messages` and of `beta.messages`, so the tool runner, too. `stream()` raises TypeError:
    use `create(stream=True)`.
    """
    return _wrapped(client, memory, budget, remember, on_event, timeout)


def _wrapped(
    client: Client,
    memory: UserMemory | AsyncUserMemory | UserSession | AsyncUserSession,
    budget: int,
    remember: bool,
    on_event: Hook | None,
    timeout: float,
) -> Client:
    is_async = isinstance(memory, AsyncUserMemory | AsyncUserSession)
    if is_async != hasattr(client, "__aenter__"):
        raise TypeError("An asynchronous client needs the memory of AsyncRecalld, and another one that of Recalld.")
    copy: Client = client.copy()  # type: ignore[attr-defined] # openai is not imported here
    if isinstance(memory, AsyncUserMemory | AsyncUserSession):
        later = memory.session() if isinstance(memory, AsyncUserMemory) else memory
        quick = later.client.with_options(timeout=timeout, retry=NO_RETRY)
        later = AsyncUserSession(quick, later.user_id, later.agent_id, later.session_id)
        AsyncRemembering(later, budget=budget, remember=remember, on_event=on_event).attach(copy)
        return copy
    session = memory.session() if isinstance(memory, UserMemory) else memory
    fast = session.client.with_options(timeout=timeout, retry=NO_RETRY)
    session = UserSession(fast, session.user_id, session.agent_id, session.session_id)
    Remembering(session, budget=budget, remember=remember, on_event=on_event).attach(copy)
    return copy
