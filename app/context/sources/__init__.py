"""All sources, in the order of their sections in a prompt. Sections that are always there come first."""

from app.context.source import ContextSource
from app.context.sources.findings import UNCERTAIN
from app.context.sources.person_and_agent import ALWAYS, EXPERIENCE, INSTRUCTIONS, PROFILE
from app.context.sources.searched import EPISODES_SOURCE, FACTS_SOURCE, MEMORIES_SOURCE, PROCEDURES_SOURCE
from app.context.sources.session import MESSAGES_SOURCE, SUMMARY, WORKING

SOURCES: tuple[ContextSource, ...] = (
    INSTRUCTIONS,
    ALWAYS,
    PROFILE,
    UNCERTAIN,
    WORKING,
    SUMMARY,
    MESSAGES_SOURCE,
    MEMORIES_SOURCE,
    FACTS_SOURCE,
    PROCEDURES_SOURCE,
    EXPERIENCE,
    EPISODES_SOURCE,
)
