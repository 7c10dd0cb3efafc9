"""What we served in a prompt reaches no model that learns, and no summary."""

import httpx
import pytest

from tests.conftest import Service
from tests.context.test_api_served_again import ANOTHER, served_prompts
from tests.learning.test_extract import extract
from tests.support.learning import end
from tests.support.memories import Json
from tests.support.model import Model
from tests.support.reshaping import AFTER, BEFORE, SECRET, SHAPES

pytestmark = pytest.mark.anyio


async def tell(api: httpx.AsyncClient, session: str, served: list[str]) -> None:
    """A session of another user whose messages hold what was served, in every shape."""
    told = [{"role": "user", "content": shape(text)} for text in served for shape in SHAPES.values()]
    body = {**ANOTHER, "messages": told, "memorize": "extract"}
    answer = await api.post(f"/v1/sessions/{session}/messages", json=body)
    assert answer.status_code == 201, answer.text


async def test_no_model_is_shown_what_was_served(service: Service, llm: Model) -> None:
    served = await served_prompts(service.client)
    await tell(service.client, "s", served)
    assert (await end(service))["status"] == "succeeded"
    heard = [line["text"] for _, _, data in llm.asked for line in data.get("conversation", [])]
    assert len(heard) >= 2 * len(SHAPES)
    assert [text for text in heard if SECRET in text] == []
    assert [text for text in heard if not (BEFORE in text or AFTER in text)] == []
    assert {name for name, _, data in llm.asked if SECRET in str(data.get("conversation"))} == set()


async def test_an_extraction_is_not_shown_it_either(service: Service, llm: Model) -> None:
    served = await served_prompts(service.client)
    for name in ("quoted", "in JSON in JSON", "without its tags", "in a code fence"):
        await extract(service.client, SHAPES[name](served[0]), user_id="v")
    heard: list[Json] = [line for data in llm.shown("Statements") for line in data["conversation"]]
    assert len(heard) == 4
    assert SECRET not in str(heard)
    assert all(BEFORE in line["text"] and AFTER in line["text"] for line in heard)
