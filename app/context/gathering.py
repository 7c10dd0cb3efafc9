"""Runs sources at the same time, each within its time: one that fails costs its own section, and the others serve."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.context.rendering import item_tokens
from app.context.source import Candidate, ContextSource, SourceRequest, SourceResult
from app.core.tracing import span
from app.errors import NotFound, RecalldError, Unavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GatheredSection:
    """A section with what its source returned."""

    source: ContextSource
    request: SourceRequest
    result: SourceResult
    error: RecalldError | None = None
    """Why nothing was read."""
    seconds: float = 0.0
    _tokens: dict[int, tuple[Candidate, int]] = field(default_factory=dict, init=False, compare=False)
    """Tokens by the identity of an item, which is held so that no other one has it later."""

    @property
    def name(self) -> str:
        """The name of the section."""
        return self.source.section

    @property
    def items(self) -> Sequence[Candidate]:
        """The candidates, best first."""
        return self.result.items

    @property
    def faults(self) -> list[RecalldError]:
        """What could not be read: all of it, or parts."""
        return [*([] if self.error is None else [self.error]), *self.result.faults]

    def with_items(self, items: Sequence[Candidate]) -> "GatheredSection":
        """Returns the section with other items, such as marked ones."""
        return replace(self, result=replace(self.result, items=items))

    def tokens(self, item: Candidate) -> int:
        """Returns the tokens of an item's line, or of its messages. Each item is rendered and counted once, though
        packing needs them several times, and the answer once more."""
        counted = self._tokens.get(id(item))
        if counted is None:
            counted = item, item_tokens(self.request.body, self.source)(item)
            self._tokens[id(item)] = counted
        return counted[1]


async def gather_section(source: ContextSource, request: SourceRequest) -> GatheredSection:
    """Returns what a source returns within its time, or why it did not."""
    request = replace(request, limit=source.limit_in(request.body))
    result = SourceResult()
    error: RecalldError | None = None
    seconds, started = request.resources.tuning.section_seconds, time.perf_counter()
    try:
        with span(f"context {source.section}") as open_span:
            async with asyncio.timeout(seconds):
                result = await source.gather(request)
            open_span.set({"recalld.context.candidates": len(result.items)})
    except TimeoutError:
        error = Unavailable(f"Not read within {seconds:g} s.")
    except RecalldError as raised:
        error = raised
    except Exception:
        log.exception("a section was not read", extra={"section": source.section})
        error = RecalldError()
    return GatheredSection(source, request, result, error, time.perf_counter() - started)


async def gather_sections(sources: Sequence[ContextSource], request: SourceRequest) -> list[GatheredSection]:
    """Returns the sections that the request leaves room for, in the order of the sources."""
    wanted = [source for source in sources if source.is_wanted(request.body)]
    return list(await asyncio.gather(*(gather_section(source, request) for source in wanted)))


def raise_if_unreadable(sections: Sequence[GatheredSection]) -> None:
    """Raises NotFound if the task that the request names does not exist. If no section could be read, raises the first
    error if every source reports one of the client (4xx), else Unavailable."""
    errors = [section.error for section in sections if section.error is not None]
    for error in errors:
        if isinstance(error, NotFound):
            raise error
    if not sections or len(errors) < len(sections):
        return
    if all(error.status < RecalldError.status for error in errors):
        raise errors[0]
    raise Unavailable(f"No section could be read: {errors[0].detail}", retry_after=1)
