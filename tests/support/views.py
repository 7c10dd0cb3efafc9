"""Columns as something that two engines can be compared by: one row for each document, by its id."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from app.storage.protocol import Store
from app.storage.schema import Collection
from app.storage.search import Columns, SearchQuery

_PLAIN = ("matched", "has_vector", "length", "speaker", "time", "flags", "anchor", "pinned", "content")


@dataclass(frozen=True)
class View:
    """`rows`: document id → its columns; neighbours are named by id, a session by its members."""

    rows: dict[str, dict[str, Any]]
    count: int
    mean_length: float
    df: list[float]

    @property
    def matched(self) -> set[str]:
        return {doc_id for doc_id, row in self.rows.items() if row["matched"]}


async def view(store: Store, collection: Collection, query: SearchQuery) -> View:
    columns = await store.search(collection, query)
    docs = await store.fetch(collection, query.tenant, columns.rows)
    ids = [str(one.doc[collection.id_field]) for one in docs if one is not None]
    assert len(ids) == len(set(ids)) == len(docs), "each document once, and all of them there"
    assert np.all(columns.df <= columns.count), "no term is in more documents than there are"
    sessions = _members(columns, ids)
    rows = {
        doc_id: {
            **{name: getattr(columns, name)[i].item() for name in _PLAIN},
            "cosine": round(float(columns.cosine[i]), 6),
            "importance": round(float(columns.base_importance[i]), 6),
            "hits": columns.term_counts[:, i].tolist(),
            "previous": ids[columns.previous[i]] if columns.previous[i] >= 0 else None,
            "following": ids[columns.following[i]] if columns.following[i] >= 0 else None,
            "session": sessions.get(int(columns.session[i])),
        }
        for i, doc_id in enumerate(ids)
    }
    return View(rows, columns.count, round(columns.mean_length, 6), columns.df.tolist())


def _members(columns: Columns, ids: list[str]) -> dict[int, tuple[str, ...]]:
    codes = columns.session.tolist()
    return {
        code: tuple(sorted(doc_id for doc_id, own in zip(ids, codes, strict=True) if own == code))
        for code in set(codes)
        if code >= 0
    }
