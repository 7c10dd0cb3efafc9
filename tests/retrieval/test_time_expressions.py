import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.clock import to_ms
from app.retrieval.time_expressions import (
    NEVER,
    TimeInterval,
    asked_order,
    fold_in_place,
    interval_of,
    is_over,
    may_hold_time,
    named_days,
    names_subject,
    read_interval,
    with_named_days,
)
from app.storage.text import term_ids
from tests.retrieval.cases import CASES, NO_TIME
from tests.support.columns import columns_of

NOW = datetime(2026, 6, 17, 12, tzinfo=UTC)
DAY_MS = 86_400_000
EARLIEST, LATEST = datetime(1000, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)

moments = st.datetimes(datetime.fromisoformat("1990-01-01"), datetime.fromisoformat("2090-01-01")).map(
    lambda at: at.replace(tzinfo=UTC)
)
zones = st.sampled_from(sorted(available_timezones())).map(ZoneInfo)
queries = st.sampled_from([query for cases in CASES.values() for query, _, _ in cases])
pieces = st.sampled_from(
    "last in 2 99999 weeks ago May 2023 31 June vor Tagen hace 上 个 月 年 日 前 从 到 since before between and - . / "
    "0 February 30 q4 0000 先 の decades".split()
)


def local(milliseconds: int, zone: ZoneInfo | None = None) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).astimezone(zone or UTC).isoformat()


@pytest.mark.parametrize(
    ("query", "first", "after"), [pytest.param(*case, id=case[0]) for cases in CASES.values() for case in cases]
)
def test_an_expression_is_the_days_that_it_speaks_of(query: str, first: str, after: str) -> None:
    interval = read_interval(query, NOW)
    assert interval is not None
    assert (local(interval.start), local(interval.end)) == (f"{first}T00:00:00+00:00", f"{after}T00:00:00+00:00")
    assert interval.words.strip() in query


@pytest.mark.parametrize("query", NO_TIME)
def test_what_only_looks_like_a_time_is_none(query: str) -> None:
    assert read_interval(query, NOW) is None


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("what did she say this morning", "2026-06-17T05:00", "2026-06-17T12:00"),
        ("who called last night", "2026-06-16T18:00", "2026-06-17T06:00"),
        ("yesterday afternoon", "2026-06-16T12:00", "2026-06-16T18:00"),
        ("heute früh", "2026-06-17T05:00", "2026-06-17T12:00"),
        ("gestern Abend", "2026-06-16T18:00", "2026-06-17T00:00"),
        ("¿dónde cenamos anoche?", "2026-06-16T18:00", "2026-06-17T06:00"),
        ("ce matin", "2026-06-17T05:00", "2026-06-17T12:00"),
        ("今天早上", "2026-06-17T05:00", "2026-06-17T12:00"),
        ("昨夜", "2026-06-16T18:00", "2026-06-17T06:00"),
        ("two hours ago", "2026-06-17T09:30", "2026-06-17T10:30"),
        ("in the last 3 hours", "2026-06-17T09:00", "2026-06-17T12:00"),
        ("what did I say 15 minutes ago", "2026-06-17T11:40", "2026-06-17T11:50"),
        ("Was habe ich vor 15 Minuten gesagt?", "2026-06-17T11:40", "2026-06-17T11:50"),
        ("half an hour ago", "2026-06-17T11:25", "2026-06-17T11:35"),
    ],
)
def test_parts_of_a_day_are_hours(query: str, start: str, end: str) -> None:
    interval = read_interval(query, NOW)
    assert interval is not None
    assert (local(interval.start)[:16], local(interval.end)[:16]) == (start, end)


def test_days_begin_where_the_user_is() -> None:
    late = datetime(2026, 6, 17, 23, 30, tzinfo=UTC)
    tokyo = ZoneInfo("Asia/Tokyo")
    interval = read_interval("what did I do yesterday", late, tokyo)
    assert interval is not None
    assert local(interval.start, tokyo) == "2026-06-17T00:00:00+09:00"
    assert interval.end - interval.start == DAY_MS


def test_a_day_on_which_clocks_change_is_as_long_as_it_is() -> None:
    zone = ZoneInfo("Europe/Berlin")
    interval = read_interval("gestern", datetime(2026, 3, 30, 12, tzinfo=UTC), zone)
    assert interval is not None
    assert interval.end - interval.start == 23 * 3_600_000


def test_the_same_query_moves_with_the_day() -> None:
    one, other = (read_interval("yesterday", NOW + timedelta(days=days)) for days in (0, 1))
    assert one is not None
    assert other is not None
    assert other.start - one.start == DAY_MS


def test_the_first_words_are_reported_as_they_were_written() -> None:
    interval = read_interval("Was war LETZTEN Sommer los?", NOW)
    assert interval is not None
    assert interval.words == "LETZTEN Sommer"


def test_what_is_no_date_does_not_hide_what_is_one() -> None:
    interval = read_interval("9999 years ago, or yesterday", NOW)
    assert interval is not None
    assert interval.words == "yesterday"


def test_what_has_begun_is_meant_rather_than_what_is_to_come() -> None:
    interval = read_interval("what did I plan next month, and what did I say last month?", NOW)
    assert interval is not None
    assert interval.words == "last month"


@pytest.mark.parametrize(
    ("query", "before", "after"),
    [
        ("What is on Friday?", "2026-06-12", "2026-06-19"),
        ("the July budget", "2025-07-01", "2026-07-01"),
        ("appointment on May 5", "2026-05-05", "2027-05-05"),
        ("from May 3 to 10", "2026-05-03", "2027-05-03"),
        ("the last week of May", "2026-05-25", "2027-05-25"),
        ("was ist am Montag", "2026-06-15", "2026-06-22"),
        ("5月3日到10日", "2026-05-03", "2027-05-03"),
        ("What did I plan on Friday?", "2026-06-12", "2026-06-19"),
        ("I will be there. It is on Friday. What should I bring?", "2026-06-12", "2026-06-19"),
    ],
)
def test_words_that_do_not_say_which_have_a_reading_before_now_and_one_after(
    query: str, before: str, after: str
) -> None:
    interval = read_interval(query, NOW)
    assert interval is not None
    assert interval.coming is not None
    assert (local(interval.start)[:10], local(interval.coming[0])[:10]) == (before, after)


@pytest.mark.parametrize("query", ["last Friday", "next Friday", "on Friday last week", "May 2024", "yesterday"])
def test_words_that_say_which_have_one_reading(query: str) -> None:
    interval = read_interval(query, NOW)
    assert interval is not None
    assert interval.coming is None


@given(st.lists(st.tuples(st.integers(-10, 20), st.booleans())), st.booleans())
def test_a_plan_makes_it_the_coming_reading_else_the_one_that_has_something(
    told: list[tuple[int, bool]], matched: bool
) -> None:
    interval = TimeInterval(-5, 0, "on Friday", (5, 10))
    days, own = np.array([day for day, _ in told], np.int64), np.array([own for _, own in told], np.bool_)
    found = interval.settled(days, days, np.full(len(told), matched), own)
    past, coming = ([one for one in told if matched and first <= one[0] < last] for first, last in ((-5, 0), (5, 10)))
    planned, happened = (any(own for _, own in those) for those in (coming, past))
    assert (found.start, found.end) == ((5, 10) if planned or (coming and not past) else (-5, 0))
    assert found.other == ((-5, 0) if planned and happened else None)
    assert found.empty == (not past and not coming)
    assert found.coming is None


@pytest.mark.parametrize(
    ("query", "zone", "days"),
    [
        ("tomorrow", "UTC", ["06-18"]),
        ("tomorrow", "Pacific/Kiritimati", ["06-19"]),  # there it is the 18th already
        ("tonight", "America/Denver", ["06-17"]),
        ("on Friday", "Europe/Berlin", ["06-12", "06-19"]),
        ("next week", "Europe/Berlin", ["06-22", "06-23", "06-24", "06-25", "06-26", "06-27", "06-28"]),
        ("last month", "UTC", []),
        ("an hour ago", "UTC", []),
    ],
)
def test_a_time_of_some_days_is_looked_for_by_their_dates(query: str, zone: str, days: list[str]) -> None:
    interval = read_interval(query, NOW, ZoneInfo(zone))
    assert interval is not None
    expected = term_ids([f"@{year}{day}" for year in ("", "2026-") for day in days]).tolist()
    assert [term for _, _, term in named_days(interval)] == expected
    readings = [(interval.start, interval.end), interval.coming or (0, 0)]
    assert all(any(first <= at < after for first, after in readings) for _, at, _ in named_days(interval))


def test_a_day_without_a_year_is_the_nearest_to_its_telling() -> None:
    """Asked in June 2026 about 13 April, of this year or the next; the fourth text names the year, the fifth none."""
    interval = read_interval("Where are we on 13 April?", NOW)
    assert interval is not None
    days = named_days(interval)
    terms = np.unique([term for _, _, term in days]).astype(np.uint32)
    columns = columns_of(5, terms=len(terms))
    this, coming = (to_ms(datetime(year, 4, 13, tzinfo=UTC)) for year in (2026, 2027))
    columns.time = np.array([this - DAY_MS, this + 190 * DAY_MS, this - 400 * DAY_MS, this, this])
    columns.term_counts[np.searchsorted(terms, term_ids(["@04-13"])), :4] = 1
    columns.term_counts[np.searchsorted(terms, term_ids(["@2027-04-13"])), 3] = 1
    found = with_named_days(columns, terms, terms[:0], days)
    assert found.named is not None
    assert found.named.tolist() == [this, coming, NEVER, coming, NEVER]
    assert found.term_counts.shape == (0, 5)  # they count as no words
    settled = interval.settled(columns.time, columns.time, columns.matched, np.zeros(5, np.bool_), found.named)
    assert settled.readings == ((coming, coming + DAY_MS), (this, this + DAY_MS))


@given(queries, moments, zones)
@settings(max_examples=200, deadline=None)
def test_an_interval_is_never_empty_and_lies_within_reason(query: str, now: datetime, zone: ZoneInfo) -> None:
    interval = read_interval(query, now, zone)
    if interval is not None:
        assert interval.start < interval.end
        assert local(interval.start) > EARLIEST.isoformat()
        assert local(interval.end) < LATEST.isoformat()


@given(queries, moments, st.integers(0, 3_000))
@settings(max_examples=200, deadline=None)
def test_a_later_now_never_means_an_earlier_time(query: str, now: datetime, days: int) -> None:
    one, other = read_interval(query, now), read_interval(query, now + timedelta(days=days))
    if one is not None and other is not None and one.words == other.words:
        assert one.start <= other.start


@given(st.text(max_size=200) | st.text(st.characters(categories=["Cs", "Nd", "Lo", "Zs"]), max_size=50), zones)
@example("\ud800 yesterday \udfff", ZoneInfo("UTC"))
@example("İyesterday", ZoneInfo("UTC"))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_without_an_error(text: str, zone: ZoneInfo) -> None:
    read_interval(text, NOW, zone)
    asked_order(text)
    names_subject(text)
    assert len(fold_in_place(text)) == len(text)


@given(st.lists(pieces, max_size=8), st.sampled_from(["", " "]), st.datetimes().map(lambda at: at.replace(tzinfo=UTC)))
@example(["99999", "decades", "ago"], " ", datetime(1, 1, 1, tzinfo=UTC))
@example(["since", "2023"], " ", datetime(9999, 12, 31, 23, tzinfo=UTC))
@settings(max_examples=300, deadline=None)
def test_nonsense_of_time_words_is_read_without_an_error(words: list[str], between: str, now: datetime) -> None:
    interval = read_interval(between.join(words), now, ZoneInfo("Pacific/Kiritimati"))
    assert interval is None or interval.start < interval.end


def test_a_long_text_is_read_at_its_beginning_only() -> None:
    assert read_interval("word " * 6_000 + "yesterday", NOW) is None
    assert read_interval("yesterday " + "word " * 6_000, NOW) is not None


@pytest.mark.parametrize("query", ["what does she like?", "python 3.11", "which colour is the car", "我喜欢什么颜色"])
def test_a_query_without_a_time_word_is_told_at_once(query: str) -> None:
    assert not may_hold_time(fold_in_place(query))


@pytest.mark.anyio
async def test_the_event_loop_gets_the_same_interval() -> None:
    assert await interval_of("what did I do yesterday", NOW) == read_interval("what did I do yesterday", NOW)
    assert await interval_of("what does she like?", NOW) is None


@pytest.mark.anyio
async def test_what_was_read_this_minute_needs_no_thread() -> None:
    read = await interval_of("what did I do yesterday", NOW)
    loop, ended = asyncio.get_running_loop(), ThreadPoolExecutor()
    ended.shutdown()
    loop.set_default_executor(ended)
    try:
        assert await interval_of("what did I do yesterday", NOW + timedelta(seconds=1)) == read
        with pytest.raises(RuntimeError, match="after shutdown"):
            await interval_of("what did I do yesterday", NOW + timedelta(days=1))
    finally:
        loop.set_default_executor(ThreadPoolExecutor())


@pytest.mark.parametrize(
    "query",
    [
        "Where does she live now?", "What is his current job?", "Does he still smoke?",
        "What has changed?", "What does she drive these days?", "Wo wohnt sie jetzt?", "Was ist der aktuelle Plan?",
        "Raucht er immer noch?", "¿Dónde vive ahora?", "¿Todavía fuma?", "Où habite-t-elle maintenant ?",
        "Quel est son travail actuel ?", "Dove abita adesso?", "Onde ela mora agora?", "她现在住在哪里？",
        "最新的计划是什么", "目前的工作", "今どこに住んでいる？", "最新の計画", "I forgot. Where does she live now?",
    ],
)  # fmt: skip
def test_a_query_for_what_holds_now(query: str) -> None:
    assert asked_order(query) == "present"


@pytest.mark.parametrize(
    ("statement", "over"),
    [
        ("I used to live in Trier.", True), ("My sister used to be a nurse", True),
        ("Previously Dr. Hale was my doctor.", True),
        ("Ich habe früher in Trier gewohnt", True), ("Antes vivía en Málaga.", True),
        ("Avant, j'habitais à Tours.", True),
        ("Prima abitavo a Pisa.", True), ("Antigamente morava no Porto.", True), ("我以前住在苏州。", True),
        ("私は以前奈良に住んでいました。", True), ("Una volta abitavo a Pisa.", True),
        ("Una volta al mese vado a Pisa.", False),
        ("I live in Bonn.", False), ("The key used to open the shed is rusty", False),
        ("Ann has replaced our previous manager Tom.", False), ("I used to live in Trier. I live in Bonn.", False),
        ("Früher war es 4711, jetzt ist es 9902.", False), ("Antes de comer me lavo las manos.", False),
        ("Antes del café no hablo.", False), ("Avant Noël, on part.", False), ("Prima di cena corro.", False),
        ("Prima volta a Roma", False), ("Antes do jantar leio.", False), ("八点以前要到。", False),
        ("9時以前に着く。", False),
        ("I used to live there. " * 200, False), ("", False),
    ],
)  # fmt: skip
def test_a_statement_says_that_it_is_over(statement: str, over: bool) -> None:
    assert is_over(statement) == over


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("What is the latest plan?", "latest"), ("What did Tim paint recently?", "latest"),
        ("What have I been up to lately?", "latest"), ("What did I decide last?", "latest"),
        ("what was the last book I read?", "latest"), ("her most recent job", "latest"),
        ("Was ist zuletzt passiert?", "latest"), ("她最近看了什么电影？", "latest"), ("最近見た映画は？", "latest"),
        ("What is my oldest memory?", "earliest"), ("Was ist meine älteste Notiz?", "earliest"),
        ("Where did Mira live before?", "earliest"), ("¿Dónde vivía antes?", "earliest"),
        ("¿Antes dónde vivía?", "earliest"), ("Who used to be my boss?", "earliest"),
        ("What did she use to play?", "earliest"),
        ("Wo habe ich früher gewohnt?", "earliest"), ("¿Dónde trabajaba antes de jubilarse?", "earliest"),
        ("Quel était son ancien métier ?", "earliest"), ("他以前住在哪里？", "earliest"),
        ("以前の仕事は？", "earliest"),
        ("What is this knife used to cut?", None), ("What do I need before Friday?", None),
        ("What did I do last week?", None), ("my last three days", None), ("what was her last name?", None),
        ("where was I the week before last?", None), ("What was the price before it changed?", "earliest"),
        ("Is the oldest plan still the latest?", None), ("What do I still have to do?", None),
        ("¿Qué tengo todavía que hacer?", None), ("Qui habite toujours ici ?", None), ("谁还在上海？", None),
        ("Wer wohnt immer noch in Kiel?", None), ("De qual aluno ainda espero o trabalho?", None),
        ("宿題をまだ出していないのは誰？", None), ("Chi lavora ancora qui?", None),
        ("Paul habite-t-il toujours à Lyon ?", "present"), ("A Ana ainda mora em Faro?", "present"),
        ("まだ東京に住んでいる？", "present"), ("小明还在上海吗？", "present"),
        ("Lavora ancora alle poste?", "present"), ("Per che ora è la sveglia?", None),
        ("Dove abita ora Renato?", "present"), ("Have I been to Oslo before?", None),
    ],
)  # fmt: skip
def test_a_query_for_the_newest_or_the_oldest(query: str, order: str | None) -> None:
    assert asked_order(query) == order


@pytest.mark.parametrize(
    "query",
    [
        "What happened yesterday?", "what did I do this morning", "Anything from last Sunday?", "yesterday",
        "What did I get done last week?", "upcoming events", "What is coming up?", "Was habe ich gestern gemacht?",
        "¿Qué hice ayer?", "Qu'est-ce que j'ai fait hier ?", "cosa ho fatto ieri", "o que eu fiz ontem?",
        "昨天发生了什么？", "昨日何をした？", "what happened recently", "What was the last thing I did?",
        "最近做了什么", "my oldest memory",
    ],
)  # fmt: skip
def test_a_query_of_a_time_alone_names_no_subject(query: str) -> None:
    interval = read_interval(query, NOW)
    assert not names_subject(query, interval.words if interval else "")


@pytest.mark.parametrize(
    "query",
    [
        "Which film did I watch yesterday?", "What did I sell in October?", "what did I decide last about the ledger?",
        "What happened?", "what did you do", "", "Was habe ich gestern gekocht?", "昨天谁打电话了？", "¿Qué comí ayer?",
        "Does she smoke still?", "¿Ana fuma todavía?", "Where did Mira live before?", "小明住在上海，仍？",
    ],
)  # fmt: skip
def test_a_query_with_a_subject_or_without_a_time_is_none(query: str) -> None:
    interval = read_interval(query, NOW)
    assert names_subject(query, interval.words if interval else "")


@pytest.mark.parametrize(
    "query",
    [
        "Where did she live in 2019?", "What does he know about snow?", "Who is Nowak?", "What did we eat yesterday?",
        "Wo hat sie 2019 gewohnt?", "Où habitait-elle en 2019 ?", "她2019年住在哪里？",
        "去年の夏", "今日の会議", "",
        "I'm back now. Where did we stop?", "现在天气真好。我们去哪儿了？", "I can't focus right now. It is hard.",
    ],
)  # fmt: skip
def test_other_queries_do_not(query: str) -> None:
    assert asked_order(query) is None


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("What did I do one hundred days ago?", "one hundred days ago"),
        ("Was war vor hundert Tagen?", "vor hundert Tagen"),
        ("What did I do one hundred and twenty days ago?", "one hundred and twenty days ago"),
        ("What did I do twenty-five days ago?", "twenty-five days ago"),
        ("a hundred and five days ago", "hundred and five days ago"),
        ("1 000 days ago", None),
        ("1,000 days ago", "1,000 days ago"),
    ],
)
def test_no_part_of_a_number_is_read_for_the_whole(query: str, words: str | None) -> None:
    interval = read_interval(query, NOW)
    assert (interval and interval.words) == words
