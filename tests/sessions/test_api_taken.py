"""Who may not make a session or task learns nothing from its id: taken or not, the answer is the same."""

import pytest

from tests.conftest import Service
from tests.support.memories import PAIR, problem

pytestmark = pytest.mark.anyio


async def test_an_id_that_is_taken_answers_as_one_that_is_free(service: Service) -> None:
    api, owner, bound = service.client, await service.key(), await service.key(users=["nobody"])
    said = {**PAIR, "messages": [{"role": "user", "content": "hi"}]}
    assert (await api.post("/v1/sessions/taken/messages", json=said, headers=owner)).status_code == 201
    task = {**PAIR, "goal": "g"}
    assert (await api.post("/v1/tasks", json={**task, "task_id": "taken"}, headers=owner)).status_code == 201
    for name in ("taken", "free"):
        problem(await api.post(f"/v1/sessions/{name}/messages", json=said, headers=bound), 403)
        problem(await api.post("/v1/sessions", json={**PAIR, "session_id": name}, headers=bound), 403)
        problem(await api.post("/v1/tasks", json={**task, "task_id": name}, headers=bound), 403)
