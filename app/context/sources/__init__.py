"""All sources, in the order of their sections in a prompt. Sections that are always there come first."""

from app.context.candidates import ContextSource
from app.context.sources.searched import EPISODES, FACTS_SOURCE, MEMORIES_SOURCE, PROCEDURES_SOURCE
from app.context.sources.session import MESSAGES_SOURCE, SUMMARY, WORKING
from app.context.sources.standing import EXPERIENCE, INSTRUCTIONS, PROFILE, UNCERTAIN

SOURCES: tuple[ContextSource, ...] = (
    INSTRUCTIONS,
    PROFILE,
    UNCERTAIN,
    WORKING,
    SUMMARY,
    MESSAGES_SOURCE,
    MEMORIES_SOURCE,
    FACTS_SOURCE,
    PROCEDURES_SOURCE,
    EXPERIENCE,
    EPISODES,
)
