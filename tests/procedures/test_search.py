"""The best of all that a search could bring, however many it brings at once."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from app.core.clock import rfc3339
from app.procedures.service import LEAST_CANDIDATES, best, ranked_procedures, track_record_of
from app.retrieval.retriever import Hit
from app.storage.schema import Doc
from app.storage.search import Memo

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def hit(at: int, relevance: float, outcomes: list[bool], idle_days: float = 0) -> Hit:
    then = rfc3339(NOW - timedelta(days=idle_days))
    doc: Doc = {
        "procedure_id": f"proc_{at:04}",
        "success_count": outcomes.count(True),
        "failure_count": outcomes.count(False),
        "recent_outcomes": [{"success": one} for one in outcomes],
        "last_used": then if outcomes else None,
        "created_at": then,
        "updated_at": then,
    }
    return Hit(doc, Memo(), relevance)


@pytest.mark.parametrize(("many", "k"), [(0, 1), (1, 5), (64, 1), (65, 3), (300, 1), (300, 20), (300, 100)])
async def test_what_works_is_found_wherever_its_relevance_puts_it(many: int, k: int) -> None:
    """Relevance falls so slowly that what stands at the end may still be the best."""
    luck = random.Random(many)
    hits = [hit(at, 0.5 - at * 0.0005, luck.choices((True, False), k=luck.randrange(9))) for at in range(many)]
    asked = []

    async def find(wanted: int) -> list[Hit]:
        asked.append(wanted)
        return hits[:wanted]

    found = await best(find, k, NOW)
    assert [one.hit for one in found] == [one.hit for one in ranked_procedures(hits, NOW)[:k]]
    assert len(asked) <= 3


async def test_what_cannot_be_the_best_is_not_fetched() -> None:
    hits = [hit(at, 0.5 * 0.9**at, [True]) for at in range(300)]
    asked = []

    async def find(wanted: int) -> list[Hit]:
        asked.append(wanted)
        return hits[:wanted]

    assert len(await best(find, 5, NOW)) == 5
    assert asked == [LEAST_CANDIDATES]


def test_what_was_just_changed_is_fresh() -> None:
    doc = hit(0, 1, [True], idle_days=300).doc
    assert track_record_of(doc, NOW).stale
    assert not track_record_of(doc | {"updated_at": rfc3339(NOW)}, NOW).stale
    assert track_record_of(doc, NOW - timedelta(days=400)).idle_days == 0
