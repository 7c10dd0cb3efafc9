"""`recalld doctor`."""

import json
from pathlib import Path

import apsw

from tests.cli.conftest import Run
from tests.support.rerankers import model_folder
from tests.support.scripted import free_port
from tests.support.server import serving


def test_a_sound_store_and_a_store_with_a_fault(run: Run, data: Path) -> None:
    assert run("keys", "create", "--tenant", "t", "--name", "n").returncode == 0
    sound = run("doctor", "--json")
    assert sound.returncode == 0
    report = json.loads(sound.stdout)
    assert report["ok"] is True
    assert all(finding["ok"] for finding in report["findings"])
    assert "FAULT" not in run("doctor").stdout

    with apsw.Connection(str(data / "recalld.db")) as connection:
        connection.execute("UPDATE api_keys SET doc = 'no document'")
    faulty = run("doctor")
    assert faulty.returncode == 1
    assert "FAULT" in faulty.stdout
    assert "Traceback" not in faulty.stderr
    assert json.loads(run("doctor", "--json").stdout)["ok"] is False


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
    assert {"facts: documents", "facts: search rows", "facts: pairs"} <= faulty


def test_a_folder_without_a_store_stays_without(run: Run, data: Path) -> None:
    away = str(data.with_name("away"))
    for asked in (("doctor", "--json"), ("backup", away), ("export", away, "--tenant", "t")):
        ended = run(*asked)
        assert (ended.returncode, "There is no store in" in ended.stderr) == (1, True), ended.stderr
    assert not (data / "recalld.db").exists()


def test_a_reranker_that_is_set_is_asked(run: Run, tmp_path: Path) -> None:
    assert run("keys", "create", "--tenant", "t", "--name", "n").returncode == 0
    assert "reranker" not in run("doctor").stdout

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
