"""What the context endpoint asks for."""

from fastapi import Request

from app.auth.dependencies import calling
from app.context.service import ContextService


def context_of(request: Request) -> ContextService:
    held, caller = calling(request)
    return ContextService(held, caller.scope)
