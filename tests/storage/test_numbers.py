"""Numbers that the declared collections promise once in each parent: no two writers can ever have the same."""

import pytest

from app.sessions.schemas import MESSAGES
from app.storage.changes import CommitConflict, Insert
from app.storage.protocol import Store
from app.storage.schema import Collection
from app.tasks.schemas import CHECKPOINTS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("collection", "parent"), [(MESSAGES, "session_id"), (CHECKPOINTS, "task_id")], ids=["messages", "checkpoints"]
)
async def test_a_number_that_is_taken_is_refused_and_another_parent_or_tenant_may_have_it(
    store: Store, collection: Collection, parent: str
) -> None:
    def numbered(name: str, seq: int, of: str = "p", tenant: str = "t") -> Insert:
        times = {"created_at": "2026-01-01T00:00:00.000Z"}
        return Insert(collection, {"tenant_id": tenant, collection.id_field: name, parent: of, "seq": seq, **times})

    await store.commit([numbered("first", 1)])
    with pytest.raises(CommitConflict) as conflict:
        await store.commit([numbered("another", 1)])
    assert (conflict.value.collection, conflict.value.reason) == (collection.name, "seq")
    with pytest.raises(CommitConflict):
        await store.commit([numbered("third", 3), numbered("fourth", 3)])
    await store.commit([numbered("second", 2), numbered("of another", 1, of="q"), numbered("theirs", 1, tenant="u")])
    assert [doc[collection.id_field] for doc in await store.find(collection, "t", order="asc")] == [
        "first",
        "of another",
        "second",
    ]
