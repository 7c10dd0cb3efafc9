"""A made-up model that judges pairs of the stories of reflection: always right, or wrong in one of ten cases.

Of all else that a model is asked it says nothing: no memory, no fact, and as a summary what the user said.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from benchmarks.learned.meter import Json, completion

WRONG_IN = 10
"""A noisy judge is wrong about one of so many pairs."""


class ScriptedJudge:
    """Knows the pairs of some stories. `noisy`: wrong about every tenth pair, always the same ones."""

    def __init__(self, stories: Sequence[Json], *, noisy: bool = False) -> None:
        self._noisy = noisy
        self._relations: dict[tuple[str, str], str] = {}
        for story in stories:
            for pair in story["pairs"]:
                earlier, later = (
                    story["sessions"][session]["messages"][turn]["content"]
                    for session, turn in (pair["earlier"], pair["later"])
                )
                self._relations[earlier, later] = "contradiction" if pair["relation"] == "unknown" else "changed"

    def __call__(self, body: Json) -> Json:
        """Returns the answer to a request."""
        schema = body["response_format"]["json_schema"]
        data, _ = json.JSONDecoder().raw_decode(body["messages"][1]["content"])
        if schema["name"] == "JudgedPairs":
            given: Json = {"pairs": [self._judged(one) for one in data["pairs"]]}
        else:
            given = _nothing(schema["schema"]["properties"], data)
        return completion(json.dumps(given, ensure_ascii=False), body)

    def _judged(self, pair: Json) -> Json:
        texts = pair["earlier"]["text"], pair["later"]["text"]
        relation = self._relations.get(texts, "both_hold")
        if self._noisy and blake2b(" ".join(texts).encode(), digest_size=4).digest()[0] % WRONG_IN == 0:
            relation = "contradiction" if relation == "both_hold" else "both_hold"
        if relation == "both_hold":
            return {"id": pair["id"], "verdict": relation, "earlier_words": "", "later_words": "", "reason": ""}
        words = dict(zip(("earlier_words", "later_words"), texts, strict=True))
        return {"id": pair["id"], "verdict": relation, **words, "reason": "Only one of them can be true."}


def _nothing(properties: Mapping[str, Json], data: Json) -> Json:
    said = " ".join(line["text"] for line in data.get("conversation", ()) if line["role"] == "user")
    return {name: (said or "Nothing.") if shape.get("type") == "string" else [] for name, shape in properties.items()}
