"""The part of the conversation about tasks, actions, people, agents and background work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.conversation import Talk

OWNER: dict[str, Any] = {"agent_id": "support", "user_id": "ada"}


async def documents(talk: Talk) -> None:
    kind = {"content-type": "text/markdown"}
    about: dict[str, Any] = {"name": "fern.md", "user_id": OWNER["user_id"]}
    sent = await talk("create_document", 202, body=b"# Ferns\nWater them.", headers=kind, **about)
    await talk("create_document", 415, body=b"x", headers={"content-type": "image/png"}, **about)
    await talk("create_document", 422, body=b"", headers=kind, **about)
    named = {"document_id": sent["document_id"]}
    await talk("get_document", **named)
    await talk("list_documents", name="fern.md")
    await talk("delete_document", 204, **named)
    await talk("get_document", 404, **named)


async def tasks(talk: Talk) -> None:
    steps = [{"action": "search", "params": {"a.b": {"$c": None}}}, {"action": "read"}]
    task = {"task_id": "compare", **OWNER, "goal": "Compare vector stores", "plan": steps, "checkpoint_every": 1}
    await talk("create_task", 201, body=task)
    await talk("create_task", 409, body=task)
    named: dict[str, Any] = {"task_id": "compare"}
    await talk("update_task", **named, body={"status": "in_progress"})
    await talk("update_task", 409, **named, body={"status": "pending"})
    await talk("update_task_context", **named, body={"a.b": {"$c": ""}, "": 1, "gone": None})
    await talk("put_task_plan", **named, body={"plan": steps})
    await talk("update_task_step", **named, index=0, body={"status": "completed", "result": ["two stores"]})
    await talk("update_task_step", 404, **named, index=9, body={"status": "completed"})
    await talk("add_task_note", 201, **named, body={"content": "Recall matters most", "priority": 2.0})
    await talk("add_task_evidence", 201, **named, body={"source": "paper", "content": "0.83 at ten"})
    await talk("get_working_memory", **named, max_tokens=1000)
    await talk("create_checkpoint", 201, **named, body={"label": "halfway"})
    await talk("list_checkpoints", **named, limit=1)
    await talk("get_checkpoint", **named, seq=-1)
    await talk("get_checkpoint", 404, **named, seq=99)
    await talk("restore_task", **named, body={"seq": 1})
    await talk("restore_task", 404, **named, body={"seq": 99})
    await talk("update_task", **named, body={"status": "in_progress", "open_questions": ["Who signs?"]})
    await talk("update_task", **named, body={"status": "completed"})
    await talk("restore_task", 409, **named, body={"seq": 1})
    await talk("restore_task", **named, body={"seq": 1, "reopen": True})
    await talk("get_task", **named)
    await talk("list_tasks", **OWNER, limit=1)
    await talk("delete_task", 204, **named)
    await talk("get_task", 404, **named)


async def actions(talk: Talk) -> None:
    call = {"tool": "payments.refund", "input": {"order": 17}, "output": {"ok": True}, "duration_ms": 150.0}
    action = {**OWNER, "action_type": "refund", "outcome": "success", "action": call, "entities": ["order-17"]}
    made = await talk("log_action", 201, body={**action, "content": "Refunded order 17: the parcel was lost"})
    await talk("log_actions", 201, body={"items": [action, {**action, "outcome": None}]})
    named: dict[str, Any] = {"action_id": made["action_id"]}
    await talk("give_feedback", **named, body={"user_rating": 5, "was_helpful": True})
    await talk("get_action", **named)
    await talk("list_actions", **OWNER, limit=1)
    await talk("search_actions", body={**OWNER, "query": "lost parcel", "only_successful": True})
    await talk("get_action_stats", agent_id="support", group_by="day", tz="Europe/Berlin")
    await talk("get_action_stats", agent_id="support")
    await talk("get_action_stats", 422, agent_id="support", tz="Nowhere/Land")


async def facts(talk: Talk) -> None:
    home = {**OWNER, "subject": "Ada", "predicate": "lives_in"}
    since = {"object": "New York", "valid_from": "2019-01-01T00:00:00Z"}
    await talk("assert_fact", 201, body={**home, **since})
    await talk("assert_fact", 200, body={**home, **since})
    made = await talk("assert_fact", 201, body={**home, "object": "Boston", "valid_from": "2026-05-01T00:00:00Z"})
    weak = await talk("assert_fact", 201, body={**home, "object": "Paris", "trust": 0.3})
    knows = {**OWNER, "subject": "Ada", "predicate": "knows", "cardinality": "many"}
    await talk("assert_facts", 201, body={"items": [{**knows, "object": name} for name in ("Ben", "Cleo")]})
    await talk("list_facts", **OWNER, subject="ada", as_of="2020-01-01T00:00:00Z")
    await talk("list_facts", **OWNER, status="any", timeline=True, limit=1)
    await talk("list_facts", 422, timeline=True, as_of="2020-01-01T00:00:00Z")
    await talk("list_entities", **OWNER, prefix="a")
    await talk("get_neighbors", **OWNER, name="Ada", depth=2)
    await talk("get_neighbors", 422, name="Ada")
    await talk("query_graph", body={**OWNER, "start": "Ada", "path": ["lives_in"]})
    await talk("query_graph", 422, body={**OWNER, "start": "Ada", "path": []})
    await talk("declare_aliases", 201, name="Ada Lovelace", body={**OWNER, "aliases": ["Ada", "Countess Lovelace"]})
    await talk("declare_aliases", 200, name="Ada Lovelace", body={**OWNER, "aliases": ["Ada"]})
    await talk("declare_aliases", 422, name="Ada", body={**OWNER, "aliases": ["ada"]})
    await talk("list_aliases", **OWNER, name="Ada", status="any")
    await talk("get_entity", **OWNER, name="Ada", limit=2)
    await talk("dismiss_alias", **OWNER, name="Ada Lovelace", alias="Countess Lovelace")
    await talk("dismiss_alias", 404, **OWNER, name="Ada Lovelace", alias="Nobody")
    await talk("search_facts", body={**OWNER, "query": "Where does she live?", "top_k": 2})
    await talk("resolve_fact", 422, fact_id=weak["fact_id"], body={"keep": "nonsense"})
    await talk("resolve_fact", fact_id=weak["fact_id"], body={"keep": made["fact_id"]})
    await talk("resolve_fact", 409, fact_id=weak["fact_id"], body={"keep": "both"})
    named: dict[str, Any] = {"fact_id": made["fact_id"]}
    await talk("get_fact", **named)
    await talk("get_fact_history", **named)
    await talk("retract_fact", 412, **named, headers={"If-Match": '"9"'})
    await talk("retract_fact", **named)
    await talk("delete_fact", 204, **named)
    await talk("get_fact", 404, **named)
    merged = {**OWNER, "subject": "Ada", "predicate": "drinks", "object": "green tea", "on_conflict": "merge"}
    await talk("assert_fact", 202, body=merged)


async def procedures(talk: Talk) -> None:
    steps = ["Look up the tracking number", "Ask the carrier", "Refund the order"]
    refund = {**OWNER, "name": "Refund a lost parcel", "trigger": "A parcel never arrived", "steps": steps}
    made = await talk("create_procedure", 201, body={**refund, "preconditions": ["The order was paid"]})
    await talk("create_procedure", 409, body=refund)
    named: dict[str, Any] = {"procedure_id": made["procedure_id"]}
    await talk("record_outcome", 201, **named, body={"success": True})
    failed = {"success": False, "note": "The carrier answers after 9 only", "task_id": "compare"}
    await talk("record_outcome", 201, **named, body=failed, headers={"Idempotency-Key": "outcome-1"})
    await talk("record_outcome", 201, **named, body=failed, headers={"Idempotency-Key": "outcome-1"})
    await talk("update_procedure", **named, body={"steps": [*steps, "Tell the customer"]})
    await talk("update_procedure", 412, **named, body={"tags": []}, headers={"If-Match": '"1"'})
    await talk("get_procedure_history", **named, limit=1)
    await talk("get_procedure", **named)
    await talk("list_procedures", **OWNER, limit=1)
    await talk("record_outcome", 201, **named, body=failed)
    await talk("search_procedures", body={**OWNER, "situation": "lost parcel", "explain": True})
    await talk("search_procedures", body={**OWNER, "situation": "lost parcel", "min_success_rate": 0.9})
    await talk("search_procedures", 422, body={"situation": "of whom?"})
    await talk("delete_procedure", 204, **named)
    await talk("get_procedure", 404, **named)


async def contexts(talk: Talk) -> None:
    asked = {**OWNER, "query": "Where does she live?", "system_prompt": "You are kind."}
    await talk("assemble_context", body=asked)
    await talk("assemble_context", body={**asked, "format": "messages", "citations": "numbers", "token_budget": 60})
    await talk("assemble_context", body={**asked, "sections": {"memories": {"share": 0.5, "limit": 2}}})
    await talk("assemble_context", 422, body={**asked, "include": ["nonsense"]})


async def people(talk: Talk) -> None:
    ada: dict[str, Any] = {"user_id": "ada"}
    await talk("get_profile", 404, user_id="nobody")
    await talk("put_profile", **ada, body={"name": "Ada", "interests": ["climbing"], "custom": {"a.b": {"$c": 1}}})
    await talk("update_profile", **ada, body={"home": "Boston", "interests": ["tea"]})
    await talk("get_profile", **ada)
    await talk("list_users", limit=1)
    await talk("get_user", **ada)
    await talk("add_interaction", 201, **ada, body={"summary": "Asked about an invoice", "outcome": "answered"})
    await talk("list_interactions", **ada)
    issue = await talk("add_issue", 201, **ada, body={"description": "Cannot log in since the update"})
    await talk("update_issue", **ada, issue_id=issue["issue_id"], body={"status": "resolved"})
    await talk("list_issues", **ada, limit=1)
    await talk("add_solution", 201, **ada, body={"problem": "Cannot log in", "fix": "Cleared the cache"})
    await talk("add_solution", 200, **ada, body={"problem": "Cannot log in", "fix": "Cleared the cache"})
    await talk("list_solutions", **ada, limit=1)


async def erasing(talk: Talk) -> None:
    """In the end: everything about ada goes."""
    assert await talk("export_user", user_id="ada")
    await talk("erase_user", user_id="ada")
    await talk("erase_user", user_id="nobody")


async def agents(talk: Talk) -> None:
    agent = {"agent_id": "support", "name": "Support", "settings": {"decay": {"factor": 0.9}}}
    await talk("create_agent", 201, body=agent)
    await talk("create_agent", 409, body=agent)
    named: dict[str, Any] = {"agent_id": "support"}
    await talk("update_agent", **named, body={"description": "Answers customers"})
    await talk("update_experience", **named, body={"heuristics": ["Ask for the order number first."]})
    await talk("get_experience", **named)
    await talk("create_agent", 201, body={"agent_id": "second", "name": "Second"})
    await talk("copy_experience", agent_id="second", body={"from_agent_id": "support"})
    await talk("copy_experience", 422, agent_id="second", body={"from_agent_id": "second"})
    await talk("get_experience_prompt", **named, user_id="ada", max_tokens=2000)
    await talk("get_agent", **named)
    await talk("list_agents", limit=1)
    await talk("delete_agent", 204, **named)


async def background(talk: Talk) -> None:
    await talk("list_jobs")
    await talk("run_job", 202, name="decay", body={"dry_run": True})
    await talk("run_job", 404, name="nonsense", body={})
    await talk("create_memory", 201, body={**OWNER, "content": "The old office was in Quincy"})
    policy = {"older_than_days": 0.0, "types": ["fact"]}
    await talk("forget_memories", 200, body={**OWNER, "policy": policy})
    begun = await talk("forget_memories", 202, body={**OWNER, "policy": policy, "dry_run": False})
    named: dict[str, Any] = {"operation_id": begun["operation_id"]}
    await _ended(talk, begun["operation_id"])
    await talk("undo_operation", 202, **named)
    await talk("list_operations", limit=1)
    await talk("get_stats")


async def findings(talk: Talk) -> None:
    for subject in ("Ben", "Zoe"):
        said = {"subject": subject, "predicate": "works_at", "cardinality": "one"}
        await talk("assert_fact", 201, body={**OWNER, **said, "object": "Acme"})
        await talk("assert_fact", 201, body={"user_id": OWNER["user_id"], **said, "object": "Initech"})
    await talk("reflect", 422, body={"focus": " "})
    begun = await talk("reflect", 202, body=OWNER)
    await _ended(talk, begun["operation_id"])
    await talk("list_findings", 422, kind="rumour")
    found = (await talk("list_findings", **OWNER))["items"]
    first, second, *_ = (one["finding_id"] for one in found)
    await talk("get_finding", finding_id=first)
    await talk("get_finding", 404, finding_id="find_none")
    await talk("accept_finding", finding_id=first)
    await talk("accept_finding", 409, finding_id=first)
    await talk("dismiss_finding", 412, finding_id=second, headers={"If-Match": '"99"'})
    await talk("dismiss_finding", finding_id=second)
    await talk("dismiss_finding", 404, finding_id="find_none")
    await talk("list_changes", 422, kind="rumour")
    await talk("list_changes", **OWNER, include="record")


async def _ended(talk: Talk, operation_id: str) -> None:
    for _ in range(900):
        if (await talk("get_operation", operation_id=operation_id))["status"] == "succeeded":
            break
        await asyncio.sleep(0.1)


async def administering(talk: Talk) -> None:
    """From the first key on, nobody is served without one."""
    await talk("create_key", 422, body={"name": "all", "verbs": ["fly"]})
    made = await talk("create_key", 201, body={"name": "all", "verbs": ["read", "write", "admin"]})
    me: dict[str, Any] = {"headers": {"Authorization": f"Bearer {made['key']}"}}
    await talk("list_keys", 401)
    await talk("whoami", **me)
    await talk("list_settings", **me)
    bot = await talk("create_key", 201, **me, body={"name": "bot", "verbs": ["read"], "users": ["ada"]})
    named: dict[str, Any] = {"key_id": bot["id"]}
    await talk("get_key", **me, **named)
    await talk("get_key", 404, **me, key_id="0" * 16)
    await talk("rotate_key", 201, **me, **named, body={"overlap_seconds": 60})
    await talk("rotate_key", 409, **me, **named, body={})
    await talk("revoke_key", 412, **named, headers=me["headers"] | {"If-Match": '"1"'})
    await talk("revoke_key", **me, **named)
    await talk("list_keys", **me, limit=1)
    await talk("list_audit", **me, limit=1)
    await talk("list_audit", **me, action="create_memory", record_id="ada", since="2020-01-01T00:00:00Z")
