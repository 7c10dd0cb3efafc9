"""Whether a stored document, or one that an import brings, is a record as callers see it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple

from pydantic import ValidationError

from app.actions import schemas as actions
from app.core.schemas import identifier
from app.errors import RecordDamaged
from app.facts import schemas as facts
from app.memories import schemas as memories
from app.memories.agents import AGENTS
from app.memories.schemas import MEMORIES
from app.procedures import schemas as procedures
from app.profiles.agents import Agent, render_agent
from app.sessions import schemas as sessions
from app.storage.protocol import Finding, Store
from app.storage.records import DAMAGED, damage, left_out
from app.storage.repository import FORGIVEN, pages, require_fit
from app.storage.schema import Collection, R, value_at
from app.storage.scope import Scope
from app.tasks import schemas as tasks

LARGEST = 2**63 - 2
"""The largest number of a message or checkpoint, version or count: the next one has to fit into 64 bits, too."""
PAGE = 500
_OTHER_IDS = ("agent_id", "user_id", "session_id", "task_id")


class RecordShape(NamedTuple, Generic[R]):
    """How a record of a kind is rendered for callers, and the model of what they see."""

    render: Callable[[R], Mapping[str, Any]]
    model: Any


_SHAPES: Mapping[str, RecordShape] = {
    MEMORIES.name: RecordShape(lambda memory: memories.render(memory, memory["importance"]), memories.Memory),
    facts.FACTS.name: RecordShape(facts.render, facts.Fact),
    sessions.SESSIONS.name: RecordShape(sessions.render, sessions.Session),
    sessions.MESSAGES.name: RecordShape(sessions.render_message, sessions.Message),
    tasks.TASKS.name: RecordShape(tasks.render, tasks.Task),
    tasks.CHECKPOINTS.name: RecordShape(tasks.render_checkpoint, tasks.Checkpoint),
    actions.ACTIONS.name: RecordShape(actions.render, actions.Action),
    procedures.PROCEDURES.name: RecordShape(procedures.render, procedures.Procedure),
    AGENTS.name: RecordShape(lambda agent: render_agent(agent, Scope(agent["tenant_id"])), Agent),
}


def fault_in(collection: Collection, doc: Mapping[str, object]) -> str | None:
    """Returns why a document is no record of its kind, such as `created_at is no time`, or None."""
    if (fault := damage(collection, doc)) is not None:
        return fault
    place = doc.get(collection.order)
    if collection.place is int and not (type(place) is int and 0 <= place <= LARGEST):
        return f"{collection.order} is no number of a {collection.noun}"
    for name, value in (*doc.items(), ("source.message_seq", value_at(doc, "source.message_seq"))):
        if type(value) is int and not (1 if name == "version" else -LARGEST) <= value <= LARGEST:
            return f"{name} is too small or too large"
    if collection.name in _SHAPES:
        for name in (collection.id_field, *_OTHER_IDS):
            if doc.get(name) is not None and not _is_id(doc[name]):
                return f"{name} is no id"
        shape = _SHAPES[collection.name]
        try:
            require_fit(shape.render(doc), shape.model)
        except DAMAGED as error:
            return _fault_of(error) or f"is no {collection.noun}: {type(error).__name__}"
    return None


def _fault_of(error: Exception) -> str | None:
    """Returns the field that an error names, and what is wrong with it."""
    if isinstance(error, ValidationError):
        place = next(fault["loc"] for fault in error.errors() if fault["type"] not in FORGIVEN)
        return f"{'.'.join(map(str, place[:1]))} is of a wrong type"
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) and error.args else None


def fault_behind(error: Exception, read: Iterable[tuple[Collection, Mapping[str, Any]]]) -> RecordDamaged | None:
    """Returns the error for the caller of a request that has failed, if one of the documents that it had `read` is
    damaged. None: the fault is ours."""
    missing = error.args[0] if isinstance(error, KeyError) and error.args else None
    for collection, doc in read:
        fault = fault_in(collection, doc)
        if fault is None and missing not in doc and missing in _stored_fields(collection):
            fault = f"{missing} is missing"
        if fault is not None:
            record_id = doc.get(collection.id_field)
            left_out(collection, record_id, fault)
            detail = f"The stored {collection.noun} {record_id} is damaged: {fault}."
            return RecordDamaged(f"{detail} `recalld doctor` names all such records.", retry_after=60)
    return None


def _stored_fields(collection: Collection) -> set[str]:
    """Returns the names of fields that every document of a collection has."""
    model = _SHAPES[collection.name].model if collection.name in _SHAPES else None
    return {
        *getattr(model, "model_fields", getattr(model, "__annotations__", ())),
        *collection.fields,
        *collection.needs,
        "created_at",
        "updated_at",
        "version",
    }


def _is_id(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(identifier(value))
    except ValueError:
        return False


async def unfit(store: Store, collections: Sequence[Collection]) -> list[Finding]:
    """Returns for each kind the finding of `recalld doctor` about records that cannot be read. Reads every record."""
    findings: list[Finding] = []
    for collection in collections:
        if collection.name not in _SHAPES:
            continue
        faults: list[str] = []
        async for docs in pages(partial(store.find, collection, None), collection, PAGE):
            faulty = [(doc[collection.id_field], fault_in(collection, doc)) for doc in docs]
            faults += [f"{doc_id} {fault}" for doc_id, fault in faulty if fault is not None]
        findings.append(Finding.of(f"{collection.name}: records", faults))
    return findings
