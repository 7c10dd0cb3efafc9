"""What fields of a profile were before they changed.

A prompt that a model caches shows the profile as it was when the conversation began. Fields that are facts have their
history; of lists and objects a user's record keeps what they were before their last changes, for a conversation's time.
"""

from datetime import timedelta

from app.core.clock import parse_rfc3339, rfc3339
from app.facts.keys import ProfileChange, UserProfile, UserRecord
from app.profiles.schemas import LIST_FIELDS, OBJECT_FIELDS

KEPT = timedelta(days=2)
"""A longer conversation sees a change of its first days at once."""
MOST = 20
"""Changes that are kept."""


def with_change(record: UserRecord, new: UserProfile, old: UserProfile, now: str) -> list[ProfileChange]:
    """Returns the kept changes of a user's record with the one from `old` to `new`, the latest last: what each changed
    field was, and until when. Changes of longer ago are forgotten."""
    changed: UserProfile = {}
    for name in LIST_FIELDS:
        if (texts := old.get(name, [])) != new.get(name, []):
            changed[name] = texts
    for field in OBJECT_FIELDS:
        if (entries := old.get(field, {})) != new.get(field, {}):
            changed[field] = entries
    least = rfc3339(parse_rfc3339(now) - KEPT)
    recent = [change for change in _changes(record) if change["until"] > least]
    return [*recent, ProfileChange(until=now, fields=changed)][-MOST:] if changed else recent


def profile_at(record: UserRecord, profile: UserProfile, known_at: str) -> UserProfile:
    """Returns the profile with the lists and objects that it had at a time, as far as the record tells."""
    if record["created_at"] > known_at:
        return {**profile, "interests": [], "conversation_preferences": [], "preferences": {}, "custom": {}}
    before: UserProfile = {}
    for change in reversed(_changes(record)):
        if change["until"] > known_at:
            before |= change["fields"]
    return profile | before


def _changes(record: UserRecord) -> list[ProfileChange]:
    """Returns the changes of a record that can be read, as all can that this module wrote."""
    stored = record.get("earlier")
    return [change for change in stored if _is_readable(change)] if isinstance(stored, list) else []


def _is_readable(change: object) -> bool:
    return isinstance(change, dict) and isinstance(change.get("until"), str) and isinstance(change.get("fields"), dict)
