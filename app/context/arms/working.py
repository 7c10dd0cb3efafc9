"""Where the task in hand stands: goal and steps first, then notes by priority, then evidence."""

from collections.abc import Iterator

from app.clock import rfc3339
from app.context.items import Arm, Asked, Item
from app.errors import NotFound
from app.storage.collection import Doc
from app.storage.filters import Eq, both
from app.storage.repository import expired, unexpired
from app.tasks.repository import TaskRepository
from app.tasks.state import lines


async def gather(asked: Asked) -> list[Item]:
    task = await _task(asked)
    return [] if task is None else list(_items(task))


async def _task(asked: Asked) -> Doc | None:
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


def _items(task: Doc) -> Iterator[Item]:
    for kind, number, text in lines(task):
        yield Item(f"{task['task_id']}:{kind}{'' if number is None else f'/{number}'}", kind, text)


WORKING = Arm("working", "Task in hand", 0.15, {"general": 40, "recall": 40, "execute": 40}, gather)
