"""Every source, in the order in which a prompt shows its section. Those that are always there come first."""

from app.context.candidates import ContextSource
from app.context.sources.episodes import EPISODES
from app.context.sources.experience import EXPERIENCE
from app.context.sources.facts import FACTS_ARM
from app.context.sources.instructions import INSTRUCTIONS
from app.context.sources.memories import MEMORIES_ARM
from app.context.sources.messages import MESSAGES_ARM
from app.context.sources.procedures import PROCEDURES_ARM
from app.context.sources.profile import PROFILE
from app.context.sources.summary import SUMMARY
from app.context.sources.working import WORKING

ARMS: tuple[ContextSource, ...] = (
    INSTRUCTIONS,
    PROFILE,
    WORKING,
    SUMMARY,
    MESSAGES_ARM,
    MEMORIES_ARM,
    FACTS_ARM,
    PROCEDURES_ARM,
    EXPERIENCE,
    EPISODES,
)
