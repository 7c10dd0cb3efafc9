"""What few documents can match is found by its own index, not by a walk through the collection in its order."""

from pathlib import Path

import apsw
import pytest

from app.actions.schemas import ACTIONS
from app.facts.repository import FactFilters, View, about, of_partitions
from app.facts.schemas import FACT_GROUPS, FACTS
from app.findings.schemas import FINDINGS
from app.learning.dependencies import Tools
from app.memories.schemas import MEMORIES
from app.reflection.finders import look_at
from app.sessions.schemas import MESSAGES, SESSIONS
from app.settings import Settings
from app.storage.schema import Absent, Collection, Eq, Filter, In, Range, both
from app.storage.scope import ANY_AGENT, Partition, PartitionOwner, Scope
from app.storage.sqlite import sql
from app.storage.sqlite.sql import migrate
from tests.conftest import Starter
from tests.support.stores import Watched

NOW = View("2026-06-01T00:00:00.000Z").believed()
(OF_PARTITIONS,) = of_partitions([Partition("a", "u"), Partition(None, "u")])
(OF_USER,) = of_partitions([Partition(ANY_AGENT, "u")])
(OF_AGENT,) = of_partitions([Partition("a", None)])
KEYS = ("one", "two", "three")


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    made = apsw.Connection(str(tmp_path_factory.mktemp("plans") / Path("plans.db")))
    migrate(made, (FACTS, FACT_GROUPS, FINDINGS, MEMORIES, ACTIONS, MESSAGES, SESSIONS))
    return made


@pytest.mark.parametrize(
    ("collection", "where", "index"),
    [
        (FACT_GROUPS, In("group_id", KEYS), "fact_groups_id"),
        (FACTS, In("fact_id", KEYS), "facts_id"),
        (FACTS, both(In("group_id", KEYS), Absent("known_until")), "facts_by_group_id_known_until_created_at"),
        (FACTS, Eq("lineage_id", "one"), "facts_by_lineage_id_created_at"),
        *(
            (FACTS, both(partitions, NOW, In(f"{side}_key", KEYS)), f"facts_by_{side}_key_user_id_agent_id_created_at")
            for partitions in (OF_PARTITIONS, OF_USER)
            for side in ("subject", "object")
        ),
        *(
            (FACTS, both(about(asked), NOW), "facts_by_subject_key_user_id_agent_id_created_at")
            for asked in (
                FactFilters(agent_id="a", user_id="u", subject="Ada", predicate="likes"),
                FactFilters(user_id="u", subject="Ada"),
                FactFilters(agent_id="a", subject="Ada"),
                FactFilters(subject="Ada"),
            )
        ),
        (FACTS, both(about(FactFilters(agent_id="a", user_id="u")), NOW), "facts_by_user_id_agent_id_created_at"),
        (FACTS, both(about({"user_id": "u"}), NOW), "facts_by_user_id_created_at"),
        *(
            (FINDINGS, both(of, In("status", ("open", "accepted"))), "findings_by_user_id_status_created_at")
            for of in (OF_PARTITIONS, OF_USER, OF_AGENT)
        ),
    ],
)
def test_the_index_that_is_used(connection: apsw.Connection, collection: Collection, where: Filter, index: str) -> None:
    assert f"USING INDEX {index} " in plan_of(connection, collection, where)


@pytest.mark.parametrize("bounds", [{"ge": 1}, {"lt": 9}, {"ge": 1, "lt": 9}], ids=str)
@pytest.mark.parametrize(
    ("collection", "named"),
    [(MESSAGES, "session_id"), *((each, "user_id") for each in (MESSAGES, SESSIONS, MEMORIES, FACTS, ACTIONS))],
    ids=lambda part: part if isinstance(part, str) else part.name,
)
def test_a_later_page_between_two_times_goes_on_among_the_records_of_its_user(
    connection: apsw.Connection, collection: Collection, named: str, bounds: dict[str, int]
) -> None:
    where = both(Eq(named, "one"), Range(collection.order, **bounds))
    for later in (False, True):
        plan = plan_of(connection, collection, where, later=later)
        assert f"USING INDEX {collection.name}_by_{named}_{collection.order} " in plan
        assert (f"({collection.order},id)<(?,?)" in plan) == later, "not again from the end"


def plan_of(connection: apsw.Connection, collection: Collection, where: Filter, *, later: bool = False) -> str:
    condition, values = sql.selection(collection, "t", where, listed=True)
    by = sql.order_of(collection, where)
    if later:
        condition += f" AND ({by}, id) < (5, 'x')"
    statement = f"SELECT doc FROM {sql.quoted(collection.name)} WHERE {condition} ORDER BY {by} desc, id desc LIMIT 21"
    return str(next(iter(connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)))[3])


@pytest.mark.anyio
async def test_a_prompt_or_reflection_for_one_user_walks_through_no_others_records(
    start: Starter, settings: Settings, watched: list[Watched], connection: apsw.Connection
) -> None:
    owner = {"agent_id": "a", "user_id": "u"}
    async with start(settings) as service:
        held, client = service.resources, service.client
        tools = Tools(watched[0], held.embedder, held.clock, held.settings)
        (await client.post("/v1/agents", json={"agent_id": "a", "name": "Ann"})).raise_for_status()
        (await client.post("/v1/memories", json={**owner, "content": "Ada likes tea."})).raise_for_status()
        watched[0].watch()
        await look_at(tools, Scope("default"), PartitionOwner("default", "a", "u"))
        (await client.post("/v1/context", json={**owner, "query": "tea"})).raise_for_status()
        (await client.get("/v1/agents/a/experience-prompt", params={"user_id": "u"})).raise_for_status()
        found = [one for one in watched[0].asked if one.method in ("find", "find_fetched")]
    read = [(one.collection, one.given[1]) for one in found if one.collection in (MEMORIES, FACTS, FINDINGS)]
    assert {collection.name for collection, _ in read} == {MEMORIES.name, FACTS.name, FINDINGS.name}
    plans = {plan_of(connection, collection, where) for collection, where in read}
    assert {plan for plan in plans if "_by_created_at" in plan} == set()
