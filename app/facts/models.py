"""The collections of facts: one document for each span of valid time that was ever known."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from app.storage.schema import Collection, SearchSchema
from app.storage.text import normalise_content


def sentence(fact: Mapping[str, Any]) -> str:
    """Returns a fact as a sentence, as it is embedded and indexed: `Ada lives in Boston`."""
    predicate = " ".join(str(fact["predicate"]).replace("_", " ").split())
    return f"{fact['subject']} {predicate} {fact['object']}"


FACTS = Collection(
    name="facts",
    id_field="fact_id",
    fields={
        "agent_id": "text",
        "user_id": "text",
        "group_id": "text",
        "lineage_id": "text",
        "subject_key": "text",
        "predicate_key": "text",
        "object_key": "text",
        "object_type": "text",
        "cardinality": "text",
        "status": "text",
        "standing": "text",
        "trust": "number",
        "valid_from": "time",
        "valid_until": "time",
        "known_from": "time",
        "known_until": "time",
        "created_at": "time",
    },
    indexes=(
        ("group_id", "known_until"),
        ("lineage_id",),
        ("subject_key", "user_id", "agent_id"),
        ("object_key", "user_id", "agent_id"),
        ("user_id", "agent_id"),
        ("user_id",),
    ),
    selective=("group_id", "subject_key", "object_key"),
    searched=SearchSchema(
        facets=("subject_key", "predicate_key", "object_type", "standing"),
        ranges=("valid_from", "valid_until", "known_from", "known_until", "trust"),
        time=("known_from",),
        anchor=("known_from",),
        importance="confidence",
        pinned="known_from",
        text=sentence,
    ),
    internal=frozenset({"content_hash", "group_id", "subject_key", "predicate_key", "object_key"}),
)
"""`group_id` names the scope, subject and predicate; `lineage_id` is the first id of an assertion that may be stated
again for another span. `*_key` fields are compared, the texts beside them are shown. `standing` (held or disputed)
never changes; `status` does. For the ranking, confidence is the importance; since `known_from` is always set, a fact
counts as pinned and never decays."""

FACT_GROUPS = Collection(
    name="fact_groups",
    id_field="group_id",
    fields={"agent_id": "text", "user_id": "text"},
    indexes=(("user_id",),),
    audited=False,
)
"""One document for each scope, subject and predicate. Every change of its facts expects the version that it read, so
that one of two concurrent changes fails. `known` is the time of the last change."""

MAX_KEY = 512
"""The maximum length of a key in characters."""


def key_of(text: str) -> str:
    """Returns the text by which a subject, predicate or object is compared: case, width and spaces make no difference.
    A long text becomes a digest, to keep the indexes small."""
    key = normalise_content(text)
    return key if len(key) <= MAX_KEY else blake2b(key.encode(), digest_size=16).hexdigest()


def group_of(agent: str | None, user: str | None, subject_key: str, predicate_key: str) -> str:
    """Returns the id of the group of an owner, subject and predicate."""
    return blake2b(orjson.dumps([agent, user, subject_key, predicate_key]), digest_size=16).hexdigest()
