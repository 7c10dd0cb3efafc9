"""Source of the current task: the entries of `/working-memory`, in the order of their use."""

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
"""Share of the context's budget that entries are chosen for.

The section may take more (`WORKING`), because each line has a citation beside its text.
"""
USUAL_BUDGET = 4000


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns the entries of the task. Raises NotFound if the named task does not exist or belongs to others."""
    task = await _task(request)
    return [] if task is None else await off_loop(characters(task), _items, task, _room(request))


async def _task(request: SourceRequest) -> Doc | None:
    tasks = TaskRepository(request.resources.store, request.scope)
    if request.body.task_id is not None:
        task = await tasks.find_one(request.body.task_id)
        if task is None or expired(task, rfc3339(request.now)) or not request.owns(task):
            raise NotFound("There is no such task.")
        return task
    if request.body.session_id is None:
        return None
    of_session = both(Eq("session_id", request.body.session_id), Eq("status", "in_progress"), request.owned())
    found = await tasks.find(both(of_session, unexpired(rfc3339(request.now))), limit=1)
    return found[0] if found else None


def _room(request: SourceRequest) -> int:
    """Returns the tokens that the section may expect.

    Its first entries are chosen, and long ones shortened, for this size.
    """
    bounds = request.body.sections.get("working")
    if bounds is not None and bounds.tokens is not None:
        return bounds.tokens
    share = PART if bounds is None or bounds.share is None else bounds.share
    return int(share * (request.body.token_budget or USUAL_BUDGET))


def _items(task: Doc, room: int) -> list[Candidate]:
    """Returns the entries that `/working-memory` would choose for `room` tokens, then all others, to be packed if there
    is room."""
    found = entries(task)
    chosen = [line.entry for line in select(found, room)]
    first = {(one.kind, one.index) for one in chosen}
    others = [shorten(one, room) for one in found if (one.kind, one.index) not in first]
    return [_item(task["task_id"], one) for one in (*chosen, *others)]


def _item(task_id: str, entry: Entry) -> Candidate:
    place = "" if entry.index is None else f"/{entry.index}"
    return Candidate(f"{task_id}:{entry.kind}{place}", entry.kind, entry.text)


WORKING = ContextSource("working", "Task in hand", gather, default_limit=100, share=0.3)
