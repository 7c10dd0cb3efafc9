"""`recalld doctor`."""

import json
from pathlib import Path

import apsw

from app.memories.schemas import MEMORIES
from tests.cli.conftest import Run
from tests.support.rerankers import model_folder
from tests.support.scripted import free_port
from tests.support.server import serving


def test_a_sound_store_and_a_store_with_a_fault(run: Run, data: Path) -> None:
    assert run("keys", "create", "--no-admin", "--tenant", "t", "--name", "n").returncode == 0
    sound = run("doctor", "--json")
    assert sound.returncode == 0
    report = json.loads(sound.stdout)
    assert report["ok"] is True
    assert all(finding["ok"] for finding in report["findings"])
    number = len(report["findings"])
    assert run("doctor").stdout == f"All {number} checks passed. --all lists them.\n"
    assert len(run("doctor", "--all").stdout.splitlines()) == 1 + number + 1

    with apsw.Connection(str(data / "recalld.db")) as connection:
        connection.execute("UPDATE api_keys SET doc = 'no document'")
    faulty = run("doctor")
    assert faulty.returncode == 1
    _, *faults, summary = faulty.stdout.splitlines()
    assert faults
    assert all("FAULT" in line for line in faults)
    assert summary.startswith(f"{len(faults)} of {number} checks found a fault; ")
    assert "FAULT" in run("doctor", "--all").stdout.splitlines()[1], "faults come first"
    assert "Traceback" not in faulty.stderr
    assert json.loads(run("doctor", "--json").stdout)["ok"] is False


def test_a_terminal_is_shown_what_is_checked_and_a_pipe_is_not(run: Run, data: Path) -> None:
    assert run("keys", "create", "--no-admin", "--tenant", "t", "--name", "n").returncode == 0
    assert run("doctor").stderr == ""
    shown = run("doctor", "--json", FORCE_COLOR="1")
    assert json.loads(shown.stdout)["ok"] is True
    assert all(check in shown.stderr for check in ("recalld.db: pages", "agent_memories: documents", "usage"))


def test_what_is_no_store_is_a_sentence(run: Run, data: Path) -> None:
    data.write_text("a file, not a directory")
    ended = run("doctor")
    assert ended.returncode == 1
    assert ended.stderr.startswith("recalld: ")
    assert "Traceback" not in ended.stderr


def test_a_fault_among_facts_is_found(run: Run, data: Path) -> None:
    fact = {"agent_id": "a", "user_id": "u", "subject": "Ada", "predicate": "lives_in"}
    with serving(data) as server:
        for home in ("New York", "Boston"):
            assert server.client.post("/v1/facts", json={**fact, "object": home}).status_code == 201
        server.stop()
    assert run("doctor").returncode == 0
    with apsw.Connection(str(data / "recalld.db")) as connection:
        connection.execute("UPDATE facts SET known_until = NULL")
        connection.execute("DELETE FROM facts_search WHERE row = (SELECT min(row) FROM facts)")
    report = json.loads(run("doctor", "--json").stdout)
    faulty = {one["name"] for one in report["findings"] if not one["ok"]}
    assert {"facts: documents", "facts: search rows", "facts: partitions"} <= faulty


def test_a_dispute_with_nobody_is_found(run: Run, data: Path) -> None:
    memory = {"agent_id": "a", "user_id": "u", "key": "home"}
    with serving(data) as server:
        _, made = [
            server.client.post("/v1/memories", json={**memory, "content": home, "trust": trust})
            for home, trust in (("Oslo", 0.9), ("Rome", 0.6))
        ]
        server.stop()
    assert run("doctor").returncode == 0
    with apsw.Connection(str(data / "recalld.db")) as connection:
        connection.execute("DELETE FROM agent_memories WHERE status = 'active'")
    report = json.loads(run("doctor", "--json").stdout)
    (details,) = [one["detail"] for one in report["findings"] if one["name"] == "agent_memories: records"]
    assert f"{made.json()['memory_id']} is disputed, and nothing that it contradicts is there" in details


def test_a_folder_without_a_store_stays_without(run: Run, data: Path) -> None:
    away = str(data.with_name("away"))
    for asked in (("doctor", "--json"), ("backup", away), ("export", away, "--tenant", "t")):
        ended = run(*asked)
        assert (ended.returncode, "There is no store in" in ended.stderr) == (1, True), ended.stderr
    assert not (data / "recalld.db").exists()


def test_a_reranker_that_is_set_is_asked(run: Run, tmp_path: Path) -> None:
    assert run("keys", "create", "--no-admin", "--tenant", "t", "--name", "n").returncode == 0
    assert "reranker" not in run("doctor", "--all").stdout

    folder = model_folder(tmp_path / "overlap", "overlap")
    report = json.loads(run("doctor", "--json", RECALLD_RERANKER=str(folder)).stdout)
    (finding,) = [one for one in report["findings"] if one["name"] == "reranker"]
    assert finding["ok"] is True
    assert finding["detail"].startswith("overlap:onnx-")
    assert finding["detail"].endswith("searches wait 300 ms")

    for reranker, reason in ((str(tmp_path / "nothing"), "must hold tokenizer.json"), (nobody(), "cannot be reached")):
        faulty = run("doctor", "--json", RECALLD_RERANKER=reranker)
        assert faulty.returncode == 1
        (finding,) = [one for one in json.loads(faulty.stdout)["findings"] if not one["ok"]]
        assert finding["name"] == "reranker"
        assert reason in finding["detail"]


def nobody() -> str:
    """An address at which nobody listens."""
    return f"http://127.0.0.1:{free_port()}/rerank"


def test_the_table_of_a_damaged_store_is_printed_and_salvage_brings_back_what_it_can(
    run: Run, data: Path, tmp_path: Path
) -> None:
    memory = {"agent_id": "a", "user_id": "u"}
    texts = [f"Note {number}: {number:02000}" for number in range(60)]  # long, and quickly embedded: three words
    with serving(data) as server:
        for text in texts:
            assert server.client.post("/v1/memories", json={**memory, "content": text}).status_code == 201
        server.stop()
    database = data / "recalld.db"
    whole = database.read_bytes()
    torn = bytearray(whole)
    for text in texts[10:13]:
        at = whole.index(text[-40:].encode())
        torn[at : at + 8] = b"#damage#"
    database.write_bytes(torn)

    faulty = run("doctor")
    assert faulty.returncode == 1
    assert "Traceback" not in faulty.stderr
    table = {line.split()[0]: line for line in faulty.stdout.splitlines()}
    assert "FAULT" in table["recalld.db"]
    assert "are not as they were written" in table["recalld.db"]
    assert "recalld.db-wal" not in table, "it is whole"
    assert json.loads(run("doctor", "--json").stdout)["ok"] is False
    refused = run("serve")
    assert refused.returncode == 1
    assert "recalld.db is damaged" in refused.stderr

    new = tmp_path / "new"
    report = json.loads(run("salvage", "--to", str(new), "--json").stdout)
    assert report["ok"] is False
    assert run("salvage", "--to", str(new)).returncode == 1, "a directory that is not empty is refused"
    assert database.read_bytes() == torn
    with serving(new) as server:
        items = server.client.get("/v1/memories", params={**memory, "limit": 100}).json()["items"]
        there = {item["content"] for item in items}
        assert there < set(texts)
        assert len(there) > 40
        (memories,) = [one for one in report["collections"] if one["collection"] == MEMORIES.name]
        assert len(memories["lost"]) == len(texts) - len(there)
        for text in sorted(there)[:5]:
            body = {**memory, "query": text[-60:], "mode": "text"}
            hits = server.client.post("/v1/memories/search", json=body).json()["items"]
            assert text in {hit["memory"]["content"] if "memory" in hit else hit["content"] for hit in hits}
        server.stop()
    assert run("doctor", RECALLD_DATA_DIR=str(new)).returncode == 0
