"""Drafts: the fields that an assertion gives to its facts, and the assertion as the conflict rules see it."""

from app.errors import Forbidden, invalid
from app.facts.about_user import field_of, settled
from app.facts.aliases import AliasMap
from app.facts.conflict_resolution import OPEN_END, OPEN_START, Assertion, ConflictPolicy
from app.facts.keys import group_of, key_of, predicate_key, sentence
from app.facts.schemas import FactCreate, object_type
from app.storage.schema import Doc
from app.storage.scope import Scope
from app.storage.text import content_hash


def draft_of(body: FactCreate, source: Doc) -> Doc:
    """Returns the fields that an assertion gives to every fact that it creates."""
    names = {"agent_id", "user_id", "subject", "predicate", "object", "confidence", "trust"}
    fields = settled(body.model_dump(include=names))
    kind = body.object_type or object_type(body.object)
    return {**fields, "object_type": kind, **computed(fields), "source": source}


def require_single(body: FactCreate) -> FactCreate:
    """Returns the assertion, with cardinality `one` for a fact of the profile. Raises Invalid for a fact of the profile
    with several values, and for a merge, which is a request of its own."""
    if body.on_conflict == "merge":
        raise invalid("/on_conflict", "must not be merge here: a fact is merged by POST /v1/facts")
    if field_of({"user_id": body.user_id, "subject": body.subject, "predicate": body.predicate}) is None:
        return body
    if body.cardinality == "many":
        raise invalid("/cardinality", "must be one: the profile has one value at a time")
    if body.on_conflict == "keep_both":
        raise invalid("/on_conflict", "must keep one value: the profile has one at a time")
    return body.model_copy(update={"cardinality": "one"})


def computed(fact: Doc) -> Doc:
    """Returns the internal fields, which are derived from the others. A predicate key that is given stays."""
    subject_key, key = key_of(fact["subject"]), fact.get("predicate_key") or predicate_key(fact["predicate"])
    return {
        "group_id": group_of(fact["agent_id"], fact["user_id"], subject_key, key),
        "subject_key": subject_key,
        "predicate_key": key,
        "object_key": key_of(fact["object"]),
        "content_hash": content_hash(sentence(fact)),
    }


def respell(draft: Doc, predicate: str) -> None:
    """Gives the draft this spelling of its predicate, and computes its internal fields again."""
    if draft["predicate"] != predicate:
        draft["predicate"] = predicate
        draft.update(computed(draft))


def assertion_of(body: FactCreate, draft: Doc, aliases: AliasMap) -> Assertion:
    """Returns the assertion for the conflict rules."""
    start = (body.valid_from or OPEN_START) if "valid_from" in body.model_fields_set else None
    identity = aliases.object_of(draft), draft["object_type"]
    end = body.valid_until or OPEN_END
    policy: ConflictPolicy = "temporal" if body.on_conflict == "merge" else body.on_conflict
    return Assertion(identity, start, end, body.trust, body.cardinality, policy)


def least_start(said: Assertion, now: str) -> str:
    """Returns the earliest start that the assertion may get, before the facts that it meets are read."""
    if said.start is not None:
        return said.start
    return now if said.end == OPEN_END else OPEN_START


def require_write(draft: Doc, scope: Scope) -> None:
    """Raises Forbidden if the caller may not assert this. Facts of the profile are of no agent: a caller that is bound
    to agents would change what all agents see."""
    field = field_of(draft)
    if field is not None and scope.agents is not None:
        raise Forbidden(
            f"{draft['subject']} {draft['predicate']} is the {field} of the user's profile, which all agents see. "
            "A key that is bound to agents reads it and may not change it."
        )
    scope.require_write(draft["agent_id"], draft["user_id"])
