"""Lessons of an agent: which agent learns them, and how they reach its experience."""

from collections.abc import Mapping, Sequence

from app.core.clock import rfc3339
from app.learning.dependencies import Tools
from app.learning.derivations import DerivationResult
from app.learning.learning_run import Skipped
from app.learning.prompts import LearnedLesson
from app.memories.agents import AGENTS, AgentRecord
from app.memories.schemas import Source
from app.profiles.merge import LESSONS, merge_experience
from app.storage.changes import Change
from app.storage.repository import Repository
from app.storage.scope import Scope


async def registered_agent(tools: Tools, scope: Scope, agent_id: str | None) -> AgentRecord:
    """Returns an agent that lessons can be learned for. Raises Skipped if it is not registered, and Forbidden if the
    scope may not write for all of its users."""
    agent = None if agent_id is None else await Repository(tools.store, scope, AGENTS).find_one(agent_id)
    if agent is None:
        raise Skipped("the agent is not registered")
    scope.require_write(agent["agent_id"], None)
    return agent


def known_lessons(agent: AgentRecord) -> dict[str, list[str]]:
    """Returns the texts of the lessons by list."""
    return {name: [lesson["text"] for lesson in agent["experience"][name]] for name in LESSONS}


def shown_lessons(agent: AgentRecord) -> dict[str, list[str]]:
    """Returns the lessons as the model sees them: without empty lists, which cost tokens and say nothing."""
    return {name: texts for name, texts in known_lessons(agent).items() if texts}


async def learned_experience(
    tools: Tools,
    scope: Scope,
    agent_id: str,
    learned: Mapping[str, Sequence[str]],
    source: Source,
    names: Sequence[str],
) -> tuple[DerivationResult, list[Change]]:
    """Returns a result for the report and the changes that add lessons (texts by list) to an agent's experience.
    Lessons that contain one of `names` are not learned."""
    agents = Repository(tools.store, scope, AGENTS)
    agent = await agents.find_one(agent_id)
    if agent is None:
        return {"learned": 0}, []
    old, now = agent["experience"], rfc3339(tools.clock.now())
    experience = merge_experience(old, learned, source, now, names)
    if experience == old:
        return {"learned": 0}, []
    grown = sum(len(experience[name]) - len(old[name]) for name in LESSONS)
    return {"learned": grown}, [agents.update(agent, {"experience": experience}, now=now)]


def new_lessons(lessons: Sequence[LearnedLesson]) -> dict[str, list[str]]:
    """Returns the texts of lessons by list."""
    texts: dict[str, list[str]] = {}
    for lesson in lessons:
        texts.setdefault(lesson.kind, []).append(lesson.text)
    return texts
