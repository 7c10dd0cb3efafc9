"""Every router, in the order of the documentation."""

from fastapi import APIRouter

from app.http import health
from app.memories import endpoints as memories
from app.sessions import endpoints as sessions

ROUTERS: tuple[APIRouter, ...] = (sessions.router, memories.router, health.router)
