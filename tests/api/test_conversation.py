"""Every operation answers as it declares to."""

from collections.abc import Iterator

import pytest

from app.settings import LLMSettings, Settings
from tests.conftest import Service
from tests.support.contract import Contract
from tests.support.conversation import Talk, whole_conversation
from tests.support.model import scripted_model

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(settings: Settings) -> Iterator[Settings]:
    """With a language model, without which two operations can only say that there is none."""
    with scripted_model() as model:
        yield settings.model_copy(update={"llm": LLMSettings(base_url=model.server.url)})


NOT_HELD_UP = {("erase_user", 202), ("extract_memories", 202)}
"""Answers to what takes longer than a request waits.

`tests/retention/test_erasure.py` and `tests/learning/test_extract_deadline.py` have them.
"""


async def test_every_operation_answers_what_it_declares(service: Service) -> None:
    contract = Contract(service.app)
    talk = Talk(service.client, contract)
    await whole_conversation(talk)
    assert talk.faults == []
    succeeded = {name for name, status in talk.statuses if status < 300}
    declared = {(op.name, int(status)) for op in contract.operations() for status in op.spec["responses"]}
    assert {op.name for op in contract.operations()} - succeeded == set(), "extend the conversation by these"
    assert {(name, status) for name, status in declared if status < 300} - NOT_HELD_UP <= talk.statuses
    assert set(talk.answers) <= set(contract.document["components"]["schemas"])


async def test_the_contract_sees_an_answer_that_breaks_it(service: Service) -> None:
    contract = Contract(service.app)
    operation = next(op for op in contract.operations() if op.name == "get_session_stats")
    await service.client.post("/v1/sessions", json={"session_id": "s", "agent_id": "a", "user_id": "u"})
    response = await service.client.get("/v1/sessions/s/stats")
    assert contract.check(operation, response) is None
    response._content = response.content.replace(b'"token_count":0', b'"token_count":-1,"extra":1')
    assert contract.check(operation, response) is not None
