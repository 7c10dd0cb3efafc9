"""How answers of a search are judged, and the figures, the table and the list of misses that are made of them."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.storage.text import content_hash
from benchmarks.evaluation.judging import Answer, Found, Set, ask_set, judged
from benchmarks.evaluation.recall_report import calibration, misses, section, summary
from benchmarks.evaluation.service import ATTEMPTS, Service
from benchmarks.evaluation.sets import Item, Question, World, with_named_users

START = datetime(2024, 5, 1, tzinfo=UTC)
MODES = ("hybrid", "vector", "text")
TOOK = {"embed": 1.0, "search": 2.0, "total": 3.0}


class Fake:
    """An API that ranks what it holds by the words shared with the query; `text` wants a shared word."""

    def __init__(self, failing: int = 0, lost: str = "") -> None:
        self.memories: list[dict[str, Any]] = []
        self.searches: list[dict[str, Any]] = []
        self._failing, self._lost = failing, lost

    def service(self) -> Service:
        client = httpx.Client(transport=httpx.MockTransport(self._answer), base_url="http://service")
        return Service(client)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"items": self.memories, "next_cursor": None})
        body = json.loads(request.content)
        if request.url.path == "/v1/memories/search":
            return self._search(body)
        session = request.url.path.split("/")[3] if "messages" in body else None
        for each in body.get("items", body.get("messages")):
            if each["content"] != self._lost:
                self._remember(each["content"], session)
        return httpx.Response(201, json={})

    def _remember(self, content: str, session: str | None) -> None:
        source = {"session_id": session}
        name = str(len(self.memories))
        embedding = {"status": "ready"}
        self.memories.append({"memory_id": name, "content": content, "source": source, "embedding": embedding})

    def _search(self, body: dict[str, Any]) -> httpx.Response:
        self.searches.append(body)
        if len(self.searches) <= self._failing:
            return httpx.Response(503, json={"code": "embedding_unavailable", "warnings": []})
        wanted = set(body["query"].split())
        scored = [(len(wanted & set(one["content"].split())) / len(wanted), one) for one in self.memories]
        found = [(score, one) for score, one in scored if score or body["mode"] != "text"]
        found.sort(key=lambda each: -each[0])
        items = [{"score": score, "memory": one} for score, one in found[: body["top_k"]]]
        return httpx.Response(200, json={"items": items, "warnings": [], "took_ms": TOOK})


def item(content: str, day: int = 0, session: str | None = None) -> Item:
    return Item(content, START + timedelta(days=day), session)


def question(query: str, evidence: Sequence[str], after: int, kind: str = "kind") -> Question:
    return Question(query, tuple(evidence), after, "a set", kind)


def a_set(*worlds: World) -> Set:
    return Set(Path("a_set.json"), worlds)


def found(score: float | None, *ranks: int) -> Found:
    return Found(ranks, session_hit=False, score=score, first="", missing={}, took_ms=TOOK, waited_ms=4.0)


def answer(hybrid: Found, evidence: int = 1, kind: str = "kind", **others: Found) -> Answer:
    asked = question("which?", ["text"] * evidence, 1, kind)
    return Answer("w", asked, evidence, {"hybrid": hybrid, **others})


# ---------------------------------------------------------------- judging


def hits(*contents: str, session: str = "s") -> dict[str, Any]:
    items = [{"score": 0.5, "memory": {"content": text, "source": {"session_id": session}}} for text in contents]
    return {"items": items, "took_ms": TOOK}


def test_evidence_is_known_by_its_content_and_an_equal_text_stands_for_it() -> None:
    evidence = {content_hash(text): text for text in ("The red boat.", "A house.")}
    got = judged(hits("a car", "the  RED boat."), 1.0, evidence, {})
    assert (got.ranks, got.right, got.score, got.first) == ((1,), False, 0.5, "a car")
    assert got.missing == {"A house.": None}
    assert judged(hits("A house.", "a car"), 1.0, evidence, {}).right


def test_evidence_after_the_fifth_place_is_missing_with_its_place() -> None:
    known = {content_hash("f"): "f"}
    assert judged(hits("a", "b", "c", "d", "f"), 1.0, known, {}).missing == {}
    assert judged(hits("a", "b", "c", "d", "e", "f"), 1.0, known, {}).missing == {"f": 6}


def test_a_search_that_finds_nothing_has_no_score() -> None:
    got = judged(hits(), 1.0, {content_hash("f"): "f"}, {})
    assert (got.score, got.ranks, got.right, got.session_hit) == (None, (), False, False)


def test_a_session_is_hit_when_it_is_among_the_first_five_that_show_up() -> None:
    evidence, held = {content_hash("f"): "f"}, {content_hash("f"): {"s5", "s9"}}
    places = [hits(f"text {n}", session=f"s{n // 2}")["items"][0] for n in range(14)]
    assert judged({"items": places, "took_ms": TOOK}, 1.0, evidence, {content_hash("f"): {"s4"}}).session_hit
    assert not judged({"items": places, "took_ms": TOOK}, 1.0, evidence, held).session_hit


# ---------------------------------------------------------------- asking


def test_a_question_is_asked_in_every_mode_when_only_the_items_before_it_are_known() -> None:
    items = (item("the red boat", 0, "s1"), item("the red car", 1, "s1"), item("a green car", 2))
    asked = (question("green car", ["a green car"], 3), question("green car", ["the red car"], 2))
    fake = Fake()
    early, late = ask_set(fake.service(), a_set(World("w", items, asked)), MODES)
    assert [search["mode"] for search in fake.searches] == [*MODES] * 2
    assert [early.found[mode].ranks for mode in MODES] == [(0,)] * 3, "the green car was not there yet"
    assert late.found["hybrid"].score == 1
    assert [search["now"] for search in fake.searches[::3]] == [
        "2024-05-02T00:00:01+00:00",
        "2024-05-03T00:00:01+00:00",
    ]
    assert {search["record_access"] for search in fake.searches} == {False}


def test_facts_without_a_time_and_the_wall_clock_leave_out_now() -> None:
    fake = Fake()
    timeless = World("w", (Item("the red boat"),), (question("boat", ["the red boat"], 1),))
    timed = World("v", (item("the red car"),), (question("car", ["the red car"], 1),))
    ask_set(fake.service(), a_set(timeless), ["text"])
    ask_set(fake.service(), a_set(timed), ["text"], wall_clock=True)
    assert ["now" in search for search in fake.searches] == [False, False]


def test_a_world_that_has_a_time_of_its_own_is_asked_at_it() -> None:
    fake = Fake()
    world = World(
        "w", (item("the red boat"),), (question("boat", ["the red boat"], 1),), now="2026-04-16T15:30:00+01:00"
    )
    ask_set(fake.service(), a_set(world), ["text"])
    assert fake.searches[0]["now"] == "2026-04-16T15:30:00+01:00"


def test_a_search_without_its_vector_is_asked_again_and_then_ends_the_run() -> None:
    world = World("w", (item("the red boat"),), (question("boat", ["the red boat"], 1),))
    (recovered,) = ask_set(Fake(failing=ATTEMPTS - 1).service(), a_set(world), ["hybrid"])
    assert recovered.found["hybrid"].right
    with pytest.raises(SystemExit, match="without its vector"):
        ask_set(Fake(failing=ATTEMPTS).service(), a_set(world), ["hybrid"])


def test_a_service_that_loses_an_item_ends_the_run() -> None:
    world = World("w", (item("the red boat"), item("a car")), (question("boat", ["the red boat"], 2),))
    with pytest.raises(SystemExit, match=r"w: the service does not hold 1 of 2 items: \['a car'\]"):
        ask_set(Fake(lost="a car").service(), a_set(world), ["hybrid"])


def test_a_users_name_reaches_the_service() -> None:
    sent: list[dict[str, Any]] = []

    def kept(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(201, json={})

    service = Service(httpx.Client(transport=httpx.MockTransport(kept), base_url="http://service"))
    items = (item("hello", session="s"), Item("hi", START, "s", "assistant"))
    world = with_named_users(World("w", items, ()), "Jordan")
    service.remember(world.items, service.owner(world))
    assert [(message["role"], message.get("name")) for message in sent[0]["messages"]] == [
        ("user", "Jordan"),
        ("assistant", None),
    ]


def test_sessions_are_judged_where_every_conversation_has_more_than_five() -> None:
    many = World("w", tuple(item("text", 0, f"s{n}") for n in range(6)), ())
    few = World("v", many.items[:5], ())
    assert (a_set(many).by_session, a_set(many).top_k) == (True, 100)
    assert (a_set(many, few).by_session, a_set(few).top_k) == (False, 20)
    assert a_set(many).metrics[-1] == "session hit@5"


# ---------------------------------------------------------------- figures


def test_figures_are_given_by_mode_and_kind_and_differences_are_paired() -> None:
    answers = [
        answer(found(0.9, 0), kind="one", vector=found(0.8, 3)),
        answer(found(0.9, 1), kind="one", vector=found(0.8, 1)),
        answer(found(0.9), kind="other", vector=found(0.8, 0)),
        answer(found(0.4), evidence=0, kind="never", vector=found(0.8)),
    ]
    result = summary(a_set(World("w", (item("text"),), ())), answers, ["hybrid", "vector"])
    assert (result["questions"], result["never_said"]) == (3, 1)
    hybrid = result["modes"]["hybrid"]
    assert hybrid["all"]["MRR"]["mean"] == 0.5
    assert hybrid["kinds"]["one"]["recall@1"] == {"mean": 0.5, "interval": [0, 1]}
    assert list(hybrid["kinds"]) == ["one", "other"], "a question that was never answered has no recall"
    difference = result["differences"]["hybrid - vector"]
    assert difference["MRR"]["mean"] == pytest.approx((0.75 + 0 - 1) / 3, abs=1e-4)
    assert difference["recall@5"] == {"mean": pytest.approx(-1 / 3, abs=1e-4), "interval": [-1, 0]}
    assert hybrid["latency"]["search"] == {"p50": 2, "p95": 2}
    assert hybrid["latency"]["waited"] == {"p50": 4, "p95": 4}


def test_a_set_without_a_question_that_has_evidence_has_no_recall() -> None:
    result = summary(a_set(World("w", (), ())), [answer(found(0.4), evidence=0)], ["hybrid"])
    assert result["modes"]["hybrid"]["all"] == {"questions": 0}
    assert result["calibration"]["auc"] is None
    assert "1 never answered" in str(section(result))


def test_the_first_score_is_right_when_its_memory_is_evidence_and_wrong_where_nothing_was_said() -> None:
    answers = [
        *[answer(found(0.8, 0))] * 4,
        answer(found(0.8, 3)),
        *[answer(found(0.2), evidence=0)] * 4,
        answer(found(None), evidence=0),
    ]
    known = calibration(answers)
    assert known["answerable"]["ece"] == 0
    assert known["answerable"]["share_right"] == known["answerable"]["mean_score"] == 0.8
    assert known["with never said"]["answers"] == 9, "a search that found nothing has no score"
    assert known["with never said"]["ece"] == pytest.approx(4 / 9 * 0.2, abs=1e-4)
    assert known["with never said"]["brier"] == pytest.approx((4 * 0.04 + 0.64 + 4 * 0.04) / 9, abs=1e-4)
    assert known["right_first"] == {"count": 4, "median": 0.8}
    assert known["auc"] == {"value": 1, "interval": [1, 1]}
    assert known["never_said"] == {"count": 5, "median": 0.2}


def test_without_never_said_questions_there_is_no_auc() -> None:
    known = calibration([answer(found(0.8, 0)), answer(found(0.1))])
    assert known["auc"] is known["with never said"] is None
    assert known["answerable"]["answers"] == 2


def test_the_calibration_is_of_hybrid_alone() -> None:
    result = summary(a_set(World("w", (), ())), [answer(found(0.8, 0), vector=found(0.1, 0))], ["vector"])
    assert result["calibration"] is None
    assert result["differences"] == {}
    assert "score of the first memory" not in str(section(result))


def test_the_table_has_a_row_for_each_mode_kind_and_difference() -> None:
    answers = [
        answer(found(0.9, 0), kind="one", text=found(3.0, 1)),
        answer(found(0.9, 0), kind="other", text=found(3.0, 1)),
        answer(found(0.4), evidence=0, text=found(2.0)),
    ]
    result = summary(a_set(World("w", (item("text"),), ())), answers, ["hybrid", "text"])
    lines = str(section(result)).splitlines()
    assert lines[0].endswith("1 conversations, 1 items, 2 questions with evidence, 1 never answered")
    starts = [line.split(" | ")[:3] for line in lines if line.startswith(("| hybrid", "| text"))]
    assert starts == [
        ["| hybrid", "all", "2"],
        ["| hybrid", "one", "1"],
        ["| hybrid", "other", "1"],
        ["| text", "all", "2"],
        ["| text", "one", "1"],
        ["| text", "other", "1"],
        ["| hybrid − text", "all, paired", "2"],
    ]
    widths = {line.count("|") for line in lines[2:10]}
    assert len(widths) == 1, "every row has a cell for every head"
    assert "+0.500 (+0.500 … +0.500)" in next(line for line in lines if "−" in line), "MRR"
    assert any(line.startswith("AUC of the best score") and "1.000 (1.00–1.00)" in line for line in lines)


def test_misses_name_what_was_not_found_and_the_never_answered_that_score_highest() -> None:
    items = (*(item(f"boat {n}") for n in range(6)), item("a green car"))
    asked = (
        question("boat 5", ["a green car", "boat 5"], 7, "hard"),
        question("a horse", [], 7),
        question("boat horse car", [], 7),
    )
    answers = ask_set(Fake().service(), a_set(World("w", items, asked)), ["text"])
    lines = "\n".join(misses(answers, "text")).splitlines()
    assert lines[1:4] == ["w, hard: boat 5", "  > all: a green car", "  1: boat 5"]
    never = [line for line in lines if "never answered" in line]
    assert never == ["w, never answered: a horse", "w, never answered: boat horse car"]
