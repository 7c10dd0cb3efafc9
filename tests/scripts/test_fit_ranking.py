"""The fit finds the numbers that made-up data was drawn with, and its cases are what the service would rank."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from app.embedding.factory import DEFAULT_MODEL
from app.retrieval.calibration import KNEE, describe
from app.retrieval.model_weights import Blend, CalibrationFactors, Foreign, Weights
from app.retrieval.query import SettledQuery
from app.retrieval.ranking import FEATURES
from app.storage.search import Floats
from app.storage.text import SAID_BY_ASSISTANT, SAID_BY_USER, name_id
from benchmarks.evaluation.ranking_cases import Case, Embedder, as_plain, build_cases, mixed, small
from benchmarks.evaluation.sets import Item, Question, World
from scripts.fit_ranking import (
    FEATURES_OF,
    LEAST_VECTOR,
    LIKELY,
    OTHERS,
    TERMS,
    candidates,
    design,
    evaluate,
    figures,
    fit_calibration,
    fit_terms,
    forms,
    odds_of,
    of_ranking,
    score_of,
    weights_of,
)
from tests.support.columns import columns_of, rank

Drawn: TypeAlias = tuple[Case, Floats]
BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def embed() -> Embedder:
    return Embedder(None)


# --- Made-up cases ----------------------------------------------------------------------------------------------------


def made_up(
    random: np.random.Generator, n: int, *, fold: int = 0, group: str = "made up", foreign: float = 0.0
) -> Case:
    """A third each: turns of a person, turns of an assistant, plain memories; features are drawn evenly."""
    kind = np.arange(n) % 3
    columns = replace(
        columns_of(n, np.where(kind == 2, -1, np.arange(n))),
        cosine=random.random(n, dtype=np.float32),
        speaker=np.choose(kind, [name_id("Ada"), name_id("assistant"), 0]),
        flags=np.choose(kind, [SAID_BY_USER, SAID_BY_ASSISTANT, 0]),
        previous=np.full(n, -1),
        following=np.full(n, -1),
    )
    known = random.random((len(FEATURES), n), dtype=np.float32)
    question = Question("?", ("an answer",), n, group, "kind")
    query = SettledQuery(np.zeros(0, np.uint32), 0, foreign)
    return Case(group, fold, question, query, columns, known, known[0], np.zeros(n, np.bool_), None)


def answered_by(case: Case, index: int) -> Case:
    evidence = np.zeros(len(case.evidence), np.bool_)
    evidence[index] = True
    return replace(case, evidence=evidence)


def test_conditional_logit_recovers_the_weights_that_the_answers_were_drawn_with() -> None:
    random = np.random.default_rng(1)
    true = np.zeros(len(TERMS))
    for term, value in {
        ("person", "vector_scaled"): 2.0,
        ("person", "question"): -2.0,
        ("person", "speaker"): 1.5,
        ("assistant", "vector_scaled"): 4.0,
        ("assistant", "base"): -1.0,
        ("plain", "coverage"): 3.0,
        ("plain", "base"): 0.5,
        ("foreign", "vector_scaled"): LEAST_VECTOR,
    }.items():
        true[TERMS.index(term)] = value
    cases = []
    for number in range(1500):
        case = made_up(random, 30, fold=number % 3)
        odds = design(case, np.arange(30)) @ true
        part = np.exp(odds - odds.max())
        cases.append(answered_by(case, int(random.choice(30, p=part / part.sum()))))
    data = of_ranking(cases, {"made up": 1.0})
    found = data.fit()
    assert found == pytest.approx(true, abs=0.6)
    assert np.abs(found - true).mean() < 0.15
    without = data.fit(without=0)
    assert without == pytest.approx(true, abs=0.6)
    assert without.tolist() != found.tolist(), "the fold is left out"


def test_a_set_of_weight_zero_is_not_fitted_on() -> None:
    random = np.random.default_rng(2)
    cases = [answered_by(made_up(random, 30), number % 30) for number in range(60)]
    others = [answered_by(made_up(random, 30, group="judged"), 0) for _ in range(60)]
    alone = of_ranking(cases, {"made up": 1.0}).fit()
    both = of_ranking([*cases, *others], {"made up": 1.0, "judged": 0.0}).fit()
    assert both == pytest.approx(alone, abs=1e-4)


def test_of_a_large_scope_some_documents_stand_for_the_rest() -> None:
    case = answered_by(made_up(np.random.default_rng(3), 1_000), 777)
    rows, stand_for = candidates(case)
    assert len(rows) == len(set(rows.tolist())) < 1_000
    assert stand_for.sum() == pytest.approx(1_000)
    assert stand_for[rows.tolist().index(777)] == 1, "evidence stands for itself"
    assert set(np.argsort(-case.base)[:LIKELY].tolist()) <= set(rows.tolist())
    every, alone = candidates(made_up(np.random.default_rng(3), LIKELY + OTHERS))
    assert (len(every), set(alone.tolist())) == (LIKELY + OTHERS, {1.0})


def test_the_fitted_numbers_give_the_odds_that_they_were_fitted_for() -> None:
    """`design` times the numbers is what the service computes with the weights made of them, but those set by hand."""
    random = np.random.default_rng(4)
    case = made_up(random, 30, foreign=0.5)
    found = np.round(random.normal(size=len(TERMS)), 2)
    found[TERMS.index(("when", "when"))] = 0
    weights = replace(weights_of(found), echo=0, filler=0)
    assert odds_of(case, weights) == pytest.approx(design(case, np.arange(30)) @ found, abs=1e-3)
    names = {name for name in FEATURES_OF["plain"] if getattr(weights.plain, name)}
    assert names == set(FEATURES_OF["plain"])


def drawn(
    random: np.random.Generator, true: CalibrationFactors, count: int, foreign: float, *, plain: bool
) -> list[Drawn]:
    """Cases in which each document is evidence as often as `true` says, with the odds of their documents."""
    pairs = []
    for number in range(count):
        case = made_up(random, 6, foreign=foreign, fold=number % 2)
        columns = columns_of(6, np.full(6, -1 if plain else 0))
        case = replace(case, columns=replace(columns, cosine=case.columns.cosine))
        odds = (5 * random.random(6)).astype(np.float32)
        nearest, coverage, share, both = describe(case.columns, case.query, case.known, ...)
        part = odds - np.log(np.exp(odds).sum())
        logit = true.base + true.share * np.maximum(part, KNEE) + true.tail * np.minimum(part - KNEE, 0)
        logit += true.nearest * nearest + true.coverage * coverage + true.foreign * share
        logit += true.foreign_coverage * both
        evidence = random.random(6) < 1 / (1 + np.exp(-logit))
        pairs.append((replace(case, evidence=evidence), odds))
    return pairs


def test_the_calibration_recovers_the_sigmoid_that_the_outcomes_were_drawn_with() -> None:
    random = np.random.default_rng(5)
    true = CalibrationFactors(
        base=-2.0, share=1.2, tail=0.6, nearest=3.0, coverage=1.0, foreign=2.0, foreign_coverage=-1.0
    )
    pairs = [*drawn(random, true, 3_000, 0.0, plain=True), *drawn(random, true, 3_000, 1.0, plain=True)]
    found = fit_terms(pairs, {"made up": 1.0})
    for name in ("share", "tail", "nearest", "coverage"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), abs=0.5), name
    assert found.foreign + found.foreign_coverage == pytest.approx(1.0, abs=0.7)


def test_turns_and_plain_memories_are_calibrated_apart_and_a_score_is_as_often_right_as_it_says() -> None:
    random = np.random.default_rng(6)
    turn, plain = (
        CalibrationFactors(base=-1.0, share=0.7, nearest=2.0),
        CalibrationFactors(base=1.0, share=1.5, coverage=-2.0),
    )
    pairs = [*drawn(random, turn, 2_500, 0.0, plain=False), *drawn(random, plain, 2_500, 0.0, plain=True)]
    cases, odds = [case for case, _ in pairs], [of for _, of in pairs]
    found = fit_calibration(cases, odds, {"made up": 1.0})
    assert found.turn.nearest == pytest.approx(turn.nearest, abs=0.5)
    assert found.plain.coverage == pytest.approx(plain.coverage, abs=0.5)
    for of in (pairs[:2_500], pairs[2_500:]):
        scores = np.array([score_of(case, each, found).max() for case, each in of])
        right = np.array([case.evidence[int(np.argmax(each))] for case, each in of])
        for part in np.array_split(np.argsort(scores), 5):
            assert scores[part].mean() == pytest.approx(right[part].mean(), abs=0.07)
    assert fit_calibration(cases, odds, {"made up": 1.0}, without=0) != found


def test_figures_are_of_the_order_by_score() -> None:
    case = made_up(np.random.default_rng(7), 30)
    evidence = np.zeros(30, np.bool_)
    evidence[[3, 8]] = True
    score = -np.arange(30, dtype=np.float32)
    score[8] = -100
    assert figures(replace(case, evidence=evidence), score) == [0, 0.5, 0.5, 0.5, 0.25]


# --- Forms of a set ---------------------------------------------------------------------------------------------------


def turn(text: str, session: str, role: str = "user", name: str | None = None, minute: int = 0) -> Item:
    return Item(text, BEGIN + timedelta(minutes=minute), session, role, name)


TALK = (
    turn("I adopted a cat named Miso.", "a"),
    turn("Lovely! Is she black?", "a", "assistant", minute=1),
    turn("She is grey, and two years old.", "a", minute=2),
    turn("My flight to Lisbon leaves on Friday.", "b", minute=60),
    turn("I set a reminder for your flight.", "b", "assistant", minute=61),
)
ASKED = (
    Question("What is the name of the cat?", (TALK[0].content,), 5, "chats", "fact"),
    Question("Which colour is the cat?", (TALK[2].content, TALK[0].content), 5, "chats", "fact"),
    Question("What did you do about the flight?", (TALK[4].content,), 5, "chats", "assistant"),
    Question("How tall is her brother?", (), 5, "chats", "never said"),
    Question("Where does the flight go?", (TALK[3].content,), 4, "chats", "fact"),
)
WORLD = World("w", TALK, ASKED)


def test_as_plain_memories_what_the_assistant_says_is_gone_and_so_are_questions_that_only_it_answers() -> None:
    plain = as_plain(WORLD)
    assert [item.content for item in plain.items] == [TALK[0].content, TALK[2].content, TALK[3].content]
    assert {item.session for item in plain.items} == {None}
    assert all(question.after == 3 for question in plain.questions)
    assert {question.query for question in plain.questions} == {ASKED[at].query for at in (0, 4)}, "of every second one"
    named = replace(WORLD, items=tuple(replace(item, name=item.role) for item in TALK))
    assert [item.content for item in as_plain(named).items] == [item.content for item in TALK]


def test_in_part_plain_only_a_users_turns_leave_their_session_and_evidence_stays() -> None:
    nothing, everything, some = mixed(WORLD, share=0.0), mixed(WORLD, share=1.0), mixed(WORLD, share=0.5)
    assert [item.session for item in nothing.items] == [item.session for item in TALK]
    assert [item.session for item in everything.items] == [None, "a", None, None, "b"]
    assert mixed(WORLD, share=0.5) == some, "which ones is the same each time"
    for made in (nothing, everything, some):
        assert [item.content for item in made.items] == [item.content for item in TALK]
        assert made.questions == tuple(replace(question, after=min(question.after, 5)) for question in ASKED[::2])


def test_small_scopes_hold_an_answer_in_about_half_of_them_and_say_which() -> None:
    facts = tuple(Item(f"Fact number {number}.") for number in range(20))
    questions = tuple(Question(f"{at}?", (facts[at % 20].content,), 20, "facts", "k") for at in range(300))
    worlds = list(small(World("w", facts, questions)))
    assert len(worlds) == 100
    answered = 0
    for world in worlds:
        (question,) = world.questions
        contents = [item.content for item in world.items]
        assert 1 <= len(contents) == len(set(contents)) == question.after <= 6
        asked = facts[int(question.query[:-1]) % 20].content
        assert question.evidence == ((asked,) if asked in contents else ())
        answered += bool(question.evidence)
    assert 40 <= answered <= 80


def test_a_set_of_conversations_comes_in_three_forms_and_one_of_facts_as_it_is() -> None:
    names = [form.name for form in forms([WORLD])]
    assert names == ["chats", "chats, in part plain", "chats, plain"]
    fact = World("w", (Item("Keeps bees."),), (Question("?", ("Keeps bees.",), 1, "never_dev", "en"),))
    assert [(form.name, form.worlds) for form in forms([fact])] == [("never_dev", [fact])]


def test_of_stories_of_echo_those_are_left_out_in_which_the_bot_says_the_answer() -> None:
    worlds = [
        replace(WORLD, name=bot, questions=(Question("?", (TALK[0].content,), 5, "echo_dev", bot),))
        for bot in ("answers", "acknowledges", "does_not_know")
    ]
    (form,) = forms(worlds)
    assert [world.name for world in form.worlds] == ["acknowledges", "does_not_know"]


# --- Cases ------------------------------------------------------------------------------------------------------------


def cases_of(worlds: Sequence[World], embed: Embedder) -> list[Case]:
    return list(build_cases("g", worlds, embed, folds=2))


def test_a_case_is_the_scope_as_it_is_known_when_it_is_asked(embed: Embedder) -> None:
    first, *_, last = cases_of([WORLD], embed)
    assert first.evidence.tolist() == [True, False, False, False, False]
    assert first.columns.session.tolist() == [0, 0, 0, 1, 1]
    assert first.columns.following.tolist() == [1, 2, -1, 4, -1]
    assert first.columns.flags[1] & SAID_BY_ASSISTANT
    assert int(np.argmax(first.columns.cosine)) in {0, 2}
    assert last.evidence.tolist() == [False, False, False, True]
    assert last.columns.count == len(last.columns.rows) == 4
    assert last.columns.following.tolist() == [1, 2, -1, -1], "what follows is not known yet"
    assert last.known.shape == (len(FEATURES), 4)


def test_worlds_share_a_fold_by_their_number(embed: Embedder) -> None:
    assert [case.fold for case in cases_of([WORLD, WORLD, WORLD], embed)] == [0] * 5 + [1] * 5 + [0] * 5


def test_a_question_about_time_is_read_at_the_time_of_its_world(embed: Embedder) -> None:
    items = (Item("The old plan.", BEGIN - timedelta(days=1)), Item("The new plan.", BEGIN))
    question = Question("What was planned yesterday?", ("The old plan.",), 2, "time", "k")
    (case,) = cases_of([World("w", items, (question,), now=BEGIN.isoformat())], embed)
    assert case.interval is not None
    start, end = case.interval
    assert start <= case.columns.time[0] < end <= case.columns.time[1]
    values = design(case, np.arange(2))[:, TERMS.index(("when", "when"))]
    assert values[0] == 1 > values[1]


def test_the_services_own_ranking_has_the_same_odds(embed: Embedder) -> None:
    """Without the priors, which are not fitted."""
    blend = Blend(vector_scaled=2, text_scaled=1, coverage=1, session=1, neighbour=1, question=-1, length=-1)
    weights = Weights(blend, replace(blend, base=-1), replace(blend, base=1), Foreign(), importance=0, recency=0)
    for case in cases_of([WORLD, as_plain(WORLD), mixed(WORLD, share=0.5)], embed):
        ranked = rank(case.columns, case.query, "hybrid", int(BEGIN.timestamp() * 1000) + 10**8, weights)
        odds = odds_of(case, weights)
        assert ranked.order.tolist() == sorted(range(len(odds)), key=lambda at: (-odds[at], -case.columns.time[at]))
        assert case.columns.plain[ranked.order].sum() == (case.columns.session < 0).sum()


# --- The whole run ----------------------------------------------------------------------------------------------------


def written(path: Path, name: str, questions: Sequence[tuple[str, list[str]]]) -> Path:
    """Four users who say the same of themselves, and are asked the same."""
    items = [
        {"id": f"i{at}", "session": item.session, "role": item.role, "content": item.content}
        | {"timestamp": (item.time or BEGIN).isoformat()}
        for at, item in enumerate(TALK)
    ]
    asked = [{"query": query, "evidence": evidence, "kind": "k"} for query, evidence in questions]
    talks = [{"id": f"c{at}", "kind": "messages", "items": items, "questions": asked} for at in range(4)]
    path.write_text(json.dumps({"name": name, "conversations": talks}))
    return path


def test_a_run_prints_a_line_for_each_form_and_numbers_to_paste(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = [("What is the name of the cat?", ["i0"]), ("Who is her brother?", []), ("Which flight?", ["i3"])]
    fitted = written(tmp_path / "chats.json", "chats", questions)
    judged = written(tmp_path / "others.json", "others", questions[:1])
    cache = tmp_path / "vectors.npz"
    evaluate([fitted], [judged], cache, folds=2)
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in lines if line.startswith("| ")}
    forms_of = ("chats", "chats, in part plain", "chats, plain")
    assert list(rows) == [
        "set",
        *forms_of,
        "others (not fitted on)",
        "others, vector",
        "others, text",
        "all questions together",
    ]
    assert [rows[name][1] for name in forms_of] == ["12", "8", "8"]
    assert float(rows["others, vector"][2]) == 1.0, "recall@1"
    (numbers,) = tomllib.loads("\n".join(lines[lines.index(f"[{DEFAULT_MODEL}.weights]") :])).values()
    assert numbers["weights"]["person"]["vector_scaled"] > 0
    assert "base" in numbers["calibration"]["plain"]
    with np.load(cache, allow_pickle=True) as stored:
        kept = set(stored["texts"].tolist())
    assert kept >= {item.content for item in TALK}
