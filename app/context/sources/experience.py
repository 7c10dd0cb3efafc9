"""Source of what the agent has learned from all its users."""

from app.context.candidates import Candidate, ContextSource, SourceRequest
from app.core.process import off_loop
from app.profiles.lessons import KNOWLEDGE, RankedLesson, ranked
from app.profiles.merge import LESSONS
from app.profiles.models import AGENTS
from app.storage.repository import Repository
from app.storage.text import content_hash

SPARE = 2
"""Factor of the limit. More items are returned because some repeat items of other sections."""
LABELS = {
    KNOWLEDGE: "knowledge",
    "common_scenarios": "scenario",
    "effective_strategies": "strategy",
    "known_pitfalls": "pitfall",
    "tool_patterns": "tool pattern",
    "heuristics": "heuristic",
    "user_feedback": "feedback",
    "improvement_areas": "to improve",
}


async def gather(request: SourceRequest) -> list[Candidate]:
    """Returns the agent's lessons, best first. An agent that is not registered or not visible to the key has none."""
    agent = await Repository(request.resources.store, request.scope, AGENTS).find_one(request.body.agent_id)
    if agent is None:
        return []
    experience = agent["experience"]
    texts = [experience[KNOWLEDGE], *(lesson["text"] for name in LESSONS for lesson in experience[name])]
    lessons = await off_loop(sum(map(len, texts)), ranked, request.body.query, experience)
    return [_item(lesson) for lesson in lessons[: SPARE * request.limit]]


def _item(lesson: RankedLesson) -> Candidate:
    same = frozenset({f"text:{content_hash(lesson.text)}"})
    item_id = f"experience:{lesson.name}/{lesson.index}"
    return Candidate(item_id, "experience", lesson.text, lesson.score, f"{LABELS[lesson.name]}: ", same)


EXPERIENCE = ContextSource("experience", "Experience", gather, default_limit=10)
