"""What the administration's endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.administration.service import AuditService, KeyService
from app.audit.tombstones import Tombstones
from app.auth.dependencies import calling
from app.auth.keys import Keys


async def key_service(request: Request) -> KeyService:
    held, caller = calling(request)
    return KeyService(held.store, Keys(held.store, held.clock), caller)


async def audit_service(request: Request) -> AuditService:
    held, caller = calling(request)
    return AuditService(held.store, caller.scope, Tombstones.of(held, caller.scope.tenant))


InKeys = Annotated[KeyService, Depends(key_service)]
InAudit = Annotated[AuditService, Depends(audit_service)]
