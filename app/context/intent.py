"""What the query wants, as far as what was found tells it.

The intent and the line that nothing surely answers follow from scores alone, so they are the same in every language.
Whether the query asks for anything follows from its vector and from how rare its words are (`app/retrieval/asking.py`).
"""

from collections.abc import Mapping, Sequence

from app.context.gathering import Gathered
from app.context.schemas import Intent
from app.retrieval.query_evidence import QueryEvidence

ANSWERS = 0.2
"""Minimum score of a section that answers a query."""


def infer(best: Mapping[str, float], *, has_task: bool) -> Intent:
    """Returns the intent. `best`: the highest score of each section.

    It is execute if a procedure answers best or a task is named, recall if another kind of memory answers, else
    general.
    """
    answering = {name: score for name, score in best.items() if score >= ANSWERS}
    if has_task or (answering and max(answering, key=lambda name: answering[name]) == "procedures"):
        return "execute"
    return "recall" if answering else "general"


def best_scores(sections: Sequence[Gathered]) -> dict[str, float]:
    """Returns the highest score of each section, 0 of one without scores."""
    return {section.section: max((item.score or 0.0 for item in section.items), default=0.0) for section in sections}


def is_unsure(sections: Sequence[Gathered], best: Mapping[str, float], below: float) -> bool:
    """Returns whether no entry surely answers: all sections that compete were read, and none has a score that is not
    below the limit."""
    competing = [section for section in sections if section.source.competes]
    if any(section.error is not None for section in competing):
        return False
    return max((best[section.section] for section in competing), default=1.0) < below


def evidence_in(sections: Sequence[Gathered]) -> list[QueryEvidence]:
    """Returns what each searched collection has of the query."""
    return [evidence for section in sections for evidence in section.result.evidence]


def asks_in(sections: Sequence[Gathered]) -> float:
    """Returns the probability that the query asks for anything, 1 if nothing is known of it."""
    return max((known.asks for known in evidence_in(sections) if known.asks is not None), default=1.0)
