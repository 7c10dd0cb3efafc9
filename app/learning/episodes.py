"""Batches of episodes, and rules for what may be learned from them. Pure functions.

An episode is logged by a caller, as a message is. A derived record has the lowest trust of its episodes, which is 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from app.core import tokens
from app.core.served_text import strip_served
from app.errors import Invalid
from app.facts.schemas import FactCreate
from app.learning import derivations, tool_calls
from app.learning.evidence import no_value, shown
from app.learning.extraction import DroppedCounts, about, is_user
from app.learning.prompts import StatedFact, StatedProcedure, TranscriptLine
from app.procedures.repository import ended_trial, learned
from app.procedures.schemas import ProcedureCreate
from app.storage.changes import Change
from app.storage.schema import Doc
from app.storage.scope import Scope

TRUST = 1.0
CHUNK_TOKENS = 6_000
MOST = 50
"""The limit of episodes in one request to the model."""
CONTENT_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes of one partition in order of time. The model refers to them by number, from 1."""

    scope: Scope
    agent_id: str
    user_id: str | None
    docs: Sequence[Doc]

    @property
    def owner(self) -> dict[str, str | None]:
        """The agent and user of the episodes, as fields."""
        return {"agent_id": self.agent_id, "user_id": self.user_id}

    @property
    def prompt(self) -> str:
        """The name of the prompt that the parts' prompts follow."""
        return "episodes"

    def data(self, known: Doc) -> str:
        """Returns the episodes, and further data, as JSON for the model."""
        return orjson.dumps({"episodes": self.shown(), **known}).decode()

    def shown(self) -> list[Doc]:
        """Returns the episodes as the model sees them."""
        return [_shown(number, doc) for number, doc in enumerate(self.docs, start=1)]

    def cited(self, numbers: Sequence[int]) -> list[Doc]:
        """Returns the episodes with these numbers, in order. Unknown numbers are ignored."""
        return [self.docs[number - 1] for number in sorted({*numbers}) if 1 <= number <= len(self.docs)]

    @property
    def size(self) -> int:
        """The number of episodes."""
        return len(self.docs)

    def derivation_id(self, extractor: str, prompt_id: str) -> str:
        """Returns an id that is the same for the same episodes, extractor and prompt."""
        return derivations.id_of([doc["action_id"] for doc in self.docs], extractor, prompt_id)

    def described(self) -> Doc:
        """Returns owner and episodes, as fields of a derivation."""
        return {**self.owner, "action_ids": [doc["action_id"] for doc in self.docs]}

    def unchanged(self) -> list[Change]:
        """Returns no changes: what was logged does not change."""
        return []


def _shown(number: int, doc: Doc) -> Doc:
    fields: Doc = {name: doc[name] for name in ("event_type", "action_type", "actor", "outcome", "entities")}
    said = {name: value for name, value in doc["feedback"].items() if value is not None}
    call = tool_calls.of_action(doc["action"])
    return {
        "number": number,
        "at": doc["timestamp"],
        **fields,
        "tool": doc["action"].get("tool"),
        "content": strip_served(doc["content"]).strip()[:CONTENT_CHARS],
        **({"call": call} if call else {}),
        **({"feedback": said} if said else {}),
    }


def chunks(batch: Batch, limit: int = CHUNK_TOKENS, max_episodes: int = MOST) -> Iterator[Batch]:
    """Splits a batch into batches of at most `limit` tokens and `max_episodes` episodes. A longer episode is a batch of
    its own."""
    for docs in tokens.in_chunks(batch.docs, _as_prompted, limit, max_episodes):
        yield Batch(batch.scope, batch.agent_id, batch.user_id, docs)


def _as_prompted(doc: Doc) -> str:
    return orjson.dumps(_shown(0, doc)).decode()


def lines(batch: Batch) -> list[TranscriptLine]:
    """Returns the episodes as lines that a lesson may quote."""
    return [
        TranscriptLine(number, "tool", None, doc["timestamp"], _quotable(doc))
        for number, doc in enumerate(batch.docs, start=1)
    ]


def _quotable(doc: Doc) -> str:
    shown = _shown(0, doc)
    return " ".join([shown["content"], *(str(value) for value in shown.get("call", {}).values())])


def facts(
    found: Sequence[StatedFact], batch: Batch, dropped: DroppedCounts, names: Sequence[str] = ()
) -> list[tuple[FactCreate, Doc]]:
    """Returns the facts to assert with the ids of their episodes, as a field of the source. Facts that cite no episode,
    or whose object none of them contains, are dropped. A fact without a time is valid from its first episode on.
    `names` are the user's."""
    result: list[tuple[FactCreate, Doc]] = []
    for one in found:
        cited = batch.cited(one.episode_numbers)
        if not cited:
            dropped["unfounded"] += 1
            continue
        said = {name: strip_served(getattr(one, name)).strip() for name in ("subject", "predicate", "object")}
        if no_value(said["object"]) or not shown(said["object"], " ".join(map(_as_prompted, cited))):
            dropped["not_said"] += 1
            continue
        user = batch.scope.agents is None and is_user(said["subject"], names)
        try:
            fields = about(one.model_copy(update=said), batch.owner, user=user)
            fields["valid_from"] = one.valid_from or cited[0]["timestamp"]
            body = FactCreate.model_validate({**batch.owner, **fields, "trust": TRUST})
        except (ValidationError, Invalid):
            dropped["invalid"] += 1
            continue
        result.append((body, {"action_ids": [doc["action_id"] for doc in cited]}))
    return result


def procedure(one: StatedProcedure, batch: Batch, dropped: DroppedCounts) -> tuple[ProcedureCreate, list[Doc]] | None:
    """Returns a procedure and the episodes that it cites, or None if it is dropped."""
    cited = batch.cited(one.episode_numbers)
    if not cited:
        dropped["unfounded"] += 1
        return None
    fields: dict[str, Any] = {name: strip_served(getattr(one, name)).strip() for name in ("name", "trigger")}
    fields |= {name: _lines(getattr(one, name)) for name in ("preconditions", "steps", "notes")}
    try:
        return ProcedureCreate.model_validate({**batch.owner, **fields, "trust": TRUST}), cited
    except ValidationError:
        dropped["invalid"] += 1
        return None


def _lines(texts: Sequence[str]) -> list[str]:
    return [text for text in (strip_served(text).strip() for text in texts) if text]


def worked(cited: Sequence[Doc]) -> bool:
    """Returns True if an episode succeeded. New steps are learned only from success."""
    return any(doc["outcome"] == "success" for doc in cited)


def refined(old: Doc, body: ProcedureCreate, cited: Sequence[Doc], dropped: DroppedCounts) -> Doc:
    """Returns the changed fields of a known procedure. It gains notes. Its steps change only if they were derived, have
    no more trust, and the new ones have worked. Name, trigger and preconditions stay."""
    changed: Doc = {}
    notes, _ = learned(old["notes"], body.notes)
    if {*notes} - {*old["notes"]}:
        changed["notes"] = notes
    if body.steps != old["steps"]:
        derived = old["source"]["origin"] == "consolidation" and old["trust"] <= TRUST
        if derived and worked(cited):
            changed |= {"steps": body.steps, **ended_trial(old, {"steps": body.steps})}
        else:
            dropped["protected"] += 1
    return changed
