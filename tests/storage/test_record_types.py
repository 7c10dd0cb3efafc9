"""What is stored is what the record types say: every collection has one, and every field of a document is declared."""

from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

from app.facts.aliases import AliasRecord, EntityAlias
from app.facts.graph import PathFact
from app.facts.schemas import FactRecord
from app.lifespan import COLLECTIONS
from app.memories.agents import AgentRecord
from app.memories.schemas import MEMORIES, Source, SourceIn
from app.profiles.agents import AgentPatch
from app.sessions.schemas import SessionPatch, SessionRecord
from app.storage.schema import EVERYTHING
from app.tasks.schemas import Step, StepPatch, TaskPatch, TaskRecord
from tests.conftest import Service
from tests.support.filled_store import fill
from tests.support.operations import work
from tests.support.record_types import departures, field_kinds, record_types


def test_every_collection_has_a_record_type() -> None:
    declared = record_types()
    assert {collection.name for collection in COLLECTIONS} <= declared.keys()
    assert Any not in declared.values()


def test_every_field_that_a_filter_or_an_index_names_is_declared_and_of_its_kind() -> None:
    """`source.session_id` is a field of `Source`, and `source` one of `MemoryRecord`. A field of the kind `flag` is a
    `bool` there."""
    declared = record_types()
    for collection in COLLECTIONS:
        record = declared[collection.name]
        assert field_kinds(record, collection.id_field) == {"text", "time"}, collection.name
        for name, kind in (*collection.fields.items(), *collection.needs.items()):
            assert kind in field_kinds(record, name), (collection.name, name)


def test_a_field_of_another_kind_is_noticed() -> None:
    record = record_types()[MEMORIES.name]
    assert field_kinds(record, "pinned") == {"flag"}
    assert field_kinds(record, "source.message_seq") == {"number"}
    assert field_kinds(record, "tags") == {"list"}
    assert field_kinds(record, "metadata") == {"object"}
    assert field_kinds(record, "source.speeker") == set()


@pytest.mark.anyio
async def test_every_stored_document_is_as_its_type_says(service: Service) -> None:
    await fill(service.client)
    await work(service)
    declared, store = record_types(), service.resources.store
    kinds = set[str]()
    for collection in COLLECTIONS:
        if not collection.fields:
            continue  # read by its ids alone
        for document in await store.find(collection, None, EVERYTHING, limit=1_000):
            kinds.add(collection.name)
            assert [*departures(declared[collection.name], document)] == [], collection.name
    assert {"agent_memories", "facts", "conversation_sessions", "messages", "action_logs", "procedures"} < kinds


@pytest.mark.parametrize(
    ("body", "record_type"),
    [
        (AgentPatch, AgentRecord),
        (SessionPatch, SessionRecord),
        (SourceIn, Source),
        (StepPatch, Step),
        (TaskPatch, TaskRecord),
        (EntityAlias, AliasRecord),
        (PathFact, FactRecord),
    ],
    ids=lambda model: model.__name__,
)
def test_what_a_body_states_and_an_answer_shows_is_declared(body: Any, record_type: Any) -> None:
    """Types do not check it: bodies are laid over records, and answers taken from them, by the names of a model."""
    fields = body.model_fields if issubclass(body, BaseModel) else get_type_hints(body)
    assert fields.keys() <= get_type_hints(record_type).keys()


MEMORY: Mapping[str, Any] = {"memory_id": "mem_1", "content": "Likes tea", "tags": ["tea"], "source": {"origin": "api"}}


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"contnet": "Likes tea"}, "contnet is not declared"),
        ({"content": 5}, "content: 5"),
        ({"pinned": None}, "pinned: None"),
        ({"tags": ["tea", 5]}, "tags[1]: 5"),
        ({"source": {"origin": "api", "speeker": "Ada"}}, "source.speeker is not declared"),
        ({"status": "gone"}, "status: 'gone'"),
    ],
)
def test_a_document_that_departs_from_its_type_is_noticed(wrong: Mapping[str, Any], fault: str) -> None:
    record_type = record_types()[MEMORIES.name]
    assert [*departures(record_type, {**MEMORY})] == []
    assert [*departures(record_type, {**MEMORY, **wrong})] == [fault]
