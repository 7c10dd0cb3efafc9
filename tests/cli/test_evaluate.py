import json
from pathlib import Path

import pytest

from app.cli.evaluate import Answered, Question, figures
from tests.cli.conftest import Run
from tests.support.server import recalld, serving


def answered(expected: list[str], found: list[str], milliseconds: float = 1.0) -> Answered:
    return Answered(Question(query="q", expected=expected), found, milliseconds)


def test_figures_are_means_over_the_questions() -> None:
    answers = [answered(["a", "b"], ["x", "a", *"cdefghij", "b"], 2.0), answered(["z"], ["x", "y"], 4.0)]
    assert figures(answers, 20) == {
        "questions": 2,
        "recall@1": 0.0,
        "recall@5": 0.25,
        "recall@10": 0.25,
        "recall@20": 0.5,
        "hit@20": 0.5,
        "mrr": 0.25,
        "p50_ms": 3.0,
        "p95_ms": pytest.approx(3.9),
    }


def test_an_expected_memory_named_twice_counts_once() -> None:
    assert answered(["a", "a"], ["a"]).recall(1) == 1


def test_stored_questions_are_asked_of_a_running_service(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path / "served") as server:
        owner = {"agent_id": "support", "user_id": "ada"}
        made = [
            server.client.post("/v1/memories", json={**owner, "content": text}).json()["memory_id"]
            for text in ("Ada prefers tea to coffee", "Ada lives in Boston", "The invoice is due in May")
        ]
        questions = [
            {**owner, "query": "Which city does she live in?", "expected": [made[1]]},
            {**owner, "query": "What does she drink?", "mode": "text", "expected": ["mem_gone"]},
        ]
        file = tmp_path / "questions.jsonl"
        file.write_text("\n\n".join(map(json.dumps, questions)))
        address = str(server.client.base_url)
        ended = run("eval", "--queries", str(file), "--url", address, "--top-k", "3", "--json")
        assert ended.returncode == 0, ended.stderr
        result = json.loads(ended.stdout)
        assert (result["questions"], result["recall@3"], result["recall@1"], result["mrr"]) == (2, 0.5, 0.5, 0.5)
        assert result["p95_ms"] >= result["p50_ms"] > 0
        assert [one["query"] for one in result["misses"]] == ["What does she drink?"]
        shown = run("eval", "--queries", str(file), "--url", address, "--misses").stdout
        assert "recall@20" in shown
        assert "mem_gone" in shown
        memory = server.client.get(f"/v1/memories/{made[1]}").json()
        assert memory["access_count"] == 0
        monkeypatch.setenv("RECALLD_URL", address)
        assert run("eval", "--queries", str(file)).returncode == 0
        file.write_text(json.dumps({"query": "x", "expected": ["a"]}))
        refused = run("eval", "--queries", str(file), "--url", address)
        assert refused.returncode == 1
        assert "'x': " in refused.stderr
        assert "user_id" in refused.stderr


@pytest.mark.parametrize("name", ["RECALLD_KEY", "RECALLD_API_KEY"])
def test_the_key_is_read_from_the_environment(
    name: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"query": "x", "user_id": "u", "expected": ["a"]}\n')
    served = tmp_path / "served"
    key = recalld(
        served, "keys", "create", "--no-admin", "--tenant", "t", "--name", "k", "--verbs", "read"
    ).stdout.strip()
    with serving(served) as server:
        monkeypatch.setenv("RECALLD_URL", str(server.client.base_url))
        refused = run("eval", "--queries", str(file))
        assert "(unauthorized)" in refused.stderr
        monkeypatch.setenv(name, key)
        assert run("eval", "--queries", str(file)).returncode == 0


def test_bad_lines_are_named(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"query": "x", "expected": ["a"]}\n{"query": "x", "expected": []}\nnonsense\n')
    ended = run("eval", "--queries", str(file))
    assert ended.returncode == 1
    assert "line 2: expected" in ended.stderr
    assert "line 3" in ended.stderr
    file.write_text("\n")
    assert "holds no question" in run("eval", "--queries", str(file)).stderr
    assert "cannot be read" in run("eval", "--queries", str(tmp_path / "none")).stderr


def test_a_service_that_is_not_there_is_a_sentence(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"query": "x", "user_id": "u", "expected": ["a"]}\n')
    ended = run("eval", "--queries", str(file), "--url", "http://127.0.0.1:9")
    assert ended.returncode == 1
    assert "cannot be reached" in ended.stderr
    assert "Traceback" not in ended.stderr
