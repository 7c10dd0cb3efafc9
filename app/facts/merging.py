"""Merging facts by a language model that an assertion asks for: the operation that does it, and which facts the
assertion contends with."""

from dataclasses import dataclass
from datetime import datetime

from app.core.clock import Clock, rfc3339
from app.facts.aliases import AliasRepository
from app.facts.conflict_resolution import OPEN_END, ValidSpan
from app.facts.drafts import assertion_of, draft_of, least_start, require_single
from app.facts.ledger import Ledger, statement
from app.facts.models import FactRecord
from app.facts.repository import FactRepository
from app.facts.schemas import FactCreate
from app.jobs import queue
from app.jobs.models import MERGE_FACT
from app.llm.base import LLM, configured
from app.storage.scope import Scope
from app.writes.executor import IfMatch, WriteResult


def queued(scope: Scope, body: FactCreate, precondition: IfMatch, llm: LLM | None, now: datetime) -> WriteResult:
    """Returns 202 with the operation that asserts a fact and merges it with those that it contends with. Raises
    LLMNotConfigured, Forbidden or Invalid; nothing is written then."""
    precondition.check(None)
    draft = draft_of(plain(body), {})
    agent, user = draft["agent_id"], draft["user_id"]
    scope.require_write(agent, user)
    configured(llm)
    payload = {"body": body.model_dump(mode="json", exclude_unset=True), **scope.bindings()}
    operation, changes = queue.start(scope, MERGE_FACT, payload, now, agent_id=agent, user_id=user)
    return WriteResult(operation, changes, 202)


def plain(body: FactCreate) -> FactCreate:
    """Returns the assertion as it is made where nothing is merged. Raises Invalid."""
    return require_single(body.model_copy(update={"on_conflict": "temporal"}))


@dataclass(frozen=True, slots=True)
class Contended:
    """What an assertion meets: its draft, the span for which it is made, and the facts that it contends with."""

    draft: FactRecord
    span: ValidSpan
    rivals: list[FactRecord]

    def union(self) -> tuple[str | None, str | None]:
        """Returns the start and the end of the time that the assertion and its rivals cover together."""
        spans = [self.span, *(statement(rival).span for rival in self.rivals)]
        start, end = min(span.start for span in spans), max(span.end for span in spans)
        return start or None, None if end == OPEN_END else end


async def contended(facts: FactRepository, body: FactCreate, clock: Clock) -> Contended:
    """Returns the undisputed facts of another object that an assertion contends with, the earliest first."""
    draft, now = draft_of(body, {}), rfc3339(clock.now())
    aliases = await AliasRepository(facts.store, facts.scope).of_owner(draft["agent_id"], draft["user_id"])
    assertion = assertion_of(body, draft, aliases)
    span = ValidSpan(least_start(assertion, now), assertion.end)
    near = await facts.near(aliases.groups(draft), span, list(aliases.keys(draft["object_key"])))
    ledger = Ledger(await facts.group(draft["group_id"]), near, now)
    is_many = ledger.usual == "many" or await facts.takes_many(
        draft["agent_id"], draft["user_id"], draft["predicate_key"]
    )
    usual = assertion.cardinality or ("many" if is_many else "one")
    others = [fact for fact in near if fact["standing"] == "held" and aliases.object_of(fact) != assertion.object[0]]
    rivals = [fact for fact in others if usual == fact["cardinality"] == "one" and statement(fact).span.overlaps(span)]
    return Contended(draft, span, sorted(rivals, key=lambda fact: fact["valid_from"] or ""))
