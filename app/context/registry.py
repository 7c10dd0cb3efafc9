"""All sources, in the order of their sections in a prompt. Sections that are always there come first."""

from app.context.candidates import ContextSource
from app.context.sources.episodes import EPISODES
from app.context.sources.experience import EXPERIENCE
from app.context.sources.facts import FACTS_SOURCE
from app.context.sources.instructions import INSTRUCTIONS
from app.context.sources.memories import MEMORIES_SOURCE
from app.context.sources.messages import MESSAGES_SOURCE
from app.context.sources.procedures import PROCEDURES_SOURCE
from app.context.sources.profile import PROFILE
from app.context.sources.summary import SUMMARY
from app.context.sources.working import WORKING

SOURCES: tuple[ContextSource, ...] = (
    INSTRUCTIONS,
    PROFILE,
    WORKING,
    SUMMARY,
    MESSAGES_SOURCE,
    MEMORIES_SOURCE,
    FACTS_SOURCE,
    PROCEDURES_SOURCE,
    EXPERIENCE,
    EPISODES,
)
