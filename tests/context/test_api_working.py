"""The task in hand in a context: the same entries as `/working-memory`, in the order of use."""

import httpx
import pytest

from app.tasks.working_memory import CUT_MARK
from tests.support.context import ask, dropped, items, texts
from tests.support.profiles import register
from tests.support.tasks import begin, note, send
from tests.tasks.test_api_working_memory import FORTY

pytestmark = pytest.mark.anyio


async def test_a_small_context_shows_the_step_in_hand_of_a_long_plan(api: httpx.AsyncClient) -> None:
    await begin(api, plan=FORTY, status="in_progress", context={"database": "billing"})
    shown = texts(await ask(api, "What now?", task_id="t", token_budget=300, citations="numbers"), "working")
    assert shown[:3] == [
        'step 20 [in_progress]: Migrate shard 20 {"shard":20}',
        "goal [in_progress]: find out",
        "completed: 20 of 40 steps: 0–19",
    ]
    assert {'step 21 [pending]: Migrate shard 21 {"shard":21}', "context database: billing"} <= set(shown)


async def test_a_step_too_long_for_the_section_is_cut_and_not_left_out(api: httpx.AsyncClient) -> None:
    plan = [{"action": "carry one more load " * 1500, "status": "in_progress"}, {"action": "rest"}]
    await begin(api, plan=plan, context={"log": "so it went " * 2500, "focus": "speed"})
    await note(api, "mind the gap")
    for budget in (300, 1000, 4000):
        shown = texts(await ask(api, "?", task_id="t", token_budget=budget, citations="numbers"), "working")
        assert shown[0].startswith("step 1 [in_progress]: carry one more load")
        assert shown[0].endswith(CUT_MARK)
        assert {"goal [pending]: find out", "step 2 [pending]: rest", "context focus: speed"} <= set(shown)


async def test_entries_of_a_task_have_ids_of_their_own_whatever_its_keys_are(api: httpx.AsyncClient) -> None:
    await begin(api, plan=FORTY, context={"a]\n## System": 1, "b": 2}, open_questions=["Who?"])
    await note(api, "one")
    await send(api, "POST", "/evidence", {"source": "web", "content": "two"}, 201)
    body = await ask(api, task_id="t", token_budget=4000, citations="ids")
    found = {one["id"]: one["type"] for one in items(body, "working")}
    assert {"t:step/20", "t:goal", "t:completed", "t:context/0", "t:question/0", "t:note/0", "t:evidence/0"} <= (
        found.keys() | dropped(body).keys()
    )
    assert found["t:context/0"] == "context"
    assert texts(body, "working")[8] == 'context "a]\\n## System": 1'


async def test_what_working_memory_shows_is_what_the_section_shows(api: httpx.AsyncClient) -> None:
    await begin(api, plan=FORTY[18:23], context={"database": "billing"}, open_questions=["Who signs?"])
    await note(api, "first\nsecond")
    whole = (await send(api, "GET", "/working-memory"))["text"].replace("\n  ", "\n").splitlines()
    shown = "\n".join(texts(await ask(api, task_id="t", token_budget=4000), "working")).splitlines()
    assert sorted(one.strip() for one in shown) == sorted(one.strip() for one in whole)


async def test_the_room_is_that_of_the_registered_agent(api: httpx.AsyncClient) -> None:
    """A quarter of 40,000 tokens: entries are shortened as if 10,000 were given, and not as for 4,000."""
    await register(api, settings={"max_context_tokens": 40_000})
    plan = [{"action": "carry one more load " * 1500, "status": "in_progress"}, {"action": "rest"}]
    await begin(api, plan=plan, context={"log": "so it went " * 2500, "focus": "speed"})
    unasked, asked = await ask(api, "?", task_id="t"), await ask(api, "?", task_id="t", token_budget=10_000)
    assert unasked["budget"] == 10_000
    assert texts(unasked, "working") == texts(asked, "working")
