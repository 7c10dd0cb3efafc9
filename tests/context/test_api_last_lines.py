"""What a context says at a session's start of the last sessions where nobody wrote summaries: their own lines."""

from collections.abc import Sequence

import pytest

from tests.conftest import Service
from tests.support.context import ask, dropped, entries, headings, items, problem_free, texts
from tests.support.learning import end
from tests.support.memories import Json
from tests.support.sessions import append, said

pytestmark = pytest.mark.anyio

HELLO = "hey there"
VAN = [
    "The van goes in for its MOT at Kelso's garage on Friday",
    "The MOT at Kelso's costs 54 pounds, and the van needs two new tyres for it",
    "Kelso's garage says that the van is ready after the MOT at four",
    "By the way, Mina sings in a choir",
    "Do I pay for the MOT in cash?",
]
BOAT = ["The boat lies at Portsoy", "We paint the boat in May", "The boat has a blue sail"]


async def talked(service: Service, session: str, lines: Sequence[str], day: int, role: str = "user") -> None:
    """A session of some day of May that has ended."""
    await append(service.client, said(*lines, role=role, timestamp=f"2026-05-{day:02}T08:00:00Z"), session)
    await end(service, session)


def lines_of(body: Json) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for entry in entries(body, "summary"):
        found.setdefault(entry.heading, []).append(entry.text)
    return found


async def test_a_session_without_a_summary_is_told_by_the_statements_that_say_most_of_it(service: Service) -> None:
    await talked(service, "before", VAN, 3)
    body = problem_free(await ask(service.client, HELLO, session_id="new"))
    assert lines_of(body) == {"2026-05-03": [f"user: {line}" for line in VAN[:3]]}
    assert [one["type"] for one in items(body, "summary")] == ["message"] * 3


async def test_the_last_three_sessions_are_told_the_latest_first_and_each_in_its_order(service: Service) -> None:
    for day, name in enumerate(("first", "second", "third", "fourth"), start=1):
        await talked(service, name, [f"The {name} parcel is {word}" for word in ("red", "blue")], day)
    body = problem_free(await ask(service.client, HELLO, session_id="new"))
    assert headings(body, "summary") == ["2026-05-04", "2026-05-03", "2026-05-02"]
    assert lines_of(body)["2026-05-04"] == ["user: The fourth parcel is red", "user: The fourth parcel is blue"]
    await append(service.client, said("one", "two", "three"), "new")
    assert texts(await ask(service.client, HELLO, session_id="new"), "summary") == [], "it is under way"


async def test_a_summary_stands_for_its_session_before_lines_do(service: Service) -> None:
    await talked(service, "before", VAN, 3)
    await service.client.patch("/v1/sessions/before", json={"summary": "The van passed its MOT."})
    await talked(service, "later", BOAT, 4)
    body = problem_free(await ask(service.client, HELLO, session_id="new"))
    assert texts(body, "summary")[0] == "session of 2026-05-03: The van passed its MOT."
    assert headings(body, "summary") == ["2026-05-04"], "what has no heading stands before those that have one"
    assert set(lines_of(body)["2026-05-04"]) == {f"user: {line}" for line in BOAT}


async def test_the_lines_stand_whatever_was_asked(service: Service) -> None:
    await talked(service, "before", [*VAN, *BOAT, "Ida's birthday is the ninth of June"], 3)
    body = problem_free(await ask(service.client, "Where does the boat lie?", session_id="new"))
    assert len(lines_of(body)["2026-05-03"]) == 3
    assert "The boat lies at Portsoy" in body["text"]


async def test_a_line_stands_once(service: Service) -> None:
    api = service.client
    await talked(service, "before", VAN, 3)
    await talked(service, "again", VAN[:1], 4)
    body = problem_free(await ask(api, HELLO, session_id="new", fill=True, min_score=0))
    assert all(body["text"].count(line) == 1 for line in VAN)
    assert lines_of(body)["2026-05-04"] == [f"user: {VAN[0]}"], "the latest stands"
    assert "duplicate" in dropped(body).values()


async def test_neither_another_user_nor_another_agent_nor_no_session_is_told_the_lines(service: Service) -> None:
    api = service.client
    await talked(service, "before", VAN, 3)
    for fields in ({"user_id": "v", "session_id": "new"}, {"agent_id": "b", "session_id": "new"}, {}):
        assert texts(await ask(api, HELLO, **fields), "summary") == []


async def test_what_a_session_still_says_only_to_itself_is_no_line(service: Service) -> None:
    api = service.client
    await append(api, said(*VAN, timestamp="2026-05-03T08:00:00Z"), "open")
    await append(api, said(*BOAT, timestamp="2026-05-03T08:00:00Z"), "private", memorize="none")
    await end(service, "private")
    await talked(service, "answers", BOAT, 3, role="assistant")
    assert "message" not in {one["type"] for one in items(await ask(api, HELLO, session_id="new"), "summary")}


async def test_what_was_forgotten_is_no_line(service: Service) -> None:
    api = service.client
    await talked(service, "before", VAN, 3)
    shown = items(await ask(api, HELLO, session_id="new"), "summary")
    await api.delete(f"/v1/memories/{shown[0]['id']}")
    body = problem_free(await ask(api, HELLO, session_id="new"))
    assert VAN[0] not in body["text"]
    assert [one["id"] for one in shown[1:]] == [one["id"] for one in items(body, "summary")][:2]


async def test_the_lines_keep_their_part_of_the_budget(service: Service) -> None:
    await talked(service, "before", [f"{line}, and {'so ' * 30}on" for line in VAN], 3)
    body = problem_free(await ask(service.client, HELLO, session_id="new", token_budget=600))
    (section,) = (one for one in body["sections"] if one["name"] == "summary")
    assert section["tokens"] <= 60
    limited = await ask(service.client, HELLO, session_id="new", sections={"summary": {"limit": 1}})
    assert len(texts(limited, "summary")) == 1


async def test_lines_with_a_value_that_was_replaced_are_marked(service: Service) -> None:
    api = service.client
    await talked(service, "before", ["I live in Stromness now, in a flat above the harbour"], 3)
    for since, value in ((None, "Stromness"), ("2026-05-20T00:00:00Z", "Kirkwall")):
        fact = {"user_id": "u", "subject": "@user", "predicate": "lives_in", "object": value, "valid_from": since}
        assert (await api.post("/v1/facts", json=fact)).status_code == 201
    body = problem_free(await ask(api, HELLO, session_id="new"))
    (line,) = texts(body, "summary")
    assert line == "user: I live in Stromness (home since 2026-05-20: Kirkwall) now, in a flat above the harbour"
