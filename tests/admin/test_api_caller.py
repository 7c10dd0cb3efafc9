"""What a key may do, and the settings in force."""

from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from app.settings import Settings
from tests.conftest import Service, Starter
from tests.support.memories import problem
from tests.support.server import recalld, serving

pytestmark = pytest.mark.anyio


@pytest.mark.before_store
async def test_a_caller_learns_what_its_key_may_do(service: Service, api: httpx.AsyncClient) -> None:
    nobody = (await api.get("/v1/whoami")).json()
    assert nobody == {
        "tenant": "default", "key_id": "anonymous", "verbs": ["read", "write", "admin"], "agents": None, "users": None,
        "language_model": False,
    }  # fmt: skip
    bound = await service.key(tenant="acme", verbs="read", users=["bob", "ada"])
    found = (await api.get("/v1/whoami", headers=bound)).json()
    assert (found["tenant"], found["verbs"], found["agents"], found["users"]) == (
        "acme",
        ["read"],
        None,
        ["ada", "bob"],
    )
    problem(await api.get("/v1/whoami"), 401, "unauthorized")


@pytest.mark.before_store
async def test_an_admin_reads_the_settings_without_the_secrets(start: Starter, settings: Settings) -> None:
    secret = "s" * 40
    async with start(settings.model_copy(update={"docs": "off", "erasure_key": SecretStr(secret)})) as service:
        admin = await service.key(verbs="read,admin")
        answer = await service.client.get("/v1/settings", headers=admin)
        assert secret not in answer.text
        rows = {row["name"]: row for row in answer.json()["items"]}
        assert (rows["RECALLD_DOCS"]["value"], rows["RECALLD_DOCS"]["changed"]) == ("off", True)
        key = rows["RECALLD_ERASURE_KEY"]
        assert (key["value"], key["default"], key["secret"], key["changed"]) == ("set", "", True, True)
        assert (rows["RECALLD_QUOTAS_RECORDS"]["value"], rows["RECALLD_LLM_API_KEY"]["value"]) == ("0", "")
        bound = await service.key(verbs="read,admin", users=["ada"])
        problem(await service.client.get("/v1/settings", headers=bound), 403, "forbidden")


async def test_the_operator_reads_addresses_and_paths_until_there_is_a_key(service: Service) -> None:
    def value(answer: httpx.Response) -> str:
        return next(str(row["value"]) for row in answer.json()["items"] if row["name"] == "RECALLD_DATA_DIR")

    assert "/" in value(await service.client.get("/v1/settings"))
    assert value(await service.client.get("/v1/settings", headers=await service.key(verbs="read,admin"))) == "set"


def test_the_admin_of_a_tenant_reads_no_address_or_path_of_the_operators(tmp_path: Path) -> None:
    """Tried against the port of a service."""
    data = tmp_path / "zanzibar"
    (tmp_path / "key").write_text("zanzibar")
    given = {
        "RECALLD_LLM_BASE_URL": "http://zanzibar.internal:8080/v1?key=zanzibar",
        "RECALLD_EMBEDDING_BASE_URL": "http://zanzibar.internal/v1",
        "RECALLD_RERANKER": "http://zanzibar.internal/rerank?key=zanzibar",
        "RECALLD_TRUSTED_PROXIES": "10.77.0.0/16",
        "RECALLD_ALLOWED_HOSTS": "zanzibar.internal",
        "RECALLD_MONGODB_DATABASE": "zanzibar",
        "RECALLD_QUOTAS_RECORDS": "77",
    }
    made = recalld(data, "keys", "create", "--tenant", "acme", "--name", "a", "--verbs", "read,write,admin")
    key = next(word for word in made.stdout.split() if word.startswith("rk_"))
    with serving(data, **given) as server:
        answer = server.client.get("/v1/settings", headers={"X-API-Key": key})
        assert answer.status_code == 200
        assert "zanzibar" not in answer.text
        assert "10.77.0.0" not in answer.text
        rows = {row["name"]: row for row in answer.json()["items"]}
        for name in given.keys() - {"RECALLD_QUOTAS_RECORDS"}:
            assert (rows[name]["value"], rows[name]["secret"], rows[name]["changed"]) == ("set", True, True)
        assert rows["RECALLD_DATA_DIR"]["value"] == "set"
        assert (rows["RECALLD_QUOTAS_RECORDS"]["value"], rows["RECALLD_DOCS"]["value"]) == ("77", "open")
