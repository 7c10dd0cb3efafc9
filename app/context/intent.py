"""Infers the intent of a query from the kinds of memory that answer it. It works the same in every language.

An intent excludes nothing. It multiplies the worth of the sections that serve it.
"""

from collections.abc import Mapping

from app.context.schemas import Intent

ANSWERS = 0.2
"""Minimum score, a probability, of a section that answers a query."""
_BOOSTS: Mapping[Intent, Mapping[str, float]] = {
    "general": {},
    "recall": {"memories": 1.25, "facts": 1.25},
    "execute": {"procedures": 1.5, "experience": 1.25, "episodes": 1.25},
}


def infer(best: Mapping[str, float], *, has_task: bool) -> Intent:
    """Returns the intent. `best`: the highest score of each section.

    It is execute if a procedure answers best or a task is named, recall if another kind of memory answers, else
    general.
    """
    found = {name: score for name, score in best.items() if score >= ANSWERS}
    if has_task or (found and max(found, key=lambda name: found[name]) == "procedures"):
        return "execute"
    return "recall" if found else "general"


def boosts(intent: Intent) -> dict[str, float]:
    """Returns the factors of an intent by section."""
    return dict(_BOOSTS[intent])
