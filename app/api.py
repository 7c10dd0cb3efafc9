"""Every router. The framework tries them in this order: what is asked most comes first."""

from fastapi import APIRouter

from app.http import health
from app.memories import endpoints as memories
from app.sessions import endpoints as sessions

ROUTERS: tuple[APIRouter, ...] = (memories.router, sessions.router, health.router)
