"""The bounds of the sections of a prompt."""

from datetime import UTC, datetime
from typing import cast

import pytest

from app.context.layout import GatheredSection, PromptPlan, bounded_section
from app.context.schemas import ContextRequest
from app.context.source import SourceRequest, SourceResult, part_of
from app.context.sources.person_and_agent import PROFILE_SOURCE
from app.context.sources.session import WORKING_PART, WORKING_SOURCE
from app.resources import Resources
from app.storage.scope import Scope


@pytest.mark.parametrize(("budget", "share", "tokens"), [(1_000, None, 120), (100, 0.29, 29), (1_000, 0.001, 1)])
def test_a_share_is_the_decimal_that_is_written(budget: int, share: float | None, tokens: int) -> None:
    bounds = {} if share is None else {"profile": {"share": share}, "working": {"share": share}}
    body = ContextRequest.model_validate({"query": "x", "agent_id": "a", "sections": bounds})
    request = SourceRequest(body, Scope("default"), cast(Resources, None), datetime(2026, 6, 1, tzinfo=UTC), budget)
    plan = PromptPlan(body, budget, "general", unsure=False, asks_anything=True)
    assert bounded_section(plan, GatheredSection(PROFILE_SOURCE, request, SourceResult())).max_tokens == tokens
    if share is not None:
        assert int(WORKING_SOURCE.max_tokens_in(body, budget, part_of(budget, WORKING_PART))) == tokens
