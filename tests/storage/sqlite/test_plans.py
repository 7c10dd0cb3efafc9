"""What few documents can match is found by its own index, not by a walk through the collection in its order."""

from pathlib import Path

import apsw
import pytest

from app.facts.repository import FactFilters, View, about, of_partitions
from app.facts.schemas import FACT_GROUPS, FACTS
from app.storage.schema import Absent, Collection, Eq, Filter, In, both
from app.storage.scope import ANY_AGENT, Partition
from app.storage.sqlite import sql
from app.storage.sqlite.sql import migrate

NOW = View("2026-06-01T00:00:00.000Z").believed()
(OF_PARTITIONS,) = of_partitions([Partition("a", "u"), Partition(None, "u")])
(OF_USER,) = of_partitions([Partition(ANY_AGENT, "u")])
KEYS = ("one", "two", "three")


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    made = apsw.Connection(str(tmp_path_factory.mktemp("plans") / Path("plans.db")))
    migrate(made, (FACTS, FACT_GROUPS))
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
    ],
)
def test_the_index_that_is_used(connection: apsw.Connection, collection: Collection, where: Filter, index: str) -> None:
    condition, values = sql.selection(collection, "t", where)
    by = sql.order_of(collection, where)
    statement = f"SELECT doc FROM {sql.quoted(collection.name)} WHERE {condition} ORDER BY {by} desc, id desc LIMIT 21"
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert f"USING INDEX {index} " in plan[0], plan
