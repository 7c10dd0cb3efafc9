"""All sources, in the order of their sections in a prompt. Fixed sections come first."""

from app.context.source import ContextSource
from app.context.sources.findings import UNCERTAIN_SOURCE
from app.context.sources.person_and_agent import ALWAYS_SOURCE, EXPERIENCE_SOURCE, INSTRUCTIONS_SOURCE, PROFILE_SOURCE
from app.context.sources.searched import EPISODES_SOURCE, FACTS_SOURCE, MEMORIES_SOURCE, PROCEDURES_SOURCE
from app.context.sources.session import MESSAGES_SOURCE, SUMMARY_SOURCE, WORKING_SOURCE

SOURCES: tuple[ContextSource, ...] = (
    INSTRUCTIONS_SOURCE,
    ALWAYS_SOURCE,
    PROFILE_SOURCE,
    UNCERTAIN_SOURCE,
    WORKING_SOURCE,
    SUMMARY_SOURCE,
    MESSAGES_SOURCE,
    MEMORIES_SOURCE,
    FACTS_SOURCE,
    PROCEDURES_SOURCE,
    EXPERIENCE_SOURCE,
    EPISODES_SOURCE,
)
