"""What job and operation endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.audit.tombstones import Tombstones
from app.auth.dependencies import calling
from app.jobs.models import OPERATIONS
from app.jobs.schedule import Schedules, periods
from app.operations.service import OperationService
from app.storage.repository import Repository


async def operation_service(request: Request) -> OperationService:
    held, caller = calling(request)
    return OperationService(
        Repository(held.store, caller.scope, OPERATIONS),
        Schedules(held.store, held.clock, periods(held.settings.jobs)),
        held.clock,
        Tombstones.of(held, caller.scope.tenant),
    )


Operations = Annotated[OperationService, Depends(operation_service)]
