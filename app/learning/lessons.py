"""Lessons of an agent: which agent learns them, and how they reach its experience."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.core.clock import rfc3339
from app.learning.dependencies import Tools
from app.learning.learning_run import Skipped
from app.learning.prompts import LearnedLesson
from app.profiles.merge import LESSONS, merge_experience
from app.profiles.schemas import AGENTS
from app.storage.changes import Change
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.scope import Scope


async def registered_agent(tools: Tools, scope: Scope, agent_id: str | None) -> Doc:
    """Returns an agent that lessons can be learned for. Raises Skipped if it is not registered, and Forbidden if the
    scope may not write for all of its users."""
    agent = None if agent_id is None else await Repository(tools.store, scope, AGENTS).find_one(agent_id)
    if agent is None:
        raise Skipped("the agent is not registered")
    scope.require_write(agent["agent_id"], None)
    return agent


def known_lessons(agent: Doc) -> dict[str, list[str]]:
    """Returns the texts of the lessons by list."""
    return {name: [lesson["text"] for lesson in agent["experience"][name]] for name in LESSONS}


def shown_lessons(agent: Doc) -> dict[str, list[str]]:
    """Returns the lessons as the model sees them: without empty lists, which cost tokens and say nothing."""
    return {name: texts for name, texts in known_lessons(agent).items() if texts}


async def learned_experience(
    tools: Tools, scope: Scope, agent_id: str, learned: Mapping[str, Any], source: Doc, names: Sequence[str]
) -> tuple[Doc, list[Change]]:
    """Returns a result for the report and the changes that add lessons (texts by list) to an agent's experience.
    Lessons that contain one of `names` are not learned."""
    agents = Repository(tools.store, scope, AGENTS)
    old = await agents.find_one(agent_id)
    experience = None if old is None else merge_experience(old["experience"], learned, source, names)
    if old is None or experience is None or experience == old["experience"]:
        return {"learned": 0}, []
    grown = sum(len(experience[name]) - len(old["experience"][name]) for name in LESSONS)
    return {"learned": grown}, [agents.update(old, {"experience": experience}, now=rfc3339(tools.clock.now()))]


def new_lessons(lessons: Sequence[LearnedLesson]) -> Doc:
    """Returns the texts of lessons by list."""
    found: dict[str, list[str]] = {}
    for one in lessons:
        found.setdefault(one.kind, []).append(one.text)
    return found
