"""What a day of an agent with a user came to, in words: a language model tells it where there is one."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

import orjson

from app.consolidation import prompts, shapes
from app.consolidation.episodes import Batch, chunks
from app.delimiters import strip_served
from app.errors import LLMBudgetSpent, LLMReplyInvalid, LLMUnavailable
from app.llm.llm import LLM
from app.storage.collection import Doc
from app.storage.scope import Scope

PROMPT = "day"
MOST_CHUNKS = 3
"""Of a day that are read; its counts tell of all."""

log = logging.getLogger(__name__)


def day_teller(llm: LLM) -> Callable[[Sequence[Doc], str | None], Awaitable[Doc | None]]:
    """For one run, which has one budget."""
    budget, prompt = llm.budget(), prompts.load(PROMPT)

    async def tell(actions: Sequence[Doc], earlier: str | None) -> Doc | None:
        """A text that goes on from `earlier`, with `model` and `prompt_version`. None where the model fails: the day
        is told by its counts then, for it is not kept for a model's sake."""
        first = actions[0]
        batch = Batch(Scope(first["tenant_id"]), first["agent_id"], first["user_id"], actions)
        text = earlier
        try:
            for chunk in islice(chunks(batch, most=len(actions)), MOST_CHUNKS):
                asked = orjson.dumps({"earlier": text, "episodes": chunk.shown()}).decode()
                reply = await llm.reply(prompt.text, asked, shapes.DayText, budget)
                text = strip_served(reply.text).strip() or text
        except (LLMUnavailable, LLMReplyInvalid, LLMBudgetSpent) as fault:
            log.warning("a day was not told", extra={"code": fault.code})
        if text is None or text == earlier:
            return None
        return {"text": text, "model": llm.model, "prompt_version": prompt.id}

    return tell
