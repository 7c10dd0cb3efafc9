"""Procedures that serve all users of an agent: the rule by which one learned from a user's episodes may be shared.

It is the rule of the agent's experience: the agent is registered, the key may write for all its users, and no text
names the user. No text quotes the user, either.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.actions.schemas import ACTIONS
from app.core.language import words
from app.errors import Forbidden
from app.facts.profile import UserProfile
from app.learning.dependencies import Tools
from app.learning.episodes import Batch
from app.learning.learning_run import Skipped
from app.learning.lessons import registered_agent
from app.procedures.schemas import ProcedureRecord
from app.profiles.merge import ProfileReader, names_one
from app.storage.repository import Repository

QUOTED_WORDS = 4
"""So many words in a row that the user said are a quote."""


@dataclass(frozen=True, slots=True)
class SharingRule:
    """What no shared procedure may say: `names` of the user, and the words of the user's `utterances`."""

    names: Sequence[str]
    utterances: Sequence[str] = ()

    def allows(self, texts: Iterable[str]) -> bool:
        """Returns True if none of the texts names or quotes the user."""
        for text in texts:
            runs = _runs(text)
            if names_one(text, self.names) or any(runs & _runs(utterance) for utterance in self.utterances):
                return False
        return True


def _runs(text: str) -> set[tuple[str, ...]]:
    spoken = words(text)
    return {tuple(spoken[at : at + QUOTED_WORDS]) for at in range(len(spoken) - QUOTED_WORDS + 1)}


def texts_of(fields: ProcedureRecord) -> list[str]:
    """Returns the texts of a procedure, or of changed fields of one."""
    lines = [text for text in (fields.get("name"), fields.get("trigger")) if text]
    return [*lines, *fields.get("preconditions", ()), *fields.get("steps", ()), *fields.get("notes", ())]


async def sharing_rule(tools: Tools, batch: Batch) -> SharingRule | None:
    """Returns the rule for what is learned from a user's episodes, or None if it stays with the user: by the setting,
    because the agent is not registered, or because the key may not write for all of its users."""
    if batch.user_id is None or not tools.settings.procedures.share:
        return None
    try:
        await registered_agent(tools, batch.scope, batch.agent_id)
    except (Skipped, Forbidden):
        return None
    user = await ProfileReader(tools.store, batch.scope, tools.clock).find(batch.user_id)
    profile: UserProfile = {} if user is None else user.profile
    names = [name for name in (batch.user_id, profile.get("name"), profile.get("home")) if name]
    # what the user said in the episodes: their feedback, and what the user did
    corrections = [text for action in batch.actions if isinstance(text := action["feedback"].get("correction"), str)]
    did = [action["content"] for action in batch.actions if action["actor"] == "user" and action["content"]]
    return SharingRule(names, corrections + did)


async def of_same_user(tools: Tools, batch: Batch, shared: ProcedureRecord) -> bool:
    """Returns True if all episodes that a shared procedure was learned from are known to be of the batch's user. What
    came of another user's episodes is not mixed with this one's, so that erasing a user takes all that came of him."""
    ids = shared["source"].get("action_ids") or []
    actions = await Repository(tools.store, batch.scope, ACTIONS).get_many(ids)
    return (
        bool(ids)
        and len(actions) == len(ids)
        and all(action["user_id"] == batch.user_id for action in actions.values())
    )
