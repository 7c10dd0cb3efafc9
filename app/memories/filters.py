"""Filters of memories: by tags and metadata in searches, contexts, lists, deletions and policies, by the fields that
lists name, and by valid time.

The store compares digests of metadata entries, so it can decide `eq`, `ne`, `in` and `nin` of an entry. It cannot
decide `gte`, `contains` or what lies deeper. `SplitFilter.where` is what it can decide of the whole filter: no memory
that matches is left out. `SplitFilter.keep` then decides, from the metadata itself.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypedDict

from pydantic import Field
from typing_extensions import TypeAliasType

from app.core.metadata_filter import AllOf, Compare, Condition, NoneOf, condition_of, matches
from app.core.schemas import JsonObject, MetadataFilter, Schema
from app.errors import invalid
from app.memories.records import metadata_term
from app.memories.schemas import (
    MemoryRecord,
    MemoryType,
    Origin,
    Tags,
)
from app.storage.repository import between, having
from app.storage.schema import Absent, And, Eq, Filter, Has, Not, Or, Range, both

TagsMatch = TypeAliasType("TagsMatch", Literal["any", "all"])
Keep: TypeAlias = Callable[[MemoryRecord], bool]


class TagAndMetadataFilters(Schema):
    """What a request asks of the tags and the metadata of memories."""

    tags: Annotated[Tags, Field(min_length=1)] | None = Field(None, description="Has these tags.")
    tags_match: TagsMatch = Field("any", description="`any`: has at least one of `tags`. `all`: has each of them.")
    exclude_tags: Annotated[Tags, Field(min_length=1)] | None = Field(None, description="Has none of these.")
    metadata: MetadataFilter | None = Field(
        None,
        description='Values, operators and logic: `{"topic": "billing", "priority": {"gte": 3}}`, `{"OR": [{"topic": '
        '"billing"}, {"NOT": {"seen": {"exists": true}}}]}`. Operators: eq, ne, gt, gte, lt, lte, in, nin, contains, '
        "icontains, exists.",
    )

    def split_filter(self) -> "SplitFilter":
        """Returns the filter of the request's tags and metadata."""
        tags = by_tags(self.tags, self.tags_match, self.exclude_tags)
        metadata = by_metadata(self.metadata)
        return SplitFilter(both(tags, metadata.where), metadata.keep)


class SplitFilter(NamedTuple):
    """A filter in two steps: what the store decides, and what is decided from a record that it let through (None:
    nothing more)."""

    where: Filter
    keep: Keep | None

    def and_also(self, other: "SplitFilter") -> "SplitFilter":
        """Returns the filter for what both let through."""
        keeps = [keep for keep in (self.keep, other.keep) if keep is not None]
        keep = keeps[0] if len(keeps) == 1 else lambda record: all(keep(record) for keep in keeps)
        return SplitFilter(both(self.where, other.where), keep if keeps else None)


def by_tags(tags: Sequence[str] | None, match: TagsMatch, excluded: Sequence[str] | None) -> Filter:
    """Returns the filter for memories that have the tags, any or all, and none of those excluded."""
    has = tuple(Has("tags", tag) for tag in tags or ())
    wanted = Or(has) if match == "any" and has else And(has)
    return both(wanted, *(Not(Has("tags", tag)) for tag in excluded or ()))


def by_metadata(entries: JsonObject | None) -> SplitFilter:
    """Returns the filter for documents with a field `metadata` and its digests in `metadata_terms`."""
    if not entries:
        return SplitFilter(And(), None)
    condition = condition_of(entries)
    where = _stored(condition) or And()
    return SplitFilter(
        where, None if _is_stored(condition) else lambda record: matches(condition, record.get("metadata") or {})
    )


def _is_stored(condition: Condition) -> bool:
    """Returns whether the store can decide all of the condition."""
    if isinstance(condition, Compare):
        return len(condition.path) == 1 and condition.operator in ("eq", "ne", "in", "nin")
    return all(map(_is_stored, condition.parts))


def _stored(condition: Condition, *, negated: bool = False) -> Filter | None:
    """Returns a filter that lets through whatever matches the condition, or does not match it if `negated`. None: only
    one that lets everything through.

    Of `AllOf(a, b)` where the store cannot decide b, it is that of a; of `AnyOf(a, b)` it is None.
    """
    if isinstance(condition, Compare):
        if not _is_stored(condition):
            return None
        terms = tuple(Has("metadata_terms", metadata_term(condition.path[0], value)) for value in condition.values)
        has = terms[0] if len(terms) == 1 else Or(terms)
        return Not(has) if negated is (condition.operator in ("eq", "in")) else has
    # "not all of a and b" is "any of not a and not b", and "none of a and b" is "all of not a and not b"
    if isinstance(condition, NoneOf):
        negated = not negated
        all_hold = negated
    else:
        all_hold = isinstance(condition, AllOf) is not negated
    stored = [_stored(part, negated=negated) for part in condition.parts]
    known = tuple(part for part in stored if part is not None)
    if all_hold:
        return And(known)
    return None if len(known) < len(stored) else Or(known)


# --- Lists ------------------------------------------------------------------------------------------------------------

MemoryListStatus = TypeAliasType("MemoryListStatus", Literal["active", "superseded", "archived", "disputed", "any"])


class TagFilters(TypedDict, total=False):
    """What a list asks of the tags. None or absent: nothing."""

    tags: list[str] | None
    tags_match: TagsMatch
    exclude_tags: list[str] | None


class SourceSessionFilters(TypedDict, total=False):
    """What a list asks of the session that a record was learned from. None or absent: nothing."""

    session_id: str | None
    after_seq: int | None
    before_seq: int | None


class MemoryFilters(TagFilters, SourceSessionFilters, total=False):
    """What a list or a deletion asks of memories, beside their status. None or absent: nothing."""

    agent_id: str | None
    user_id: str | None
    memory_type: MemoryType | None
    origin: Origin | None
    key: str | None
    tag: str | None
    pinned: bool | None
    since: str | None
    until: str | None
    metadata: JsonObject | None


class MemoryListFilters(MemoryFilters):
    """What a list or a deletion asks of memories."""

    status: MemoryListStatus


def of_session(filters: SourceSessionFilters) -> list[Filter]:
    """Returns the filters for records whose source is a session, or messages of it.

    `after_seq` and `before_seq` exclude their own message. Raises Invalid if they are given without a session.
    """
    session, after, before = filters.get("session_id"), filters.get("after_seq"), filters.get("before_seq")
    if session is not None:
        of = Eq("source.session_id", session)
        return [of] if after is None and before is None else [of, Range("source.message_seq", gt=after, lt=before)]
    for name, number in {"after_seq": after, "before_seq": before}.items():
        if number is not None:
            raise invalid(f"/query/{name}", "session_id is required with it: messages are numbered in their session")
    return []


def listed(filters: MemoryListFilters) -> SplitFilter:
    """Returns the filter of a list or a deletion. Each filter matches exactly; shared memories are not added."""
    status, metadata = filters["status"], by_metadata(filters.get("metadata"))
    origin, tag = filters.get("origin"), filters.get("tag")
    where = both(
        having(filters, "agent_id", "user_id", "key", "memory_type"),
        None if status == "any" else Eq("status", status),
        *of_session(filters),
        None if origin is None else Eq("source.origin", origin),
        None if tag is None else Has("tags", tag),
        by_tags(filters.get("tags"), filters.get("tags_match", "any"), filters.get("exclude_tags")),
        metadata.where,
        having(filters, "pinned"),
        between("created_at", filters.get("since"), filters.get("until")),
    )
    return SplitFilter(where, metadata.keep)


# --- Valid time -------------------------------------------------------------------------------------------------------


_NO_START, _NO_END = Absent("valid_from"), Absent("valid_until")


def true_at(moment: str) -> tuple[Filter, Filter]:
    """Returns filters for records that are valid at `moment`.

    Validity intervals include their start and exclude their end.
    """
    return Or((_NO_START, Range("valid_from", le=moment))), Or((_NO_END, Range("valid_until", gt=moment)))
