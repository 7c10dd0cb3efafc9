"""Who may not make a session or task learns nothing from its id: taken or not, the answer is the same."""

import pytest

from tests.conftest import Service
from tests.support.memories import OWNER, problem

pytestmark = pytest.mark.anyio


async def test_an_id_that_is_taken_answers_as_one_that_is_free(service: Service) -> None:
    api, owner, bound = service.client, await service.key(), await service.key(users=["nobody"])
    said = {**OWNER, "messages": [{"role": "user", "content": "hi"}]}
    assert (await api.post("/v1/sessions/taken/messages", json=said, headers=owner)).status_code == 201
    task = {**OWNER, "goal": "g"}
    assert (await api.post("/v1/tasks", json={**task, "task_id": "taken"}, headers=owner)).status_code == 201
    for name in ("taken", "free"):
        problem(await api.post(f"/v1/sessions/{name}/messages", json=said, headers=bound), 403)
        problem(await api.post("/v1/sessions", json={**OWNER, "session_id": name}, headers=bound), 403)
        problem(await api.post("/v1/tasks", json={**task, "task_id": name}, headers=bound), 403)


async def test_an_id_of_a_record_outside_the_bindings_answers_as_every_request_for_it(service: Service) -> None:
    """A conflict would say that somebody has it."""
    api, owner, bound = service.client, await service.key(), await service.key(users=["v"])
    said = {**OWNER, "messages": [{"role": "user", "content": "hi"}]}
    assert (await api.post("/v1/sessions/taken/messages", json=said, headers=owner)).status_code == 201
    assert (await api.post("/v1/tasks", json={**OWNER, "goal": "g", "task_id": "taken"}, headers=owner)).is_success
    mine = {**OWNER, "user_id": "v"}
    for path, body in (
        ("/v1/sessions/taken/messages", {**said, **mine}),
        ("/v1/sessions", {**mine, "session_id": "taken"}),
        ("/v1/tasks", {**mine, "goal": "g", "task_id": "taken"}),
    ):
        collection = path.split("/")[2]
        elsewhere = problem(await api.get(f"/v1/{collection}/taken", headers=bound), 404, "not_found")
        refused = problem(await api.post(path, json=body, headers=bound), 404, "not_found")
        told = {name: value for name, value in refused.items() if name != "request_id"}
        assert told == {name: value for name, value in elsewhere.items() if name != "request_id"}
        problem(await api.post(path, json=body, headers=owner), 409, "already_exists")
