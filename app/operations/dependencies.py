"""What job and operation endpoints ask for."""

from typing import Annotated

from fastapi import Depends

from app.auth.dependencies import Caller, InResources
from app.jobs.models import OPERATIONS
from app.jobs.schedule import Schedules, periods
from app.operations.service import OperationService
from app.storage.repository import Repository


async def operation_service(held: InResources, caller: Caller) -> OperationService:
    return OperationService(
        Repository(held.store, caller.scope, OPERATIONS),
        Schedules(held.store, held.clock, periods(held.settings.jobs)),
        held.clock,
    )


Operations = Annotated[OperationService, Depends(operation_service)]
