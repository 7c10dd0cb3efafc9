"""What fields of a profile were before they changed.

A prompt that a model caches shows the profile as it was when the conversation began. Fields that are facts have their
history; of lists and objects a user's record keeps what they were before their last changes, for a conversation's time.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from app.core.clock import parse_rfc3339, rfc3339
from app.facts.keys import EMPTY_PROFILE, PREDICATES
from app.storage.schema import Doc

KEPT = timedelta(days=2)
"""A longer conversation sees a change of its first days at once."""
MOST = 20
"""Changes that are kept."""


def with_change(record: Doc, new: Mapping[str, Any], old: Mapping[str, Any], now: str) -> list[Doc]:
    """Returns the kept changes of a user's record with the one from `old` to `new`, the latest last: what each changed
    field was, and until when. Changes of longer ago are forgotten."""
    changed = {
        name: before
        for name, before in ((name, old.get(name, EMPTY_PROFILE[name])) for name in EMPTY_PROFILE)
        if name not in PREDICATES and before != new.get(name, EMPTY_PROFILE[name])
    }
    least = rfc3339(parse_rfc3339(now) - KEPT)
    kept = [change for change in _changes(record) if change["until"] > least]
    return [*kept, {"until": now, "fields": changed}][-MOST:] if changed else kept


def profile_at(record: Doc, profile: Doc, known_at: str) -> Doc:
    """Returns the profile with the lists and objects that it had at a time, as far as the record tells."""
    if record["created_at"] > known_at:
        return profile | {name: empty for name, empty in EMPTY_PROFILE.items() if name not in PREDICATES}
    before: Doc = {}
    for change in reversed(_changes(record)):
        if change["until"] > known_at:
            before |= change["fields"]
    return profile | before


def _changes(record: Doc) -> list[Doc]:
    """Returns the changes of a record that can be read, as all can that this module wrote."""
    stored = record.get("earlier")
    return [
        change
        for change in (stored if isinstance(stored, list) else ())
        if isinstance(change, dict) and isinstance(change.get("until"), str) and isinstance(change.get("fields"), dict)
    ]
