"""The shapes of files that are read into one, and what is known to be never answered."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluation.sets import Item, World, answerable, fewer, load, with_named_users
from benchmarks.harness import ROOT

PLAIN_FACTS = ROOT / "benchmarks" / "data" / "plain_facts.jsonl"


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


def person(name: str, fact: str, query: str) -> str:
    asked = [{"query": query, "expected": ["f1"]}]
    return json.dumps({"user": name, "facts": [{"id": "f1", "text": fact}], "questions": asked})


def asked(world: World) -> list[tuple[str, tuple[str, ...], str]]:
    return [(question.query, question.evidence, question.kind) for question in world.questions]


def test_each_users_questions_are_asked_of_the_next_user_too(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    people = [
        person("ada", "Ada keeps bees.", "How many bees?"),
        person("bo", "Bo is Danish.", "Which nationality?"),
        person("cy", "Cy skis.", "Does he ski?"),
    ]
    path.write_text("\n".join(people))
    ada, bo, cy = load(path)
    assert asked(ada) == [
        ("How many bees?", ("Ada keeps bees.",), "a term shared"),
        ("Does he ski?", (), "of another user"),
    ]
    assert asked(bo)[0] == ("Which nationality?", ("Bo is Danish.",), "no term shared")
    assert [asked(world)[1][0] for world in (bo, cy)] == ["How many bees?", "Which nationality?"]
    assert ada.items == (Item("Ada keeps bees."),), "a plain fact has no time and no session"
    assert {question.after for question in ada.questions} == {1}


def test_the_plain_facts_of_the_project_have_as_many_questions_of_others() -> None:
    worlds = load(PLAIN_FACTS)
    known = [question for world in worlds for question in answerable(world).questions]
    every = [question for world in worlds for question in world.questions]
    assert len(every) == 2 * len(known) == 2 * 649
    for world in worlds:
        own = {question.query for question in world.questions if question.evidence}
        assert own.isdisjoint(question.query for question in world.questions if not question.evidence)


def test_one_user_alone_has_no_questions_of_another(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text(person("ada", "Ada keeps bees.", "How many bees?"))
    assert [len(world.questions) for world in load(path)] == [1]


def test_an_adversarial_question_of_locomo_was_never_answered_whatever_it_names(tmp_path: Path) -> None:
    talk = {
        "speaker_a": "Ana",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [{"dia_id": "D1:1", "speaker": "Ben", "text": "I have a boat."}],
    }
    qa = [
        {"question": "What has Ana?", "category": 5, "evidence": ["D1:1"]},
        {"question": "What has Ben?", "category": 4, "evidence": ["D1:1", "D1:1; D9:9"]},
        {"question": "Unknown?", "category": 1, "evidence": []},
    ]
    (world,) = load(written(tmp_path / "locomo.json", [{"sample_id": "c", "conversation": talk, "qa": qa}]))
    assert asked(world) == [("What has Ben?", ("I have a boat.",), "single-hop"), ("What has Ana?", (), "adversarial")]


def test_facts_with_questions_that_they_do_not_answer_are_read(tmp_path: Path) -> None:
    world = {
        "id": "w",
        "language": "de",
        "facts": ["Sie wohnt in Ulm.", "Sie rudert."],
        "answerable": [{"query": "Welcher Sport?", "evidence": [1]}],
        "never_said": ["Wie heißt ihr Hund?"],
    }
    (loaded,) = load(written(tmp_path / "never_dev.json", {"worlds": [world]}))
    assert asked(loaded) == [("Welcher Sport?", ("Sie rudert.",), "de"), ("Wie heißt ihr Hund?", (), "de")]
    assert loaded.questions[0].group == "never_dev"


def test_questions_about_time_are_asked_at_the_time_of_their_world(tmp_path: Path) -> None:
    world = {
        "id": "w",
        "now": "2026-04-16T15:30:00+01:00",
        "memories": [{"content": "The old plan.", "event_at": "2026-04-15T10:00:00+01:00"}],
        "queries": [{"query": "What was planned yesterday?", "evidence": [0], "kind": "time"}],
    }
    (loaded,) = load(written(tmp_path / "time_dev.json", {"worlds": [world]}))
    assert asked(loaded) == [("What was planned yesterday?", ("The old plan.",), "time")]
    assert loaded.now == "2026-04-16T15:30:00+01:00"
    assert loaded.items[0].time is not None


ECHO: dict[str, Any] = {
    "id": "e",
    "language": "en",
    "bot": "does_not_know",
    "user_name": "Ada",
    "told": {"role": "user", "content": "My locker has the number 1187."},
    "told_reply": "Noted.",
    "distractors": [
        {"role": role, "content": f"Small talk {at}."} for at in range(4) for role in ("user", "assistant")
    ],
    "answer": "1187",
    "turns": [
        {"question": "Which locker is mine?", "reply": "I don't know."},
        {"question": "My locker?", "reply": "Is it 1187?"},
        {"question": "What number has my locker?", "reply": "I don't know."},
    ],
}


def test_a_story_of_echo_is_asked_again_and_again_and_remembers_each_time(tmp_path: Path) -> None:
    (world,) = load(written(tmp_path / "echo_dev.json", {"stories": [ECHO]}))
    assert [question.after for question in world.questions] == [10, 12, 14], "what was asked before is known"
    assert [item.content for item in world.items[10:12]] == ["Which locker is mine?", "I don't know."]
    assert {(item.role, item.name) for item in world.items} == {("user", "Ada"), ("assistant", None)}
    told = "My locker has the number 1187."
    assert asked(world)[:2] == [
        ("Which locker is mine?", (told,), "does_not_know"),
        ("My locker?", (told,), "does_not_know"),
    ]
    assert asked(world)[2][1] == (told, "Is it 1187?"), "a message that holds the answer answers"
    assert world.questions[0].group == "echo_dev"
    assert len({item.session for item in world.items[10:]}) == 3, "each turn is a session of its own"
    times = [item.time for item in world.items if item.time is not None]
    assert times == sorted(times)


@pytest.mark.parametrize("name", ["echo_dev", "never_dev", "time_dev"])
def test_the_projects_own_sets_are_read(name: str) -> None:
    worlds = load(PLAIN_FACTS.with_name(f"{name}.json"))
    assert len({world.name for world in worlds}) == len(worlds) >= 9
    for world in worlds:
        contents = {item.content for item in world.items}
        assert world.questions
        for question in world.questions:
            assert question.group == name
            assert contents.issuperset(question.evidence)


def test_evidence_that_is_not_known_when_it_is_asked_is_refused(tmp_path: Path) -> None:
    items = [{"id": n, "content": f"Fact {n}.", "timestamp": "2024-01-01T00:00:00Z"} for n in range(3)]
    question = {"query": "Which?", "evidence": [2], "after": 2, "kind": "late"}
    conversation = {"id": "c", "kind": "facts", "items": items, "questions": [question]}
    path = written(tmp_path / "set.json", {"name": "s", "conversations": [conversation]})
    with pytest.raises(ValueError, match=r"c: 'Which\?' names evidence that is not known when it is asked: \[2\]"):
        load(path)


def test_only_users_without_a_name_are_named_and_only_in_messages() -> None:
    items = (
        Item("Hello.", session="s"),
        Item("Hi!", session="s", role="assistant"),
        Item("I am Ben.", session="s", name="Ben"),
        Item("Keeps bees."),
    )
    named = with_named_users(World("w", items, ()), "Jordan")
    assert [item.name for item in named.items] == ["Jordan", None, "Ben", None]
    assert [item.content for item in named.items] == [item.content for item in items]


def test_a_smaller_run_keeps_questions_that_were_never_answered(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text("\n".join(person(name, f"{name} skis.", f"Does {name} ski?") for name in ("ada", "bo")))
    (world,) = fewer(load(path), 1, 2)
    assert [bool(question.evidence) for question in world.questions] == [True, False]


def test_a_message_keeps_the_name_of_who_says_it(tmp_path: Path) -> None:
    """Two people talk, one of them in the place of an assistant: without her name she would be taken for one."""
    said = {"session": "s", "timestamp": "2024-01-01T00:00:00Z"}
    items = [
        {"id": 1, "role": "user", "name": "Emi", "content": "Hey!", **said},
        {"id": 2, "role": "assistant", "name": "Elise", "content": "I moved to Basel.", **said},
        {"id": 3, "role": "assistant", "content": "Noted.", **said},
    ]
    questions = [{"query": "Where does Elise live?", "evidence": [2], "kind": "fact"}]
    talk = {"id": "t", "kind": "messages", "items": items, "questions": questions}
    (world,) = load(written(tmp_path / "set.json", {"name": "talks", "conversations": [talk]}))
    assert [item.name for item in world.items] == ["Emi", "Elise", None]


def test_a_plain_case_is_a_world_with_one_question(tmp_path: Path) -> None:
    case = {
        "id": "en-siblings-01",
        "kind": "siblings",
        "language": "en",
        "memories": ["My dog is called Rex", "My sister's dog is called Bo"],
        "question": "What is my dog called?",
        "best": [0],
        "worse": [1],
    }
    (world,) = load(written(tmp_path / "plain.json", {"cases": [case]}))
    assert asked(world) == [("What is my dog called?", ("My dog is called Rex",), "siblings")]
    assert world.questions[0].worse == ("My sister's dog is called Bo",)
    assert world.questions[0].after == 2
