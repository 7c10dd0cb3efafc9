"""Every source, in the order in which a prompt shows its section. Those that are always there come first."""

from app.context.arms.episodes import EPISODES
from app.context.arms.experience import EXPERIENCE
from app.context.arms.facts import FACTS_ARM
from app.context.arms.instructions import INSTRUCTIONS
from app.context.arms.memories import MEMORIES_ARM
from app.context.arms.messages import MESSAGES_ARM
from app.context.arms.procedures import PROCEDURES_ARM
from app.context.arms.profile import PROFILE
from app.context.arms.summary import SUMMARY
from app.context.arms.working import WORKING
from app.context.items import Arm

ARMS: tuple[Arm, ...] = (
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
