"""Forgetting over HTTP."""

from fastapi import APIRouter

from app.http.route import StrictRoute

router = APIRouter(prefix="/v1/memories", tags=["memories"], route_class=StrictRoute)
