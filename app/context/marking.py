"""Reads the single-valued facts of a prompt, and marks the candidates that state another value of one."""

from collections.abc import Sequence
from dataclasses import replace

from app.context.candidates import Candidate, SourceRequest
from app.context.single_values import SingleValue, marked, single_values
from app.core.clock import rfc3339
from app.core.process import off_loop
from app.facts.about_user import PREDICATES, group_of_field
from app.facts.repository import FactRepository, View, of_pairs
from app.storage.filters import Eq, In, Or, both
from app.storage.schema import Doc

MARKED = frozenset({"instructions", "summary", "memories", "facts"})
"""Sections whose texts are marked. Turns of the session stay as they were said."""
MOST_GROUPS = 60
MOST_ROWS = 500


async def values_of(request: SourceRequest, facts: Sequence[Doc]) -> list[SingleValue]:
    """Returns the single-valued facts that a prompt may contradict: those among `facts`, and those of the profile."""
    user = request.body.user_id
    groups = [] if user is None else [group_of_field(user, name) for name in PREDICATES]
    groups += [fact["group_id"] for fact in facts if fact["cardinality"] == "one"]
    named = tuple(dict.fromkeys(groups))[:MOST_GROUPS]
    if not named:
        return []
    repository = FactRepository(request.resources.store, request.scope)
    return await _read(repository, named, request.body.as_of or rfc3339(request.now), request.body.known_at)


async def marked_memories(
    facts: FactRepository, agent_id: str, profile: Doc, memories: Sequence[Doc], now: str
) -> list[Doc]:
    """Returns memories with a mark behind each text that states another value of a single-valued fact than the one that
    holds. `profile`: the user's id and name."""
    user_id: str = profile["user_id"]
    pairs = facts.scope.pairs(agent_id, user_id, include_shared=True)
    single = both(View(now).believed(), Eq("cardinality", "one"), Or(tuple(of_pairs(pairs))))
    found = await facts.find(single, limit=MOST_GROUPS) if memories and pairs else []
    groups = [*(group_of_field(user_id, name) for name in PREDICATES), *(fact["group_id"] for fact in found)]
    named = tuple(dict.fromkeys(groups))[:MOST_GROUPS]
    values = await _read(facts, named, now, None) if memories else []
    names = [str(name) for name in (user_id, profile["name"]) if name]
    said = ((doc, doc["event_at"] or doc["created_at"]) for doc in memories)
    size = sum(len(doc["content"]) for doc in memories)
    return await off_loop(
        size, lambda: [doc | {"content": marked(doc["content"], at, values, names)} for doc, at in said]
    )


async def _read(facts: FactRepository, groups: tuple[str, ...], as_of: str, known_at: str | None) -> list[SingleValue]:
    written = View(None, known_at).written()
    return single_values(await facts.find(both(In("group_id", groups), written), limit=MOST_ROWS), as_of, known_at)


def mark(items: Sequence[Candidate], values: Sequence[SingleValue], names: Sequence[str]) -> list[Candidate]:
    """Returns the candidates, with a mark behind each text that states another value than the one that holds."""
    return [_marked(item, values, names) for item in items] if values else list(items)


def _marked(item: Candidate, values: Sequence[SingleValue], names: Sequence[str]) -> Candidate:
    text = marked(item.text, item.place[0], values, names)
    partner = None if item.partner is None else _marked(item.partner, values, names)
    return item if text == item.text and partner is item.partner else replace(item, text=text, partner=partner)
