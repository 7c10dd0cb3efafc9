"""What `wrap_openai` says that it did."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from recalld_client._generated import Context

LOG = logging.getLogger("recalld_client")


@dataclass(frozen=True)
class MemoryEvent:
    """One thing that `wrap_openai` did for a call of the model.

    kind: "recalled" (`context` went into the prompt), "remembered" (`messages` messages were stored) or "failed"
    (`error` says why; the call of the model went on without).
    """

    kind: Literal["recalled", "remembered", "failed"]
    session_id: str
    messages: int = 0
    context: Context | None = None
    error: Exception | None = None


Hook: TypeAlias = Callable[[MemoryEvent], None]


def tell(hook: Hook | None, event: MemoryEvent) -> None:
    """Logs a failure, and calls the hook. A hook that raises is logged."""
    if event.error is not None:
        LOG.warning("Memory failed, the model is called without it: %s", event.error)
    if hook is not None:
        try:
            hook(event)
        except Exception:
            LOG.warning("The hook on_event has raised.", exc_info=True)
