"""The benchmark of learning: its models, its judge, and one run with two conversations."""

import json
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import ROOT
from benchmarks.learned import right_items
from benchmarks.learned.judging import Derived, Judgement, invented, judge, quoted
from benchmarks.learned.made_up_models import INVENTED, echo, liar, scripted
from benchmarks.learned.meter import Json, completion, recorded
from benchmarks.learned.sets import Conversation, Forbidden, load, says
from benchmarks.learned.small_talk import TURNS, small_talk
from benchmarks.learning import (
    DEV,
    Result,
    add_options,
    dropped_row,
    measure,
    part_rows,
    run,
    sample,
    small_talk_section,
    total_row,
)

SAMPLE = ROOT / "tests" / "data" / "learning_sample.json"
ENGLISH, GERMAN = load(SAMPLE)


# --- Sets -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words", "there"),
    [
        ("I'm allergic to Hazelnuts.", ("allerg", "nuts"), True),
        ("I eat doughnuts.", ("nut",), False),
        ("I eat a nut.", ("nut",), True),
        ("Ich wohne in Köln.", ("koln", "wohne"), True),
        ("我住在北京", ("北京",), True),
        ("I eat.", ("eat", "nuts"), False),
        ("I don't keep bees.", ("n't", "bees"), True),
        ("She\u2019d like bees.", ("'d", "bees"), True),
        ("I knot the rope.", ("not",), False),
    ],
)
def test_words_stand_in_a_text_in_any_order(text: str, words: tuple[str, ...], there: bool) -> None:
    assert says(text, words) is there


def test_a_forbidden_text_is_allowed_by_a_word_of_unless() -> None:
    one = Forbidden(("allergic", "penicillin"), ("brother",))
    assert one.met_by("The user is allergic to penicillin.")
    assert not one.met_by("The user's brother is allergic to penicillin.")


def test_a_conversation_of_another_shape_is_named(tmp_path: Path) -> None:
    given = json.loads(SAMPLE.read_text(encoding="utf-8"))
    given["conversations"][1]["must"][0]["part"] = "dream"
    file = tmp_path / "set.json"
    file.write_text(json.dumps(given), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"conversation 1 \(sample-de\).*part is 'dream'"):
        load(file)


# --- The judge --------------------------------------------------------------------------------------------------------


def judged(talk: Conversation, *derived: Derived) -> Judgement:
    result = Judgement()
    judge(talk, derived, result)
    return result


def test_a_record_is_right_unlisted_or_invented() -> None:
    found = judged(
        ENGLISH,
        Derived("memory", "The user is vegetarian.", "I'm vegetarian"),
        Derived("memory", "The brother is allergic to penicillin.", "Sounds good"),
        Derived("memory", "The user is up early.", "Hi"),
        Derived("fact", "ada allergic_to penicillin", "is allergic to penicillin", "penicillin"),
    )
    memory, fact = found.parts["memory"], found.parts["fact"]
    assert (memory.must, memory.found, memory.stored, memory.right, memory.misquoted) == (2, 2, 3, 2, 1)
    assert (fact.stored, fact.right, fact.invented, found.invented) == (1, 0, 1, 1)
    assert found.junk == 0.5
    assert "sample-en: missing fact: ('live', 'Leeds')" in found.faults


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (Derived("memory", "The user has 3 nurses in 48213."), "number 48213"),
        (Derived("memory", "The user met Bartholomew."), "name Bartholomew"),
        (Derived("memory", "The user wants an aisle seat."), "must not: aisle"),
        (Derived("profile", "home Zanzibar", value="Zanzibar"), "Zanzibar"),
        (Derived("profile", "home Leeds", value="Leeds"), None),
        (Derived("memory", "On 17 May 2026 Ada cooks in Leeds."), None),
        (Derived("memory", "Her brother Max is allergic to penicillin."), None),
        (Derived("summary", "How about a lentil curry? The user takes an aisle seat."), "must not"),
        (
            Derived("summary", "assistant: I can also suggest an aisle seat at the Tandoori in Bradford."),
            None,
        ),
    ],
)
def test_what_nobody_said_is_invented(one: Derived, why: str | None) -> None:
    found = invented(ENGLISH, one)
    assert (found is None) if why is None else (found is not None and why in found)


def test_only_whole_words_are_quoted() -> None:
    assert quoted("user: I live in Leeds.", "i live in leeds and work")
    assert not quoted("I live in Lisbon.", "i live in leeds and work")


# --- Models -----------------------------------------------------------------------------------------------------------


def test_the_scripted_model_quotes_what_must_be_learned() -> None:
    told = scripted(GERMAN)
    (fact,) = [one for one in told["statements"] if "predicate" in one]
    assert fact == {
        "quote": "Ich wohne in Köln und arbeite als Lehrer.",
        "subject": "jonas",
        "text": "Ich wohne in Köln und arbeite als Lehrer.",
        "kind": "fact",
        "certainty": "stated",
        "holds": "now",
        "importance": 0.6,
        "predicate": "wohne_in",
        "object": "Köln",
    }
    assert [one["profile_field"] for one in told["statements"] if "profile_field" in one] == ["home"]
    assert "Ich trinke keinen Kaffee, lieber Tee." in {one["quote"] for one in told["statements"]}


def test_the_liar_claims_what_must_not_be_learned_behind_real_and_invented_quotes() -> None:
    told = liar(ENGLISH)
    claims = len(ENGLISH.must_not) + len(INVENTED)
    assert len(told["statements"]) == 4 * claims, "a fact and a value of the profile"
    real = [one for one in told["statements"] if one["quote"] in ENGLISH.text]
    assert len(real) == 2 * claims


def test_the_echo_repeats_every_line() -> None:
    told = echo(ENGLISH)
    assert [one["text"] for one in told["statements"][::2]] == [message["content"] for message in ENGLISH.messages]


def test_small_talk_is_the_same_each_time_and_says_nothing() -> None:
    talks = small_talk()
    assert sum(len(talk.messages) for talk in talks) == TURNS
    assert talks == small_talk()
    assert {message["role"] for message in talks[0].messages} == {"user", "assistant"}


# --- Runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
def test_right_answers_are_learned_and_lies_are_not() -> None:
    right, wrong = (measure(name, [ENGLISH, GERMAN]) for name in ("scripted", "liar"))
    assert total_row(right) | {"s": 0, "model s": 0, "tokens in": 0, "tokens out": 0} == {
        "model": "scripted",
        "recall": "1.00",
        "junk": "0.00",
        "invented": 0,
        "needed in prompts": "2 of 2",
        "forbidden in prompts": "0 of 2",
        "unfinished": 0,
        "calls": 2.0,
        "tokens in": 0,
        "cached": 0,
        "tokens out": 0,
        "model s": 0,
        "s": 0,
    }
    assert [row["part"] for row in part_rows(right)] == ["memory", "fact", "profile", "summary"]
    assert dropped_row(right)["dropped"] == 0
    assert dropped_row(wrong)["not_quoted"] > 10, "quotes that stand nowhere"
    assert dropped_row(wrong)["not_said"] > 0, "numbers that nobody said"


@pytest.mark.timeout(120)
def test_right_items_are_kept_as_worded_and_wrong_ones_go_with_the_second_look() -> None:
    sets = right_items.load(right_items.DEV)[1:3]
    looked, lied = (
        right_items.measure(stage, sets, 60)
        for stage in right_items.STAGES
        if stage.name in ("+ second look", "fields and second look lie")
    )
    assert (looked.kept, looked.wrong_stored, looked.forbidden, looked.small_talk) == (looked.emitted, 0, [], 0)
    assert looked.as_worded >= looked.emitted - 2
    assert lied.wrong_stored > 0, "who lies in both answers is believed"
    assert lied.dropped["not_said"] + lied.dropped["not_quoted"] > 0


def test_a_service_that_stores_lies_misses_its_target() -> None:
    lied = Result("liar")
    judge(ENGLISH, [Derived("profile", "home Zanzibar", value="Zanzibar")], lied.judged)
    assert (total_row(lied)["invented"], total_row(lied)["junk"]) == (1, "1.00")
    assert not small_talk_section([replace(lied, outcomes=[])]).rows[0]["derived"]


def test_recorded_answers_are_given_again_without_the_model(tmp_path: Path) -> None:
    asked: list[Json] = []

    def model(body: Json) -> Json:
        asked.append(body)
        return completion(f"answer {len(asked)}", body)

    path = tmp_path / "folder" / "answers.jsonl"
    one, other = ({"messages": [{"role": "user", "content": text}]} for text in ("a", "b"))
    first = recorded(model, path)
    given = [first(one), first(one), first(other)]
    again = recorded(model, path)
    assert [again(one), again(one), again(other)] == given
    assert asked == [one, other]


def test_a_number_may_begin_with_a_zero() -> None:
    talk = replace(ENGLISH, messages=({"role": "user", "content": "Ring me on 555 0134."},), must_not=())
    assert invented(talk, Derived("memory", "Ring me on 555 0134.")) is None
    assert invented(talk, Derived("memory", "Ring me on 555 0135.")) == "number 0135"


@pytest.mark.parametrize("option", ["--set", "--data"])
def test_any_set_of_conversations_is_run(option: str, tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    given = json.loads(SAMPLE.read_text(encoding="utf-8"))
    path.write_text(json.dumps({"conversations": given["conversations"][:1]}), encoding="utf-8")
    parser = ArgumentParser()
    add_options(parser)
    parts, totals, _ = run(parser.parse_args([option, str(path), "--model", "none"]))
    assert parts.title == "1 conversations: parts"
    assert [row["model"] for row in totals.rows] == ["none"]


def test_a_sample_has_all_languages_in_turn() -> None:
    talks = load(DEV)
    few = sample(talks, 6)
    assert len({talk.language for talk in few}) == 6
    assert sample(talks, None) == talks
    assert {talk.id for talk in sample(talks, len(talks))} == {talk.id for talk in talks}


def test_an_extract_that_quotes_both_speakers_is_told_from_a_claim() -> None:
    talk = replace(
        load(DEV)[0],
        messages=({"role": "user", "content": "another"}, {"role": "assistant", "content": "My cat lives in Rome."}),
        must_not=(Forbidden(("cat", "Rome"), ()),),
    )
    quoted_, claimed = "(extract) user: another assistant: My cat lives in Rome.", "The user has a cat in Rome."
    assert invented(talk, Derived("summary", quoted_)) is None
    assert invented(talk, Derived("summary", claimed)) is not None
