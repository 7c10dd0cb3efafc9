"""Revised steps of a failing procedure: what the model is shown, and the rule by which its answer is taken."""

from collections.abc import Mapping, Sequence

import orjson

from app.actions.schemas import ACTIONS
from app.core.clock import new_id, rfc3339
from app.core.served_text import strip_served
from app.core.tokens import count
from app.learning import prompts
from app.learning.dependencies import Tools
from app.learning.episodes import Batch
from app.learning.evidence import shown
from app.learning.words import table, tokens
from app.llm.base import LLM, Budget
from app.memories.repository import same_pair
from app.procedures.trials import new_trial
from app.storage.repository import Repository
from app.storage.schema import Doc
from app.storage.scope import Scope
from app.storage.text import normalise_content

PROMPT = "procedure_revision"
MOST_TRIALS = 3
"""So many trials are dropped; then only a caller changes the steps."""
SMALL_WORDS = ("articles", "prepositions", "common", "linking")
"""Tables of words that need no evidence."""
SHOWN = ("name", "trigger", "preconditions", "steps", "notes")


async def episodes_of(tools: Tools, scope: Scope, procedure: Doc) -> dict[str, Doc]:
    """Returns the actions that the procedure's outcomes name, by id. Those of other agents and users are left out: a
    procedure that serves all users is revised from nobody's own episodes."""
    ids = [one["action_id"] for one in procedure["recent_outcomes"] if one["action_id"]]
    found = await Repository(tools.store, scope, ACTIONS).get_many(ids)
    return {action_id: doc for action_id, doc in found.items() if same_pair(doc, procedure)}


async def proposed(tools: Tools, scope: Scope, procedure: Doc, llm: LLM, budget: Budget) -> Doc | None:
    """Asks the model for better steps. Returns a trial of them, or None if it knows none or the rule drops them.

    Raises what the model's client raises.
    """
    episodes = await episodes_of(tools, scope, procedure)
    prompt = prompts.load(PROMPT)
    room = llm.prompt_tokens - prompts.SHAPE_TOKENS - count(prompt.text)
    data = prompts.fitting(_data(procedure, episodes, scope), room)
    answer = await llm.reply(prompt.text, orjson.dumps(data).decode(), prompts.RevisedSteps, budget)
    steps = [step for step in (strip_served(one).strip() for one in answer.revised_steps) if step]
    known = [procedure["steps"], *(procedure.get("dropped_trials") or [])]
    if not founded(steps, data) or any(_same(steps, one) for one in known):
        return None
    model, now = llm.model_for(prompts.RevisedSteps), rfc3339(tools.clock.now())
    return new_trial(new_id("trial"), steps, sorted(episodes), model, prompt.id, now)


def _data(procedure: Doc, episodes: Mapping[str, Doc], scope: Scope) -> Doc:
    """Returns what the model is shown. The latest outcomes come first: what has no room goes from the end."""
    numbers = {action_id: number for number, action_id in enumerate(episodes)}
    agent, user = procedure["agent_id"], procedure["user_id"]
    told = Batch(scope, agent, user, list(episodes.values())).shown()
    outcomes = []
    for one in reversed(procedure["recent_outcomes"]):
        number = numbers.get(one["action_id"])
        episode = {} if number is None else {"episode": {**told[number], "number": number + 1}}
        note = {} if one["note"] is None else {"note": strip_served(one["note"])}
        outcomes.append({"success": one["success"], **note, **episode})
    return {
        "procedure": {name: procedure[name] for name in SHOWN},
        "outcomes": outcomes,
        "tried_in_vain": procedure.get("dropped_trials") or [],
    }


def founded(steps: Sequence[str], data: Mapping[str, object]) -> bool:
    """Returns True if there are steps, and every word and number of them stands in the procedure or its outcomes.
    Articles, prepositions and words that join steps need no evidence, "not" does; what was tried in vain is none."""
    text = orjson.dumps([data["procedure"], data["outcomes"]]).decode()
    return bool(steps) and all(_founded(step, text) for step in steps)


def _founded(step: str, text: str) -> bool:
    told = [token for token in tokens(step) if not any(token.word in table(name) for name in SMALL_WORDS)]
    return bool(told) and shown(" ".join(step[token.start : token.end] for token in told), text)


def _same(steps: Sequence[str], others: Sequence[str]) -> bool:
    return list(map(normalise_content, steps)) == list(map(normalise_content, others))
