"""What task endpoints ask for."""

from typing import Annotated

from fastapi import Depends

from app.auth.dependencies import Caller, InResources
from app.tasks.repository import TaskRepository
from app.tasks.service import TaskService


def task_service(held: InResources, caller: Caller) -> TaskService:
    return TaskService(TaskRepository(held.store, caller.scope), held.settings.limits, held.clock)


Tasks = Annotated[TaskService, Depends(task_service)]
