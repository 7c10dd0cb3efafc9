"""The kinds of jobs, and the lane of each.

Lanes are worked at the same time, one job of each at once, so that a slow model delays only the work that waits for it.
Layers above run the jobs; those below queue them by these names alone.
"""

from collections.abc import Mapping

POST_CONVERSATION = "post_conversation"
SUMMARIZE = "summarize"
CONSOLIDATION = "consolidation"
RETENTION = "retention"
EMBED_PENDING = "embed_pending"
DECAY = "decay"
EXPIRY = "expiry"
FORGET = "forget"
UNDO = "undo"

Lane = str | None
"""As a job stores it."""

LANGUAGE_MODEL: Lane = "language_model"
EMBEDDING_MODEL: Lane = "embedding_model"
ORDINARY: Lane = None
"""Jobs that wait for no model, and those that an earlier version queued: they store no lane."""
LANES: tuple[Lane, ...] = (LANGUAGE_MODEL, EMBEDDING_MODEL, ORDINARY)

_LANE_OF: Mapping[str, Lane] = {
    POST_CONVERSATION: LANGUAGE_MODEL,
    SUMMARIZE: LANGUAGE_MODEL,
    CONSOLIDATION: LANGUAGE_MODEL,
    RETENTION: LANGUAGE_MODEL,  # it asks for summaries of days
    EMBED_PENDING: EMBEDDING_MODEL,
    DECAY: ORDINARY,
    EXPIRY: ORDINARY,
    FORGET: ORDINARY,
    UNDO: ORDINARY,
}


def lane_of(kind: str) -> Lane:
    return _LANE_OF.get(kind, ORDINARY)
