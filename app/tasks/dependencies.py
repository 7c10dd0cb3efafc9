"""What task endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import calling
from app.tasks.repository import TaskRepository
from app.tasks.service import TaskService


async def task_service(request: Request) -> TaskService:
    held, caller = calling(request)
    tasks = TaskRepository(held.store, caller.scope)
    return TaskService(tasks, held.settings.limits, held.clock, learns=held.llm is not None)


Tasks = Annotated[TaskService, Depends(task_service)]
