"""Drafts of facts: the fields that an assertion gives to its facts, and the assertion as the conflict rules see it.

Fields of a user's profile are facts, too. `StatedProfile` makes assertions of them, and `UserRecords` keeps the users'
records in step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.errors import Forbidden, invalid
from app.facts.aliases import AliasMap
from app.facts.conflict_resolution import OPEN_END, OPEN_START, Assertion, ConflictPolicy
from app.facts.keys import (
    PREDICATES,
    USER,
    USERS,
    ProfileField,
    field_of,
    group_of,
    key_of,
    new_user,
    predicate_key,
    sentence,
    settled,
)
from app.facts.models import FactRecord
from app.facts.schemas import FactCreate, object_type
from app.memories.schemas import Source
from app.storage.changes import Change, Update
from app.storage.protocol import Store
from app.storage.repository import Repository
from app.storage.scope import Scope
from app.storage.text import content_hash


def draft_of(body: FactCreate, source: Source) -> FactRecord:
    """Returns the fields that an assertion gives to every fact that it creates."""
    fields = settled(
        {
            "agent_id": body.agent_id,
            "user_id": body.user_id,
            "subject": body.subject,
            "predicate": body.predicate,
            "object": body.object,
            "confidence": body.confidence,
            "trust": body.trust,
        }
    )
    kind = body.object_type or object_type(body.object)
    return {**fields, "object_type": kind, **computed(fields), "source": source}


def require_single(body: FactCreate) -> FactCreate:
    """Returns the assertion, with cardinality `one` for a fact of the profile. Raises Invalid for a fact of the profile
    with several values, and for a merge, which is a request of its own."""
    if body.on_conflict == "merge":
        raise invalid("/on_conflict", "must not be merge here: a fact is merged by POST /v1/facts")
    if field_of_assertion(body) is None:
        return body
    if body.cardinality == "many":
        raise invalid("/cardinality", "must be one: the profile has one value at a time")
    if body.on_conflict == "keep_both":
        raise invalid("/on_conflict", "must keep one value: the profile has one at a time")
    return body.model_copy(update={"cardinality": "one"})


def field_of_assertion(body: FactCreate) -> ProfileField | None:
    """Returns the field of the profile that an assertion states, or None."""
    return field_of({"user_id": body.user_id, "subject": body.subject, "predicate": body.predicate})


def computed(fact: FactRecord) -> FactRecord:
    """Returns the internal fields, which are derived from the others."""
    subject_key, key = key_of(fact["subject"]), predicate_key(fact["predicate"])
    return {
        "group_id": group_of(fact["agent_id"], fact["user_id"], subject_key, key),
        "subject_key": subject_key,
        "predicate_key": key,
        "object_key": key_of(fact["object"]),
        "content_hash": content_hash(sentence(fact)),
    }


def respell(draft: FactRecord, predicate: str) -> None:
    """Gives the draft this spelling of its predicate, and computes its internal fields again."""
    if draft["predicate"] != predicate:
        draft["predicate"] = predicate
        draft.update(computed(draft))


def assertion_of(body: FactCreate, draft: FactRecord, aliases: AliasMap) -> Assertion:
    """Returns the assertion for the conflict rules."""
    start = (body.valid_from or OPEN_START) if "valid_from" in body.model_fields_set else None
    identity = aliases.object_of(draft), draft["object_type"]
    end = body.valid_until or OPEN_END
    policy: ConflictPolicy = "temporal" if body.on_conflict == "merge" else body.on_conflict
    return Assertion(identity, start, end, body.trust, body.cardinality, policy)


def least_start(assertion: Assertion, now: str) -> str:
    """Returns the earliest start that the assertion may get, before the facts that it meets are read."""
    if assertion.start is not None:
        return assertion.start
    return now if assertion.end == OPEN_END else OPEN_START


def require_write(draft: FactRecord, scope: Scope) -> None:
    """Raises Forbidden if the caller may not assert this. Facts of the profile are of no agent: a caller that is bound
    to agents would change what all agents see."""
    field = field_of(draft)
    if field is not None and scope.agents is not None:
        raise Forbidden(
            f"{draft['subject']} {draft['predicate']} is the {field} of the user's profile, which all agents see. "
            "A key that is bound to agents reads it and may not change it."
        )
    scope.require_write(draft["agent_id"], draft["user_id"])


@dataclass(frozen=True, slots=True)
class LearnedValue:
    """Of a value that the service has learned: its trust, the fields of its source beside the API key, and from when it
    is true (RFC 3339)."""

    trust: float
    source: Source
    since: str


NOTHING: Mapping[str, LearnedValue] = {}


@dataclass(frozen=True, slots=True)
class StatedProfile:
    """Fields of a profile that a request states as facts; null clears a field. A value that is not `learned` has full
    trust and is true from now on."""

    values: Mapping[str, object]
    learned: Mapping[str, LearnedValue] = field(default_factory=dict)

    def assertions(self, user_id: str) -> list[tuple[FactCreate, Source]]:
        """Returns the facts to assert, each with fields of its source."""
        stated = {name: value for name, value in self.values.items() if value is not None}
        assertions: list[tuple[FactCreate, Source]] = []
        for name, value in stated.items():
            learned = self.learned.get(name)
            if learned is None:
                assertions.append((_fact(user_id, name, value), {}))
            else:
                fact = _fact(user_id, name, value, trust=learned.trust, valid_from=learned.since)
                assertions.append((fact, learned.source))
        return assertions

    def cleared(self, user_id: str) -> list[FactCreate]:
        """Returns facts of the fields that the request clears, of any value."""
        return [_fact(user_id, name, 0) for name, value in self.values.items() if value is None]


def _fact(user_id: str, field: str, value: object, **more: Any) -> FactCreate:
    return FactCreate(
        user_id=user_id, subject=USER, predicate=PREDICATES[field], object=str(value), cardinality="one", **more
    )


class UserRecords:
    """The records of users within a caller's scope."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self._users = Repository(store, scope, USERS)

    async def touched(self, facts: Iterable[FactRecord], now: str) -> list[Change]:
        """Returns the changes of the records whose profiles the facts state: the version rises."""
        users = {user for fact in facts if (user := fact["user_id"]) is not None and field_of(fact) is not None}
        records = await self._users.get_many(sorted(users)) if users else {}
        changes: list[Change] = []
        for user_id in sorted(users):
            if user_id not in records:
                changes.append(self._users.insert(new_user(user_id, now)))
            else:
                tenant, touched = self._users.scope.tenant, {"updated_at": now}
                changes.append(Update(USERS, tenant, user_id, touched, {"version": 1}, user=user_id))
        return changes
