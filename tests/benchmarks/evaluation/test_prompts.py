"""The rules by which prompts are scored, the set of stories, and one run against a service."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core import prompt_text
from benchmarks.evaluation import scoring
from benchmarks.evaluation.scoring import passage
from benchmarks.evaluation.service import ATTEMPTS, Service
from benchmarks.evaluation.sets import TEXT_LIMIT, Item, Question, World, answerable, fewer, load
from benchmarks.harness import ROOT, table
from benchmarks.prompts import STORIES, Score, ask_world, section, summary

START = datetime(2024, 5, 1, tzinfo=UTC)

BEFORE, AFTER = (" ".join(f"{word}{number}" for number in range(200)) for word in ("alpha", "omega"))
ANSWER = "The roof burned down in Rotterdam, and Helvetia, as the insurance, pays for the warehouse."
LONG = f"{BEFORE} {ANSWER} {AFTER}"
QUESTION = "Which insurance pays for the warehouse?"


def share(memory: str, prompt: str, question: str = QUESTION) -> float:
    known = passage(memory)
    idf = scoring.inverse_frequencies([memory, "Something else."])
    return scoring.evidence_share(known, scoring.nearest_window(known, question, idf), passage(prompt))


# ---------------------------------------------------------------- short memories


def test_a_short_memory_counts_only_when_it_stands_there_whole() -> None:
    memory = "Ada lives in Bath, near the river."
    assert share(memory, f"## Memories\n- [1] {memory} (2024)") == 1
    assert share(memory, "## Memories\n- [1] Ada lives in Bath, near the …") == 0
    assert share(memory, "") == 0


def test_a_memory_of_120_tokens_is_short_and_one_of_121_is_long() -> None:
    words = (" one two three four five six seven eight nine ten" * 13).split()
    limit, longer = " ".join(words[:120]), " ".join(words[:121])
    assert (prompt_text.count(limit), prompt_text.count(longer)) == (120, 121)
    assert share(limit, " ".join(words[:60])) == 0
    assert share(longer, " ".join(words[:60])) > 0


def test_white_space_escapes_and_invisible_characters_make_no_difference() -> None:
    assert share("if a < b:\n    swap(a, b)", "  - if a &lt; b:\n        swap(a,\u200b b)") == 1


def test_a_content_inside_another_word_does_not_stand_there() -> None:
    assert share("art", "A cart of apples, started early.") == 0
    assert share("art", "A cart of art.") == 1
    assert share("五百元", "住宿标准是五百元，含早餐") == 1


# ---------------------------------------------------------------- long memories


def test_a_long_memory_counts_by_the_passage_that_answers_not_by_its_length() -> None:
    assert share(LONG, f"[1] … {ANSWER} …") > share(LONG, AFTER) == 0
    assert share(LONG, LONG) == 1
    window = scoring.nearest_window(passage(LONG), QUESTION, scoring.inverse_frequencies([LONG]))
    assert ANSWER in window.text
    assert window.tokens <= scoring.WINDOW
    assert share(LONG, window.text) == 1, "the whole window is all that is asked for"


def test_the_share_is_the_part_of_the_windows_words_that_is_shown() -> None:
    idf = scoring.inverse_frequencies([LONG])
    window = scoring.nearest_window(passage(LONG), QUESTION, idf)
    half = " ".join(window.words[: len(window.words) // 2])
    assert share(LONG, half) == pytest.approx(0.5, abs=0.01)


def test_words_out_of_order_and_chance_runs_count_nothing() -> None:
    words = passage(LONG).words
    assert share(LONG, " ".join(reversed(words))) == 0
    assert share(LONG, "The insurance of Helvetia. The warehouse in Rotterdam.") == 0


def test_of_windows_that_are_equally_near_the_first_counts() -> None:
    distinct = " ".join(f"word{number}" for number in range(200))
    window = scoring.nearest_window(passage(distinct), QUESTION, {})
    assert window.text.startswith("word0 word1 ")


def test_a_rare_word_draws_the_window_more_than_a_common_one() -> None:
    filler = " ".join(["filler"] * 200)
    memory = f"meeting {filler} heron"
    idf = scoring.inverse_frequencies([memory, "The meeting.", "A meeting again.", "Meetings."])
    assert scoring.nearest_window(passage(memory), "Was there a heron at the meeting?", idf).text.endswith("heron")


def test_an_unspaced_script_is_scored_by_its_characters() -> None:
    filler = "".join(chr(0x4E00 + number) for number in range(300))
    memory = f"{filler}金庫の番号は七四一二である。{filler}"
    assert 0.05 < share(memory, "… 金庫の番号は七四一二である。…", "金庫の番号は？") < 0.5
    assert share(memory, memory, "金庫の番号は？") == 1


# ---------------------------------------------------------------- overhead


def test_overhead_is_what_a_section_spends_beyond_the_words_of_its_memories() -> None:
    one, other = passage("Ada lives in Bath."), passage("Tom likes to row on Sundays.")
    prompt = passage(f"[mem_1] {one.text} [mem_2] {other.text}")
    assert scoring.overhead(one.tokens + other.tokens + 30, [one, other], prompt) == 15


def test_overhead_of_a_cut_memory_counts_only_the_words_shown() -> None:
    memory = passage(LONG)
    shown = scoring.shown_tokens(memory, passage(f"[1] … {ANSWER} …"))
    assert shown == pytest.approx(prompt_text.count(ANSWER), abs=1)
    assert scoring.shown_tokens(memory, passage("nothing of it")) == 0


# ---------------------------------------------------------------- sets


def test_a_set_of_facts_keeps_evidence_order_and_what_is_known(tmp_path: Path) -> None:
    items = [{"id": n, "content": f"Fact {n}.", "timestamp": "2024-01-01T00:00:00Z"} for n in range(3)]
    items[2]["content"] = "x" * (TEXT_LIMIT + 1)
    asked = [
        {"query": "Which?", "evidence": [1, 0, 1], "after": 2, "kind": "a"},
        {"query": "Never said?", "evidence": [], "after": 3, "kind": "abstention"},
    ]
    path = tmp_path / "facts.json"
    conversation = {"id": "c", "kind": "facts", "items": items, "questions": asked}
    path.write_text(json.dumps({"name": "ours", "conversations": [conversation]}))
    (world,) = load(path)
    assert [(q.query, q.evidence, q.after, q.group) for q in answerable(world).questions] == [
        ("Which?", ("Fact 1.", "Fact 0."), 2, "ours")
    ]
    assert [item.session for item in world.items] == [None] * 3
    assert len(world.items[2].content) == TEXT_LIMIT


def test_the_adversarial_questions_of_locomo_are_left_out_and_captions_belong_to_their_turn(tmp_path: Path) -> None:
    talk = {
        "speaker_a": "Ana",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [{"dia_id": "D1:1", "speaker": "Ben", "text": "Look!", "blip_caption": "a red boat"}],
    }
    asked = [
        {"question": "What did Ben show?", "category": 4, "evidence": ["D1:1"]},
        {"question": "What did Ana show?", "category": 5, "evidence": ["D1:1"]},
    ]
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([{"sample_id": "conv", "conversation": talk, "qa": asked}]))
    (world,) = load(path)
    assert [(q.query, q.evidence) for q in answerable(world).questions] == [
        ("What did Ben show?", ("Look! a red boat",))
    ]
    assert (world.items[0].role, world.items[0].name, world.items[0].session) == ("assistant", "Ben", "1")


def test_a_smaller_run_spreads_its_questions_over_the_conversation() -> None:
    questions = tuple(Question(str(n), (), 0, "g", "k") for n in range(10))
    (world,) = fewer([World("a", (), questions), World("b", (), questions)], 1, 3)
    assert [question.query for question in world.questions] == ["0", "3", "6"]


def test_the_stories_are_many_in_five_languages_and_half_are_held_out() -> None:
    worlds = json.loads(STORIES.read_text(encoding="utf-8"))["worlds"]
    cases = [(world["part"], case) for world in worlds for case in world["cases"]]
    plain, rules = (
        [(part, case) for part, case in cases if (case["kind"] == "pinned rules") is pinned] for pinned in (False, True)
    )
    assert len(plain) >= 60
    assert len(rules) >= 15
    assert all(len(case["queries"]) == 5 for _, case in rules)
    assert {world["language"] for world in worlds} == {"en", "de", "es", "zh", "ja"}
    for chosen in (plain, rules):
        parts = Counter(part for part, _ in chosen)
        assert abs(parts["dev"] - parts["held_out"]) <= 1, parts
    assert len(load(STORIES, "dev")) + len(load(STORIES, "held_out")) == len(load(STORIES, "all")) == len(worlds)


def test_every_text_that_a_story_asks_for_is_stored_in_its_world() -> None:
    for world in json.loads(STORIES.read_text(encoding="utf-8"))["worlds"]:
        pinned = {memory["content"] for memory in world["memories"] if memory.get("pinned")}
        stored = {memory["content"] for memory in world["memories"]}
        steps = {step for procedure in world.get("procedures", ()) for step in procedure["steps"]}
        assert 5 <= len(world["memories"]) + len(world.get("procedures", ())) <= 12
        for case in world["cases"]:
            assert case["must"]
            assert set(case["must"]) <= (pinned if case["kind"] == "pinned rules" else stored | steps), case


# ---------------------------------------------------------------- asking


class Fake:
    """An API that keeps contents in order and packs those that share a word with the query."""

    def __init__(self, failing: int = 0) -> None:
        self.contents: list[str] = []
        self.contexts: list[dict[str, Any]] = []
        self._failing = failing

    def client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self._answer), base_url="http://service")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            ready = {"embedding": {"status": "ready"}}
            items = [{"memory_id": str(n), "content": text, **ready} for n, text in enumerate(self.contents)]
            return httpx.Response(200, json={"items": items, "next_cursor": None})
        body = json.loads(request.content)
        if request.url.path == "/v1/context":
            return self._context(body)
        self.contents += [each["content"] for each in body.get("items", body.get("messages"))]
        return httpx.Response(201, json={})

    def _context(self, body: dict[str, Any]) -> httpx.Response:
        self.contexts.append(body)
        wanted = set(body["query"].split())
        packed = [(str(n), text) for n, text in enumerate(self.contents) if wanted & set(text.split())]
        text = "\n".join(f"- {content}" for _, content in packed)
        section = {"name": "memories", "tokens": prompt_text.count(text), "items": [{"id": name} for name, _ in packed]}
        errors = [{"section": "facts"}] if len(self.contexts) <= self._failing else []
        answer = {"text": text, "tokens": section["tokens"], "sections": [section], "errors": errors, "warnings": []}
        return httpx.Response(200, json=answer)


def item(content: str, day: int, session: str | None = None) -> Item:
    return Item(content, START + timedelta(days=day), session)


def asked(query: str, evidence: Sequence[str], after: int) -> Question:
    return Question(query, tuple(evidence), after, "set", "kind")


def test_a_question_is_asked_when_only_the_items_before_it_are_known() -> None:
    fake = Fake()
    items = (item("the red boat", 0, "s1"), item("the red car", 1, "s1"), item("a green car", 2))
    questions = (asked("car", ["the red car", "a green car"], 3), asked("car", ["the red car"], 2))
    world = World("world", items, questions)
    first, second = ask_world(Service(fake.client()), world, [500], wall_clock=False)
    assert fake.contents == ["the red boat", "the red car", "a green car"]
    assert (first.share, second.share) == (1, 1)
    assert first.tokens < second.tokens, "the third item was not there yet"
    assert [body["now"] for body in fake.contexts] == ["2024-05-02T00:00:01+00:00", "2024-05-03T00:00:01+00:00"]


def test_a_question_is_worth_the_mean_of_its_evidence_at_each_budget() -> None:
    world = World(
        "world", (item("the red boat", 0), item("a house", 1)), (asked("boat", ["the red boat", "a house"], 2),)
    )
    scores = list(ask_world(Service(Fake().client()), world, [500, 2000], wall_clock=True))
    assert [(score.budget, score.share) for score in scores] == [(500, 0.5), (2000, 0.5)]
    assert scores[0].overhead is not None
    assert 0 < scores[0].overhead < 3
    (best,) = ask_world(Service(Fake().client()), world, [500], wall_clock=True, enough=max)
    assert best.share == 1, "one of the memories is enough"


def test_an_answer_that_lacks_a_section_is_asked_for_again_and_then_said() -> None:
    world = World("world", (item("the red boat", 0),), (asked("boat", ["the red boat"], 1),))
    (recovered,) = ask_world(Service((fake := Fake(failing=1)).client()), world, [500], wall_clock=False)
    assert (recovered.degraded, len(fake.contexts)) == (False, 2)
    (missing_vectors,) = ask_world(Service((fake := Fake(failing=9)).client()), world, [500], wall_clock=False)
    assert (missing_vectors.degraded, len(fake.contexts)) == (True, ATTEMPTS)
    assert "1 answers lacked a section" in str(section(summary([missing_vectors]), [500]))


def test_the_table_has_a_row_for_each_set_and_figures_for_each_budget() -> None:
    scores = [
        Score("one", "a", 500, 1.0, 100, 8.0, degraded=False),
        Score("one", "b", 500, 0.0, 300, None, degraded=False),
        Score("one", "a", 2000, 1.0, 1500, 9.0, degraded=False),
        Score("other", "a", 500, 0.25, 50, None, degraded=False),
        Score("other", "a", 2000, 0.25, 50, None, degraded=False),
    ]
    found = summary(scores)
    assert found["one"]["500"]["kinds"] == {"a": 1.0, "b": 0.0}
    assert table(section(found, [500, 2000]).rows).splitlines()[2:] == [
        "| one | 2 | 0.500 (0.00–1.00) | 200 | 1.000 (1.00–1.00) | 1,500 | 9.0 (9.0–9.0) |",
        "| other | 1 | 0.250 (0.25–0.25) | 50 | 0.250 (0.25–0.25) | 50 |  |",
    ]


@pytest.mark.slow
def test_a_run_against_a_service_finds_plain_evidence(tmp_path: Path) -> None:
    items = [
        {"id": n, "session": "s", "role": "user", "content": text, "timestamp": "2024-01-01T00:00:00Z"}
        for n, text in enumerate(
            ["My dog Waffles is a beagle.", "I paint the fence on Sunday.", "Rent is 1,850 dollars."]
        )
    ]
    asked = [{"query": "What breed is my dog Waffles?", "evidence": [0], "after": 3, "kind": "plain"}] * 2
    conversation = {"id": "c", "kind": "messages", "items": items, "questions": asked}
    data, report = tmp_path / "set.json", tmp_path / "report.json"
    data.write_text(json.dumps({"name": "ours", "conversations": [conversation]}))

    command = [sys.executable, "-m", "benchmarks", "prompts", "--budgets", "1000"]
    command += ["--data", str(data), "--json", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    figures = json.loads(report.read_text())["prompts"]["ours"]["1000"]
    assert (figures["questions"], figures["share"], figures["degraded"]) == (2, 1.0, 0)
    assert 0 < figures["tokens"] <= 1000
