"""The second stage: deadline, waiting line, pause, and what of a reranker's answer is accepted."""

import asyncio
import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.embedding.reranking import (
    FAILURES_BEFORE_PAUSE,
    MAX_CHARS,
    MAX_HITS,
    MAX_WAITING,
    RerankingFailed,
    RerankingLate,
    RerankingSkipped,
    SecondStage,
    best_first,
)
from tests.support.rerankers import ScriptedReranker

pytestmark = pytest.mark.anyio

LONG = 60.0
"""A deadline that no test reaches."""


class Time:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def stage_of(reranker: ScriptedReranker, seconds: float = LONG, time: Time | None = None) -> SecondStage:
    return SecondStage(reranker, seconds=seconds, hits=50, monotonic=time or Time())


def failing(query: str, texts: object) -> list[float]:
    raise RerankingFailed("The reranker answered 500.")


async def fail(stage: SecondStage, times: int) -> None:
    for _ in range(times):
        with pytest.raises(RerankingFailed, match="answered 500"):
            await stage.scores("q", ["a"])


async def test_the_scores_are_the_rerankers() -> None:
    reranker = ScriptedReranker()
    assert await stage_of(reranker).scores("q", ["abc", "a"]) == [-3.0, -1.0]
    assert reranker.calls == [("q", ["abc", "a"])]


async def test_a_long_query_and_a_long_text_are_cut_and_lone_surrogates_replaced() -> None:
    reranker = ScriptedReranker()
    await stage_of(reranker).scores("q" * 5_000, ["x" * 5_000, "a\ud800b"])
    ((query, texts),) = reranker.calls
    assert (len(query), len(texts[0]), texts[1]) == (MAX_CHARS, MAX_CHARS, "a?b")


@pytest.mark.parametrize("scores", [[1.0], [1.0, 2.0, 3.0], []])
async def test_another_number_of_scores_is_refused(scores: list[float]) -> None:
    stage = stage_of(ScriptedReranker(lambda query, texts: scores))
    with pytest.raises(RerankingFailed, match=f"gave {len(scores)} scores for 2 texts"):
        await stage.scores("q", ["a", "b"])


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
async def test_a_score_that_is_not_finite_is_refused(score: float) -> None:
    stage = stage_of(ScriptedReranker(lambda query, texts: [1.0, score]))
    with pytest.raises(RerankingFailed, match="not finite"):
        await stage.scores("q", ["a", "b"])


@pytest.mark.parametrize(("setting", "caller"), [(0.01, None), (LONG, 0.01), (0.01, LONG)])
async def test_after_the_shorter_deadline_nobody_waits(setting: float, caller: float | None) -> None:
    reranker = ScriptedReranker()
    reranker.open.clear()
    with pytest.raises(RerankingLate, match=r"did not answer within 0\.01 s"):
        await stage_of(reranker, setting).scores("q", ["a"], caller)


async def test_the_deadline_counts_the_wait_for_ones_turn() -> None:
    reranker = ScriptedReranker()
    reranker.open.clear()
    stage = stage_of(reranker)
    first = asyncio.create_task(stage.scores("first", ["a"]))
    await asyncio.sleep(0)
    with pytest.raises(RerankingLate):
        await stage.scores("second", ["a"], 0.01)
    assert [query for query, _ in reranker.calls] == ["first"]
    reranker.open.set()
    assert await first == [-1.0]


@pytest.mark.parametrize("at_once", [1, 3])
async def test_calls_take_turns_and_a_full_line_refuses(at_once: int) -> None:
    reranker = ScriptedReranker(at_once=at_once)
    reranker.open.clear()
    stage = stage_of(reranker)
    waiting = [asyncio.create_task(stage.scores(str(n), ["a"])) for n in range(at_once + MAX_WAITING)]
    await asyncio.sleep(0)
    assert len(reranker.calls) == at_once
    with pytest.raises(RerankingSkipped, match="Too many searches wait"):
        await stage.scores("one more", ["a"])
    reranker.open.set()
    assert await asyncio.gather(*waiting) == [[-1.0]] * len(waiting)
    assert await stage.scores("later", ["a"]) == [-1.0]


async def test_who_goes_away_while_waiting_leaves_the_line() -> None:
    reranker = ScriptedReranker()
    reranker.open.clear()
    stage = stage_of(reranker)
    first = asyncio.create_task(stage.scores("first", ["a"]))
    gone = [asyncio.create_task(stage.scores("gone", ["a"])) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.wait(gone)
    last = asyncio.create_task(stage.scores("last", ["a"]))
    await asyncio.sleep(0)
    reranker.open.set()
    assert list(await asyncio.gather(first, last)) == [[-1.0], [-1.0]]
    assert [query for query, _ in reranker.calls] == ["first", "last"]


async def test_after_failures_in_a_row_the_reranker_is_left_alone_ever_longer() -> None:
    reranker, time = ScriptedReranker(failing), Time()
    stage = stage_of(reranker, time=time)
    await fail(stage, FAILURES_BEFORE_PAUSE)
    for pause in (1, 2, 4, 8, 16, 30, 30):
        asked = len(reranker.calls)
        time.now += pause - 0.1
        with pytest.raises(RerankingSkipped, match="failed several times"):
            await stage.scores("q", ["a"])
        assert len(reranker.calls) == asked
        assert stage.state.startswith("scripted (paused after")
        time.now += 0.2
        assert stage.state == "scripted"
        await fail(stage, 1)


async def test_one_success_ends_the_row() -> None:
    reranker, time = ScriptedReranker(failing), Time()
    stage = stage_of(reranker, time=time)
    await fail(stage, FAILURES_BEFORE_PAUSE)
    time.now += 2
    reranker.rule = lambda query, texts: [1.0]
    assert await stage.scores("q", ["a"]) == [1.0]
    reranker.rule = failing
    await fail(stage, FAILURES_BEFORE_PAUSE)
    with pytest.raises(RerankingSkipped):
        await stage.scores("q", ["a"])


async def test_calls_that_fail_together_make_one_pause() -> None:
    reranker, time = ScriptedReranker(failing, at_once=20), Time()
    reranker.open.clear()
    stage = stage_of(reranker, time=time)
    together = [asyncio.create_task(stage.scores("q", ["a"])) for _ in range(20)]
    await asyncio.sleep(0)
    reranker.open.set()
    await asyncio.wait(together)
    assert all(isinstance(task.exception(), RerankingFailed) for task in together)
    time.now += 1.1
    assert stage.state == "scripted"


async def test_a_row_of_failures_is_logged_once_and_without_texts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    reranker = ScriptedReranker(failing)
    stage = stage_of(reranker)
    for _ in range(FAILURES_BEFORE_PAUSE):
        with pytest.raises(RerankingFailed):
            await stage.scores("my private query", ["my private text"])
    ours = [record for record in caplog.records if record.name.startswith("app.")]
    assert [(record.levelname, vars(record)["reason"]) for record in ours] == [
        ("WARNING", "The reranker answered 500.")
    ]
    assert "private" not in caplog.text + str([vars(record) for record in caplog.records])


@pytest.mark.parametrize(("k", "count"), [(1, 50), (50, 50), (64, 64), (256, MAX_HITS)])
async def test_at_least_the_hits_asked_for_are_reranked_and_never_more_than_the_most(k: int, count: int) -> None:
    assert stage_of(ScriptedReranker()).count(k) == count


async def test_closing_closes_the_reranker() -> None:
    reranker = ScriptedReranker()
    await stage_of(reranker).close()
    assert reranker.closed


@given(st.lists(st.sampled_from([-1.5, 0.0, 0.0, 2.0, 1e30])))
def test_best_first_is_a_stable_descending_order(scores: list[float]) -> None:
    order = best_first(scores)
    assert sorted(order) == list(range(len(scores)))
    keys = [(-scores[index], index) for index in order]
    assert keys == sorted(keys)
