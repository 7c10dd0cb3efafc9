"""Which memories of a pair are one memory told twice, and which of them is kept. Pure.

Those are merged that claim the same (`claims`) of the same scope, as the same type, under the same condition, for the
same time. The kept one stays itself, believed as it was; what it gains is that nothing of the others is lost: their
tags, their metadata where it has none, the greatest importance.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from app.consolidation.claims import claim
from app.memories.models import MAX_TAGS
from app.schemas import same
from app.storage.collection import Doc
from app.storage.filters import Eq, Filter, Not, both
from app.storage.repository import unexpired

AT_ONCE = 500
"""Most memories that are retired in one commit."""


@dataclass(frozen=True, slots=True)
class Group:
    kept: Doc
    gains: Doc
    """Fields of the kept one that change."""
    retired: Sequence[Doc]
    left: int = 0
    """Others that are for another run."""


def candidates(now: str) -> Filter:
    """Messages keep a conversation whole, summaries stand for their own day or session, and a problem that comes back
    is not the one that was closed."""
    kinds = (Not(Eq("memory_type", kind)) for kind in ("message", "summary", "issue"))
    return both(Eq("status", "active"), *kinds, unexpired(now))


def sameness(doc: Doc) -> bytes:
    """Equal for memories that tell the same; a digest, so that a whole pair can be looked through."""
    said_at = doc["source"]["origin"] == "extraction" and doc["memory_type"] != "experience"  # as `identity_hash`
    told = None if said_at else doc["event_at"]
    times = (doc["valid_from"], doc["valid_until"], doc["expires_at"], told)
    condition = claim(doc["context"]) if doc["context"] else None
    parts: tuple[Any, ...] = (doc["agent_id"], doc["user_id"], doc["memory_type"], claim(doc["content"]), condition)
    return blake2b(orjson.dumps([*parts, *times]), digest_size=16).digest()


def groups(told: Iterable[Doc], importance: Mapping[str, float]) -> list[Group]:
    """Of memories that tell the same, which take the place of which. `importance`: at the moment, by id.

    Kept is what is pinned, else what has a name, else what is believed most, else what carries metadata, else what
    matters most, else the oldest. Never retired: what is pinned or has a name, what is believed more than the kept
    one or carries other metadata, and what an undo brought back.
    """
    found: list[Group] = []
    rest = sorted(told, key=lambda doc: _rank(doc, importance))
    while rest:
        kept, *others = rest
        tags, alike, rest = set(kept["tags"]), list[Doc](), list[Doc]()
        for doc in others:
            if not _gives_way(doc, kept) or len(tags | {*doc["tags"]}) > MAX_TAGS:
                rest.append(doc)
                continue
            alike.append(doc)
            tags |= {*doc["tags"]}
        if retired := alike[:AT_ONCE]:
            found.append(Group(kept, _gains(kept, retired, importance), retired, len(alike) - len(retired)))
    return found


def _rank(doc: Doc, importance: Mapping[str, float]) -> tuple[Any, ...]:
    named, told = doc["key"] is not None, bool(doc["metadata"])
    strength = importance[doc["memory_id"]]
    return (not doc["pinned"], not named, -doc["trust"], not told, -strength, doc["created_at"], doc["memory_id"])


def _gives_way(doc: Doc, kept: Doc) -> bool:
    protected = doc["pinned"] or doc["key"] is not None or doc.get("kept_apart", False)
    told = not doc["metadata"] or same(doc["metadata"], kept["metadata"])
    return not protected and told and bool(doc["trust"] <= kept["trust"])


def _gains(kept: Doc, retired: Sequence[Doc], importance: Mapping[str, float]) -> Doc:
    gains: Doc = {"supersedes": [*kept["supersedes"], *(doc["memory_id"] for doc in retired)]}
    tags = list(dict.fromkeys(tag for doc in (kept, *retired) for tag in doc["tags"]))
    if tags != kept["tags"]:
        gains["tags"] = tags
    strongest = max((kept, *retired), key=lambda doc: importance[doc["memory_id"]])
    if importance[strongest["memory_id"]] > importance[kept["memory_id"]]:
        gains |= {name: strongest[name] for name in ("importance", "base_importance", "anchored_at")}
    return gains
