"""Runs of the evaluator against a service: every shape of a set at once, and what it refuses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import ROOT
from benchmarks.prompts import STORIES

SAID = ("My dog Waffles is a beagle.", "I paint the fence on Sunday.", "Rent is 1,850 dollars.")
PEOPLE = {
    "ada": (("Keeps three beehives.", "How many beehives?"), ("Speaks Danish.", "Which language is spoken?")),
    "bo": (("Rows on the lake.", "Where does he row?"), ("Is allergic to nuts.", "What is he allergic to?")),
}


def run(*options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", "recall", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def plain_facts(path: Path) -> Path:
    people = [
        {
            "user": name,
            "facts": [{"id": str(n), "text": fact} for n, (fact, _) in enumerate(known)],
            "questions": [{"query": query, "expected": [str(n)]} for n, (_, query) in enumerate(known)],
        }
        for name, known in PEOPLE.items()
    ]
    path.write_text("\n".join(json.dumps(person) for person in people))
    return path


def locomo(path: Path) -> Path:
    turns = [{"dia_id": f"D1:{n}", "speaker": "Ana", "text": text} for n, text in enumerate(SAID, 1)]
    talk = {"speaker_a": "Ana", "speaker_b": "Ben", "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}
    qa = [
        {"question": "What breed is Waffles?", "category": 4, "evidence": ["D1:1"]},
        {"question": "What does Ben paint?", "category": 5, "evidence": ["D1:2"]},
    ]
    path.write_text(json.dumps([{"sample_id": "conv-1", "conversation": talk, "qa": qa}]))
    return path


def messages(path: Path) -> Path:
    items = [
        {"id": n, "session": f"s{n}", "role": "user", "content": text, "timestamp": f"2024-01-0{n + 1}T00:00:00Z"}
        for n, text in enumerate(SAID)
    ]
    asked = [
        {"query": "What breed is my dog Waffles?", "evidence": [0], "after": 1, "kind": "early"},
        {"query": "How much is the rent?", "evidence": [2], "after": 3, "kind": "late"},
        {"query": "Who won the election?", "evidence": [], "after": 3, "kind": "abstention"},
    ]
    conversation = {"id": "c", "kind": "messages", "items": items, "questions": asked}
    path.write_text(json.dumps({"name": "ours", "conversations": [conversation]}))
    return path


@pytest.mark.slow
def test_one_run_asks_sets_of_every_shape(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    data = [plain_facts(tmp_path / "f.jsonl"), locomo(tmp_path / "locomo.json"), messages(tmp_path / "m.json")]
    done = run("--data", *data, "--json", report, "--name-users", "--misses")
    assert done.returncode == 0, done.stderr
    titles = [line for line in done.stdout.splitlines() if line.startswith("### ")]
    assert titles == [
        "### plain facts (f.jsonl): 2 conversations, 4 items, 4 questions with evidence, 4 never answered",
        "### LoCoMo (locomo.json): 1 conversations, 3 items, 1 questions with evidence, 1 never answered",
        "### ours (m.json): 1 conversations, 3 items, 2 questions with evidence, 1 never answered",
    ]
    written: dict[str, Any] = json.loads(report.read_text())
    assert written["options"]["name_users"] == "True"
    facts, talk, ours = (written[title.removeprefix("### ")] for title in titles)
    for found in (facts, talk, ours):
        assert set(found["modes"]) == {"hybrid", "vector", "text"}
        assert found["modes"]["hybrid"]["all"]["recall@5"]["mean"] == 1
        assert found["modes"]["hybrid"]["latency"]["total"]["p50"] > 0
        assert found["calibration"]["answerable"]["answers"] == found["questions"]
        assert found["calibration"]["never_said"]["count"] == found["never_said"]
    early = ours["answers"][0]
    assert (early["kind"], early["after"], early["found"]["hybrid"]["ranks"]) == ("early", 1, [0])
    assert "never answered: Who won the election?" in done.stdout


def test_stories_and_modes_that_are_unknown_are_refused_before_a_service_is_started() -> None:
    stories = run("--data", STORIES)
    assert stories.returncode == 1
    assert "stories are asked by `benchmark prompts`" in stories.stderr
    modes = run("--data", STORIES, "--modes", "hybrid", "bm25")
    assert modes.returncode == 2
    assert "invalid choice: 'bm25'" in modes.stderr
