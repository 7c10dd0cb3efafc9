"""What procedure endpoints ask for."""

from typing import Annotated

from fastapi import Depends, Request

from app.auth.dependencies import calling
from app.memories.embeddings import Embeddings
from app.memories.lookup import Lookup
from app.procedures.models import PROCEDURES
from app.procedures.repository import ProcedureRepository
from app.procedures.service import ProcedureService


async def procedure_service(request: Request) -> ProcedureService:
    held, caller = calling(request)
    procedures = ProcedureRepository(held.store, caller.scope)
    lookup = Lookup(held.store, caller.scope, held.embedder, PROCEDURES, held.second_stage)
    return ProcedureService(procedures, Embeddings(held.embedder), lookup, held.clock)


Procedures = Annotated[ProcedureService, Depends(procedure_service)]
