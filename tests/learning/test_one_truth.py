"""What is learned about the user is a fact about `@user`: it shows in the profile, and an undo works through both."""

import httpx
import pytest

from app.learning.extraction import is_user
from tests.conftest import Service
from tests.support.learning import end, talk, undo
from tests.support.memories import Json
from tests.support.model import Model

pytestmark = pytest.mark.anyio


async def profile(api: httpx.AsyncClient) -> Json:
    found: Json = (await api.get("/v1/users/u/profile")).json()
    return found


def lives(subject: str, home: str) -> Json:
    return {
        "subject": subject,
        "predicate": "lives_in",
        "object": home,
        "cardinality": "many",
        "at": None,
        "message_seqs": [1],
    }


async def test_a_learned_fact_shows_in_the_profile_and_goes_with_an_undo(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await api.patch("/v1/users/u/profile", json={"name": "Ada Lovelace"})
    rome = {"user_id": "u", "subject": "@user", "predicate": "lives_in", "object": "Rome", "valid_from": None}
    assert (await api.post("/v1/facts", json=rome)).status_code == 201
    await talk(service, "I live in Oslo.", "Noted.")
    llm.says["facts"] = {"facts": [lives("Ada", "Oslo")]}
    done = await end(service)
    assert (await profile(api))["home"] == "Oslo"
    after = (await api.patch("/v1/users/u/profile", json={"interests": ["engines"]})).json()
    assert after["home"] == "Oslo"
    undone = await undo(service, done["operation_id"])
    assert undone["result"]["not_restored"] == 0
    back = await profile(api)
    assert (back["home"], back["interests"]) == ("Rome", ["engines"])
    assert back["version"] > after["version"]


async def test_a_learned_profile_is_a_fact_with_its_quote(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    await talk(service, "I live in Oslo and I like tea.", "Noted.")
    llm.says["profile"] = {"home": "Oslo"}
    llm.says["facts"] = {"facts": [lives("user", "Oslo")]}
    done = await end(service)
    (fact,) = (await api.get("/v1/facts", params={"user_id": "u", "subject": "@user"})).json()["items"]
    assert (fact["object"], fact["cardinality"], fact["source"]["origin"]) == ("Oslo", "one", "extraction")
    assert fact["source"]["quote"]
    assert fact["source"]["session_id"] == "s"
    await undo(service, done["operation_id"])
    assert (await api.get("/v1/facts", params={"user_id": "u"})).json()["items"] == []
    answered = await api.get("/v1/users/u/profile")
    assert answered.status_code == 404 or answered.json()["home"] is None


async def test_all_parts_of_one_conversation_are_undone(service: Service, llm: Model, api: httpx.AsyncClient) -> None:
    before = (await api.patch("/v1/users/u/profile", json={"interests": ["engines"]})).json()
    await talk(service, "I live in Oslo and I like tea. I work as a nurse.", "Noted.")
    llm.says["profile"] = {"interests": ["tea"], "home": "Oslo"}
    nurse = {**lives("user", "nurse"), "predicate": "works_as"}
    llm.says["facts"] = {"facts": [lives("user", "Oslo"), nurse]}
    done = await end(service)
    after = await profile(api)
    assert (after["home"], after["occupation"], after["interests"]) == ("Oslo", "nurse", ["engines", "tea"])
    undone = await undo(service, done["operation_id"])
    assert undone["result"]["not_restored"] == 0
    back = await profile(api)
    same = {name: value for name, value in back.items() if name not in ("version", "updated_at")}
    assert same.items() <= before.items()
    assert back["version"] > after["version"]


async def test_a_home_that_somebody_states_afterwards_stays(
    service: Service, llm: Model, api: httpx.AsyncClient
) -> None:
    await talk(service, "I live in Oslo.", "Noted.")
    llm.says["profile"] = {"home": "Oslo"}
    done = await end(service)
    await api.patch("/v1/users/u/profile", json={"home": "Paris"})
    await undo(service, done["operation_id"])
    assert (await profile(api))["home"] == "Paris"


@pytest.mark.parametrize("subject", ["user", "The user", "I", "@user", "Ada", "ada lovelace", "Lovelace"])
def test_the_user_is_meant(subject: str) -> None:
    assert is_user(subject, ["Ada Lovelace", "u-17"])


@pytest.mark.parametrize("subject", ["Ada's brother", "Ada Lovelace Foundation", "users", "Ben", "", "brother"])
def test_another_is_meant(subject: str) -> None:
    assert not is_user(subject, ["Ada Lovelace", "u-17"])
