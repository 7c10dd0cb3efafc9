"""Reads the single-valued facts of a prompt, and marks the candidates that state another value of one."""

from collections.abc import Sequence
from dataclasses import replace

from app.context.candidates import Candidate, SourceRequest
from app.context.single_values import SingleValue, marked, single_values
from app.core.clock import rfc3339
from app.facts.about_user import PREDICATES, group_of_field
from app.facts.repository import FactRepository, View
from app.storage.filters import In, both
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
    as_of = request.body.as_of or rfc3339(request.now)
    known = View(None, request.body.known_at).written()
    repository = FactRepository(request.resources.store, request.scope)
    rows = await repository.find(both(In("group_id", named), known), limit=MOST_ROWS)
    return single_values(rows, as_of, request.body.known_at)


def mark(items: Sequence[Candidate], values: Sequence[SingleValue], names: Sequence[str]) -> list[Candidate]:
    """Returns the candidates, with a mark behind each text that states another value than the one that holds."""
    return [_marked(item, values, names) for item in items] if values else list(items)


def _marked(item: Candidate, values: Sequence[SingleValue], names: Sequence[str]) -> Candidate:
    text = marked(item.text, item.place[0], values, names)
    partner = None if item.partner is None else _marked(item.partner, values, names)
    return item if text == item.text and partner is item.partner else replace(item, text=text, partner=partner)
