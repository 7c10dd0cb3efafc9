"""Models that judge pairs of the stories of reflection: a made-up one, always right or wrong in one of ten cases, and a
real one.

Of all else that a model is asked they say nothing: no memory, no fact, and as a summary what the user said.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from benchmarks.learned.meter import Answerer, Json, completion

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
                self._relations[earlier, later] = "contradicts" if pair["relation"] == "unknown" else "replaces"

    def __call__(self, body: Json) -> Json:
        """Returns the answer to a request."""
        if not _asks_for_verdicts(body):
            return _nothing(body)
        given = {"pairs": [self._judged(one) for one in _data(body)["pairs"]]}
        return completion(json.dumps(given, ensure_ascii=False), body)

    def _judged(self, pair: Json) -> Json:
        texts = pair["earlier"]["text"], pair["later"]["text"]
        relation = self._relations.get(texts, "unrelated")
        if self._noisy and blake2b(" ".join(texts).encode(), digest_size=4).digest()[0] % WRONG_IN == 0:
            relation = "contradicts" if relation == "unrelated" else "unrelated"
        if relation == "unrelated":
            return {"id": pair["id"], "verdict": relation, "earlier_words": "", "later_words": "", "reason": ""}
        words = dict(zip(("earlier_words", "later_words"), texts, strict=True))
        return {"id": pair["id"], "verdict": relation, **words, "reason": "Only one of them can be true."}


def judged_by(answer: Answerer) -> Answerer:
    """Returns a model that asks `answer` for verdicts only."""
    return lambda body: answer(body) if _asks_for_verdicts(body) else _nothing(body)


def _asks_for_verdicts(body: Json) -> bool:
    return bool(_schema(body)["name"] == "JudgedPairs")


def _schema(body: Json) -> Json:
    schema: Json = body["response_format"]["json_schema"]
    return schema


def _data(body: Json) -> Json:
    data, _ = json.JSONDecoder().raw_decode(body["messages"][1]["content"])
    given: Json = data
    return given


def _nothing(body: Json) -> Json:
    properties: Mapping[str, Json] = _schema(body)["schema"]["properties"]
    said = " ".join(line["text"] for line in _data(body).get("conversation", ()) if line["role"] == "user")
    given = {name: (said or "Nothing.") if shape.get("type") == "string" else [] for name, shape in properties.items()}
    return completion(json.dumps(given, ensure_ascii=False), body)
