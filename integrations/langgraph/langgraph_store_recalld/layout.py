"""How an item of LangGraph lies in Recalld. Pure.

An item is a memory. Its key is a hash of namespace and key, so that both may be of any length. Its metadata holds both,
and each entry of the value under the entry's name after `v:`, so that a search filters by them. A text that is too long
for one, such as a file of deepagents, is a list of its parts, after `t:`. Its content is the text
that is searched. A tag for each prefix of the namespace finds the items below it.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from langgraph.store.base import Item, PutOp, SearchItem, get_text_at_path, tokenize_path
from recalld_client import models

UserLabel = int | None | Callable[[tuple[str, ...]], str | None]
LONGEST_TEXT = 32_000
"""Characters of a memory's content, and of a text in its metadata."""
LONGEST_TAG = 128
DEFAULT_FIELDS = ("content", "text", "memory", "data")
"""Entries of a value that are searched where no fields are named; the whole value where it has none of them."""


@dataclass(frozen=True)
class Layout:
    """user_label: which label of a namespace is the user, or a function that says so, or None for no users.
    fields: the paths that are searched where a put names none."""

    agent_id: str
    user_label: UserLabel
    fields: Sequence[str] | None

    def user(self, namespace: tuple[str, ...]) -> str | None:
        """The user of a namespace; None for one that has none, as prefixes that are too short."""
        if callable(self.user_label):
            return self.user_label(namespace)
        if self.user_label is None or not -len(namespace) <= self.user_label < len(namespace):
            return None
        return namespace[self.user_label]

    def owner(self, namespace: tuple[str, ...]) -> dict[str, str]:
        """Whose items are in a namespace. Without a user: the agent's, which includes those of all its users."""
        user = self.user(namespace)
        return {"agent_id": self.agent_id, **({} if user is None else {"user_id": user})}

    def prefix_owner(self, prefix: tuple[str, ...]) -> dict[str, str]:
        """Whose items are below a prefix. The user may stand in a label that the prefix does not have yet."""
        return self.owner(prefix) if self.one_owner(prefix) else {"agent_id": self.agent_id}

    def one_owner(self, prefix: tuple[str, ...]) -> bool:
        """Whether all items below a prefix are of one owner."""
        label = self.user_label
        return label is None or (isinstance(label, int) and 0 <= label < len(prefix))

    def memory(self, op: PutOp, now: datetime) -> models.MemoryCreate:
        """The memory of an item. Raises ValueError for a value that cannot be searched as asked."""
        value = dict(op.value or {})
        space = op.namespace
        text = self._text(op, value)
        kinds = ("ns",) if op.index is False else ("ns", "ix")
        metadata: dict[str, Any] = dict(_stored(name, entry) for name, entry in value.items())
        metadata |= {"namespace": list(space), "key": op.key, "ttl": op.ttl}
        until = None if op.ttl is None else _rfc3339(now + timedelta(minutes=op.ttl))
        return {
            **self.owner(space),  # type: ignore[typeddict-item]
            "key": memory_key(space, op.key),
            "content": text,
            "metadata": metadata,
            "tags": [tag(kind, space[:depth]) for kind in kinds for depth in range(len(space) + 1)],
            "expires_at": until,
            "deduplicate": False,
        }

    def _text(self, op: PutOp, value: dict[str, Any]) -> str:
        texts: list[str] = []
        if op.index is None and self.fields is None:
            found = [value.get(name) for name in DEFAULT_FIELDS]
            texts = [text for text in found if isinstance(text, str)][:1]
        elif op.index is not False:
            paths = self.fields if op.index is None else op.index
            texts = [text for path in paths or () for text in get_text_at_path(value, tokenize_path(path))]
        text = "\n".join(texts).strip() or json.dumps(value, ensure_ascii=False, sort_keys=True)
        return text[:LONGEST_TEXT]


def memory_key(namespace: tuple[str, ...], key: str) -> str:
    return "langgraph/" + _hash([*namespace, key])


def tag(kind: str, prefix: tuple[str, ...]) -> str:
    """kind: `ns` for all items, `ix` for those that a query may find."""
    name = "/".join([kind, *(quote(label, safe="") for label in prefix)])
    return name if len(name) <= LONGEST_TAG else f"{kind}#{_hash(list(prefix))}"


def _hash(labels: list[str]) -> str:
    return hashlib.sha256(json.dumps(labels).encode()).hexdigest()


def is_item(memory: Any) -> bool:
    return bool(memory["key"]) and memory["key"].startswith("langgraph/")


def namespace_of(memory: Any) -> tuple[str, ...]:
    return tuple(memory["metadata"]["namespace"])


def _stored(name: str, entry: Any) -> tuple[str, Any]:
    if isinstance(entry, str) and len(entry) > LONGEST_TEXT:
        return f"t:{name}", [entry[begin : begin + LONGEST_TEXT] for begin in range(0, len(entry), LONGEST_TEXT)]
    return f"v:{name}", entry


def value_of(memory: Any) -> dict[str, Any]:
    entries = {name: entry for name, entry in memory["metadata"].items() if name[:2] in ("v:", "t:")}
    return {name[2:]: entry if name[0] == "v" else "".join(entry) for name, entry in entries.items()}


def item(memory: Any) -> Item:
    created, updated = (datetime.fromisoformat(memory[name]) for name in ("created_at", "updated_at"))
    key, namespace = memory["metadata"]["key"], namespace_of(memory)
    return Item(value=value_of(memory), key=key, namespace=namespace, created_at=created, updated_at=updated)


def found(memory: Any, score: float | None) -> SearchItem:
    one = item(memory)
    return SearchItem(one.namespace, one.key, one.value, one.created_at, one.updated_at, score)


def refreshed(memory: Any, now: datetime) -> models.MemoryPatch | None:
    """The change that makes an item live on after it was read; None if it has no end."""
    ttl = memory["metadata"].get("ttl")
    return None if ttl is None else {"expires_at": _rfc3339(now + timedelta(minutes=ttl))}


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
