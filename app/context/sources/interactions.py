"""Interactions that were recorded of a user, such as "Asked about an invoice": the last ones are told at a session's
start, and others compete with the agent's past actions. They are those with the agent of the context, and those that a
caller recorded for all agents: what a user said to another agent is not told."""

from dataclasses import replace

from app.context.candidates import Candidate
from app.context.repetition import same_text
from app.context.source import SourceRequest
from app.core.work import off_loop
from app.facts.outdated import Utterance
from app.facts.profile import USERS, Interaction
from app.facts.schemas import USER
from app.profiles.agents import overlaps
from app.profiles.users import recorded_interactions
from app.storage.repository import Repository
from app.storage.text import content_hash

MOST = 0.4
"""The score of an interaction that has all words of the query: that of a lesson, which is ranked by words, too."""

INTERACTION = "interaction"
"""Type of a candidate."""


async def interactions(request: SourceRequest) -> list[Candidate]:
    """Returns the user's interactions with the agent up to the time of the request, newest first, without scores.
    Nobody knows their trust, so there are none for a request that demands some."""
    body = request.body
    if body.user_id is None or body.min_trust is not None:
        return []
    user = await Repository(request.resources.store, request.scope, USERS).find_one(body.user_id)
    recorded = [] if user is None else await recorded_interactions(user, request.scope)
    happened = [
        interaction
        for interaction in recorded
        if _is_for(interaction, body.agent_id) and interaction["timestamp"] <= request.as_of
    ]
    happened.sort(key=lambda interaction: interaction["timestamp"], reverse=True)
    return [_item(interaction, request.day(interaction["timestamp"])) for interaction in happened]


def _is_for(interaction: Interaction, agent_id: str) -> bool:
    """Returns whether an agent may be told of it."""
    return interaction["agent_id"] in {None, agent_id}


def _item(interaction: Interaction, day: str) -> Candidate:
    """Returns a candidate such as "2026-05-28 interaction: Asked about an invoice → answered"."""
    at, summary, outcome = interaction["timestamp"], interaction["summary"], interaction["outcome"]
    text = summary if outcome is None else f"{summary} → {outcome}"
    return Candidate(
        f"interaction:{content_hash(f'{at} {text}')}",
        INTERACTION,
        text,
        prefix=f"{day} interaction: ",
        keys=frozenset({same_text(text)}),
        utterance=Utterance(at, USER),
        place=(at, 0),
    )


async def matching_interactions(request: SourceRequest) -> list[Candidate]:
    """Returns the interactions that share words with the query, best first."""
    items = await interactions(request)
    texts = [item.text for item in items]
    parts = await off_loop(sum(map(len, texts)), overlaps, request.body.query, texts)
    matching = [replace(item, score=MOST * part.share) for item, part in zip(items, parts, strict=True) if part.share]
    return sorted(matching, key=lambda item: -(item.score or 0.0))
