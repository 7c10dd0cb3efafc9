"""Every arm, by priority: what comes first is packed first."""

from app.context.arms.episodes import EPISODES
from app.context.arms.facts import FACTS_ARM
from app.context.arms.memories import MEMORIES_ARM
from app.context.arms.messages import MESSAGES_ARM
from app.context.arms.procedures import PROCEDURES_ARM
from app.context.arms.profile import PROFILE
from app.context.arms.working import WORKING
from app.context.items import Arm

ARMS: tuple[Arm, ...] = (PROFILE, FACTS_ARM, PROCEDURES_ARM, MEMORIES_ARM, EPISODES, WORKING, MESSAGES_ARM)
