"""The task in hand: the entries of `/working-memory`, in the order of use."""

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.core.clock import rfc3339
from app.core.process import off_loop
from app.errors import NotFound
from app.storage.filters import Eq, both
from app.storage.repository import expired, unexpired
from app.storage.schema import Doc
from app.tasks.entries import Entry, characters, entries
from app.tasks.repository import TaskRepository
from app.tasks.working_memory import select, shorten

PART = 0.15
"""Of the context's budget. The section may take more (`WORKING`): each line has a citation beside its text."""
USUAL_BUDGET = 4000


async def gather(asked: SourceRequest) -> list[Candidate]:
    task = await _task(asked)
    return [] if task is None else await off_loop(characters(task), _items, task, _room(asked))


async def _task(asked: SourceRequest) -> Doc | None:
    tasks = TaskRepository(asked.held.store, asked.scope)
    if asked.body.task_id is not None:
        task = await tasks.find_one(asked.body.task_id)
        if task is None or expired(task, rfc3339(asked.now)) or not asked.owns(task):
            raise NotFound("There is no such task.")
        return task
    if asked.body.session_id is None:
        return None
    of_session = both(Eq("session_id", asked.body.session_id), Eq("status", "in_progress"), asked.owned())
    found = await tasks.find(both(of_session, unexpired(rfc3339(asked.now))), limit=1)
    return found[0] if found else None


def _room(asked: SourceRequest) -> int:
    """Tokens that the section may expect. Its first entries are chosen, and long ones cut, for them."""
    bounds = asked.body.sections.get("working")
    if bounds is not None and bounds.tokens is not None:
        return bounds.tokens
    share = PART if bounds is None or bounds.share is None else bounds.share
    return int(share * (asked.body.token_budget or USUAL_BUDGET))


def _items(task: Doc, room: int) -> list[Candidate]:
    """First the entries that `/working-memory` would choose for `room` tokens, then all others: the packer takes them
    while there is more."""
    found = entries(task)
    chosen = [line.entry for line in select(found, room)]
    first = {(one.kind, one.index) for one in chosen}
    others = [shorten(one, room) for one in found if (one.kind, one.index) not in first]
    return [_item(task["task_id"], one) for one in (*chosen, *others)]


def _item(task_id: str, entry: Entry) -> Candidate:
    place = "" if entry.index is None else f"/{entry.index}"
    return Candidate(f"{task_id}:{entry.kind}{place}", entry.kind, entry.text)


WORKING = ContextSource("working", "Task in hand", gather, most=100, share=0.3)
