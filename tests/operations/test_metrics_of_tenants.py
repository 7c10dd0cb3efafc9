"""`/metrics` names no tenant to who has no key. Tried against the port of a service."""

from pathlib import Path

from tests.support.server import recalld, serving

USED = """
import runpy, sys
from app.metrics import LLM_USAGE
LLM_USAGE.labels("acme-gmbh", "calls").inc(3)
LLM_USAGE.labels("other-inc", "calls").inc(4)
LLM_USAGE.labels("other-inc", "tokens").inc(50)
sys.argv = ["recalld", "serve"]
runpy.run_module("app.cli", run_name="__main__")
"""
"""`recalld serve` of a service that has called a language model for two tenants."""


def made_key(data: Path, *arguments: str) -> dict[str, str]:
    made = recalld(data, "keys", "create", "--tenant", "acme-gmbh", "--name", "k", *arguments)
    return {"X-API-Key": next(word for word in made.stdout.split() if word.startswith("rk_"))}


def test_what_is_counted_by_tenant_is_summed_for_who_has_no_admin_key(tmp_path: Path) -> None:
    data = tmp_path / "data"
    admin = made_key(data, "--verbs", "read,write,admin")
    bound = made_key(data, "--verbs", "admin", "--user", "ada")
    reader = made_key(data, "--verbs", "read")
    with serving(data, command=("-c", USED)) as server:
        for headers in ({}, bound, reader):
            text = server.client.get("/metrics", headers=headers).text
            assert "acme-gmbh" not in text
            assert "other-inc" not in text
            assert 'recalld_llm_usage_total{kind="calls"} 7.0' in text
            assert 'recalld_llm_usage_total{kind="tokens"} 50.0' in text
            assert "recalld_stored_records" in text
        text = server.client.get("/metrics", headers=admin).text
        assert 'recalld_llm_usage_total{kind="calls",tenant="acme-gmbh"} 3.0' in text
        assert server.client.get("/metrics", headers={"X-API-Key": "rk_wrong"}).status_code == 401
