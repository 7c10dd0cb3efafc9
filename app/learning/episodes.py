"""A stretch of what was done, and the rules for what may be learned from it. Pure.

An episode is its caller's own word, as a message is: what is derived from episodes is believed as far as the least of
them, which is 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson
from pydantic import ValidationError

from app.core import tokens
from app.core.prompt_fencing import strip_served
from app.facts.schemas import FactCreate
from app.learning.output_validation import DroppedCounts
from app.learning.prompts import StatedFact, StatedProcedure
from app.procedures.repository import learned
from app.procedures.schemas import ProcedureCreate
from app.storage.schema import Doc
from app.storage.scope import Scope

TRUST = 1.0
CHUNK_TOKENS = 6_000
MOST = 50
"""Episodes that the model reads at once."""
CONTENT_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes of one pair, in the order in which they happened; the model knows them by their number, from 1."""

    scope: Scope
    agent_id: str
    user_id: str | None
    docs: Sequence[Doc]

    @property
    def owner(self) -> dict[str, str | None]:
        return {"agent_id": self.agent_id, "user_id": self.user_id}

    def shown(self) -> list[Doc]:
        return [_shown(number, doc) for number, doc in enumerate(self.docs, start=1)]

    def cited(self, numbers: Sequence[int]) -> list[Doc]:
        """Those that are there, in their order."""
        return [self.docs[number - 1] for number in sorted({*numbers}) if 1 <= number <= len(self.docs)]

    @property
    def size(self) -> int:
        return len(self.docs)

    def derivation_id(self, extractor: str, prompt_id: str) -> str:
        """The same for the same episodes, asked about the same way."""
        of = [[doc["action_id"] for doc in self.docs], extractor, prompt_id]
        return f"der_{blake2b(orjson.dumps(of), digest_size=16).hexdigest()}"

    def described(self) -> Doc:
        return {**self.owner, "action_ids": [doc["action_id"] for doc in self.docs]}


def _shown(number: int, doc: Doc) -> Doc:
    report: Doc = {name: doc[name] for name in ("event_type", "action_type", "actor", "outcome", "entities")}
    said = {name: value for name, value in doc["feedback"].items() if value is not None}
    return {
        "number": number,
        "at": doc["timestamp"],
        **report,
        "tool": doc["action"].get("tool"),
        "content": strip_served(doc["content"]).strip()[:CONTENT_CHARS],
        **({"feedback": said} if said else {}),
    }


def chunks(batch: Batch, limit: int = CHUNK_TOKENS, max_episodes: int = MOST) -> Iterator[Batch]:
    """Runs of at most `limit` tokens and `max_episodes` episodes, a longer one being one by itself."""
    part: list[Doc] = []
    size = 0
    for doc in batch.docs:
        cost = tokens.count(orjson.dumps(_shown(0, doc)).decode())
        if part and (size + cost > limit or len(part) == max_episodes):
            yield Batch(batch.scope, batch.agent_id, batch.user_id, part)
            part, size = [], 0
        part.append(doc)
        size += cost
    if part:
        yield Batch(batch.scope, batch.agent_id, batch.user_id, part)


def facts(found: Sequence[StatedFact], batch: Batch, dropped: DroppedCounts) -> list[tuple[FactCreate, list[str]]]:
    """Each fact to be asserted, and the episodes that it comes from. What comes from none is dropped. One whose time is
    not said is true from the first of them on."""
    result: list[tuple[FactCreate, list[str]]] = []
    for one in found:
        cited = batch.cited(one.episode_numbers)
        if not cited:
            dropped["unfounded"] += 1
            continue
        said = {name: strip_served(getattr(one, name)).strip() for name in ("subject", "predicate", "object")}
        fields = {**said, "cardinality": one.cardinality, "valid_from": one.valid_from or cited[0]["timestamp"]}
        try:
            body = FactCreate.model_validate({**batch.owner, **fields, "trust": TRUST})
        except ValidationError:
            dropped["invalid"] += 1
            continue
        result.append((body, [doc["action_id"] for doc in cited]))
    return result


def procedure(one: StatedProcedure, batch: Batch, dropped: DroppedCounts) -> tuple[ProcedureCreate, list[Doc]] | None:
    """What is said of a procedure, and the episodes that it comes from."""
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
    """A way of doing things is learned from what succeeded."""
    return any(doc["outcome"] == "success" for doc in cited)


def refined(old: Doc, body: ProcedureCreate, cited: Sequence[Doc], dropped: DroppedCounts) -> Doc:
    """What changes of a procedure that is there already: it gains notes; its steps change only where they were derived
    themselves, are believed no more, and the new ones have worked. Name, trigger and what must be before stay."""
    changed: Doc = {}
    notes, _ = learned(old["notes"], body.notes)
    if {*notes} - {*old["notes"]}:
        changed["notes"] = notes
    if body.steps != old["steps"]:
        derived = old["source"]["origin"] == "consolidation" and old["trust"] <= TRUST
        if derived and worked(cited):
            changed["steps"] = body.steps
        else:
            dropped["protected"] += 1
    return changed
