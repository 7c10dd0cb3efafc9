"""Flag bits in the search index that the document sets: who said it, derived, a summary."""

from threading import get_ident
from typing import Any

import httpx
import numpy as np
import pytest

from app.actions.schemas import ACTIONS
from app.facts.schemas import FACTS
from app.memories.repository import TextToIndex, new_memory
from app.memories.schemas import MEMORIES, MemoryRecord, MemoryType, Source, flags_of
from app.procedures.schemas import PROCEDURES
from app.storage.changes import IndexEntry
from app.storage.index.record_codec import PackedRecord, head_dtype, pack, repack
from app.storage.schema import EVERYTHING
from app.storage.scope import ANY_AGENT, Partition
from app.storage.search import SearchQuery
from app.storage.text import (
    HAS_EVENT_TIME,
    HAS_NUMBER_OR_TIME_WORD,
    IS_QUESTION,
    SAID_BY_ASSISTANT,
    SAID_BY_USER,
    SUMMARY,
    IndexedTerms,
    TermIds,
    index_text,
)
from tests.conftest import Service
from tests.support.memories import OWNER, remember
from tests.support.sessions import append, said

NOW = "2026-06-01T12:00:00.000Z"
NO_TERMS: TermIds = np.empty(0, np.uint32)


def memory(source: Source, memory_type: MemoryType = "message", content: str = "tea?") -> MemoryRecord:
    return new_memory({"content": content, "memory_type": memory_type, "importance": 0.5}, source, NOW, unique=False)


@pytest.mark.parametrize(
    ("source", "memory_type", "flags"),
    [
        ({"origin": "message", "speaker": "Ada", "role": "user"}, "message", SAID_BY_USER),
        ({"origin": "message", "speaker": "Bot", "role": "assistant"}, "message", SAID_BY_ASSISTANT),
        ({"origin": "import", "speaker": "Ada", "role": "user"}, "message", SAID_BY_USER),
        ({"origin": "message", "speaker": "assistant", "role": "user"}, "message", SAID_BY_USER),
        ({"origin": "message", "speaker": "Ada"}, "message", 0),
        ({"origin": "extraction"}, "preference", 0),
        ({"origin": "consolidation"}, "summary", SUMMARY),
        ({"origin": "api"}, "summary", SUMMARY),
        ({"origin": "api"}, "fact", 0),
        ({"origin": "import"}, "fact", 0),
    ],
)
def test_the_source_and_the_type_of_a_memory_set_its_flags(source: Source, memory_type: MemoryType, flags: int) -> None:
    assert flags_of(memory(source, memory_type)) == flags


def test_a_document_without_a_source_has_no_flags() -> None:
    assert flags_of({}) == flags_of({"source": None, "memory_type": None}) == 0


def head_flags(packed: PackedRecord) -> int:
    return int(np.frombuffer(packed.head, head_dtype(len(MEMORIES.spec.ranges)))["flags"][0])


def test_a_record_holds_the_flags_of_the_text_and_of_the_document() -> None:
    doc = memory({"origin": "message", "speaker": "Ada", "role": "user"}, content="At 8?")
    packed = pack(MEMORIES.spec, doc, IndexEntry(index_text("At 8?"), None, "m"), 1)
    assert head_flags(packed) == HAS_NUMBER_OR_TIME_WORD | IS_QUESTION | SAID_BY_USER


def test_the_flags_of_the_document_change_with_it_and_those_of_the_text_stay() -> None:
    doc = memory({"origin": "consolidation"}, "summary", content="At 8?")
    old = pack(MEMORIES.spec, doc, IndexEntry(index_text("At 8?"), None, "m"), 1)
    new = repack(MEMORIES.spec, doc | {"memory_type": "fact"}, old, 2, frozenset({"memory_type"}))
    assert head_flags(new) == HAS_NUMBER_OR_TIME_WORD | IS_QUESTION
    same = repack(MEMORIES.spec, doc | {"pinned": True}, old, 2, frozenset({"pinned"}))
    assert head_flags(same) == head_flags(old)


def test_a_record_without_the_flags_gets_them_when_it_is_read_anew_from_its_document() -> None:
    doc = memory({"origin": "message", "role": "user"})
    bare = pack(MEMORIES.spec, doc | {"source": {}}, IndexEntry(index_text("tea?"), None, "m"), 1)
    assert head_flags(bare) == IS_QUESTION
    assert head_flags(repack(MEMORIES.spec, doc, bare, 1)) == IS_QUESTION | SAID_BY_USER


@pytest.mark.parametrize("collection", [FACTS, PROCEDURES, ACTIONS], ids=lambda one: one.name)
def test_other_collections_have_flags_of_the_text_alone(collection: Any) -> None:
    assert collection.spec.flags is None


async def indexed(service: Service) -> list[int]:
    """Flags of all memories of the user `u`, in the order of their creation."""
    query = SearchQuery("default", (Partition(ANY_AGENT, "u"),), EVERYTHING, None, "", NO_TERMS)
    columns = await service.resources.store.search(MEMORIES, query)
    return [int(flags) for _, flags in sorted(zip(columns.time.tolist(), columns.flags.tolist(), strict=True))]


async def test_messages_are_indexed_with_the_role_of_who_said_them(service: Service, api: httpx.AsyncClient) -> None:
    await append(api, [*said("I like tea", name="Ada"), *said("Do you?", role="assistant")])
    spoken = HAS_EVENT_TIME | SAID_BY_USER, HAS_EVENT_TIME | SAID_BY_ASSISTANT | IS_QUESTION
    assert await indexed(service) == [*spoken]
    page = (await api.get("/v1/memories", params={"order": "asc"})).json()
    roles = [(one["source"]["speaker"], one["source"]["role"]) for one in page["items"]]
    assert roles == [("Ada", "user"), ("assistant", "assistant")]


async def test_a_changed_type_changes_the_flags_in_the_index(service: Service, api: httpx.AsyncClient) -> None:
    made = await remember(api, "We spoke of tea", memory_type="summary")
    assert made["source"]["role"] is None
    assert await indexed(service) == [SUMMARY]
    changed = await api.patch(f"/v1/memories/{made['memory_id']}", json={"memory_type": "fact"})
    assert changed.status_code == 200
    assert await indexed(service) == [0]


async def test_contexts_and_tags_count_as_text_that_is_read_beside_the_loop(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 memories of a word with 50 tags each took two seconds of the event loop."""
    threads, read = set[int](), TextToIndex.indexed

    def noted(text: TextToIndex) -> IndexedTerms:
        threads.add(get_ident())
        return read(text)

    monkeypatch.setattr(TextToIndex, "indexed", noted)
    for more in ({"tags": [f"a tag of {number} letters" for number in range(20)]}, {"context": "a tea house " * 20}):
        for count, beside in ((1, False), (100, True)):
            threads.clear()
            items = [{**OWNER, "content": f"Tea {number}.", **more} for number in range(count)]
            made = await service.client.post("/v1/memories/batch", json={"items": items})
            assert made.status_code == 201, made.text
            assert (get_ident() not in threads) == beside
