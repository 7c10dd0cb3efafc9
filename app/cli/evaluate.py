"""`recalld eval`: asks a running service stored questions, each with the memories that should answer it."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, quantiles
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.cli._common import AsJson, as_json, file_or_folder, table, whole_address
from app.errors import FieldError, Invalid, Unavailable
from app.validation_words import in_words

DEPTHS = (1, 5, 10, 20)
"""The values of k for recall@k."""
SECONDS = 30


class Question(BaseModel):
    """One line of the file; other fields are those of a search and are passed on."""

    model_config = ConfigDict(extra="allow")

    query: str
    expected: Annotated[list[str], Field(min_length=1, description="Memory ids.")]


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a question: memory ids, best first, and the latency."""

    question: Question
    memory_ids: list[str]
    milliseconds: float

    def recall(self, depth: int) -> float:
        """Returns the share of the expected memories among the first `depth` hits."""
        return len(set(self.memory_ids[:depth]) & set(self.question.expected)) / len(set(self.question.expected))

    def reciprocal_rank(self) -> float:
        """Returns 1 / rank of the first expected memory, or 0 if none was found."""
        places = [at for at, memory_id in enumerate(self.memory_ids, 1) if memory_id in self.question.expected]
        return 1 / places[0] if places else 0.0


def evaluate(
    queries: Annotated[
        Path,
        typer.Option(
            parser=file_or_folder,
            help='JSON lines: {"query": …, "user_id": …, "expected": [memory ids]}.',
        ),
    ],
    url: Annotated[
        str, typer.Option(envvar="RECALLD_URL", callback=whole_address, help="Of the running service.")
    ] = "http://127.0.0.1:8000",
    key: Annotated[
        str | None, typer.Option(envvar=["RECALLD_KEY", "RECALLD_API_KEY"], help="API key that may read.")
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="How many memories to ask for.")] = 20,
    misses: Annotated[
        bool, typer.Option("--misses", help="List the questions whose memories were not all found.")
    ] = False,
    as_json_: AsJson = False,
) -> None:
    """Ask stored questions and print recall@k, MRR and latency: the same before and after an upgrade, on your own data.
    Nothing is recorded as accessed."""
    questions = list(read(queries))
    answers = [_ask(question, f"{url.rstrip('/')}/v1/memories/search", key, top_k) for question in questions]
    result = figures(answers, top_k)
    missed = [answer for answer in answers if answer.recall(top_k) < 1]
    if as_json_:
        listed = [{**answer.question.model_dump(), "found": answer.memory_ids} for answer in missed]
        as_json({**result, "misses": listed})
        return
    table(("figure", "value"), [(name, f"{value:g}") for name, value in result.items()])
    if misses and missed:
        print()
        table(
            ("query", "expected"), [(answer.question.query, ", ".join(answer.question.expected)) for answer in missed]
        )


def figures(answers: Sequence[Answered], top_k: int) -> dict[str, float]:
    """Returns means over the questions. Latencies are in milliseconds, as the caller sees them."""
    times = [answer.milliseconds for answer in answers]
    spread = quantiles(times, n=20, method="inclusive") if len(times) > 1 else times * 19
    depths = sorted({depth for depth in DEPTHS if depth < top_k} | {top_k})
    return {
        "questions": len(answers),
        **{f"recall@{depth}": round(fmean(a.recall(depth) for a in answers), 4) for depth in depths},
        f"hit@{top_k}": round(fmean(a.recall(top_k) > 0 for a in answers), 4),
        "mrr": round(fmean(a.reciprocal_rank() for a in answers), 4),
        "p50_ms": round(spread[9], 2),
        "p95_ms": round(spread[18], 2),
    }


def read(path: Path) -> Iterator[Question]:
    """Yields the questions of a file. Raises Invalid with the number of each invalid line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}") from error
    questions: list[Question] = []
    errors: list[FieldError] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                questions.append(Question.model_validate_json(line))
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"]))
                words = in_words(first)
                errors.append(FieldError(f"/line {number}", f"{where}: {words}" if where else words))
    if errors:
        raise Invalid("The file has lines that are no questions.", errors=errors[:20])
    if not questions:
        raise Invalid(f"{path} holds no question.")
    yield from questions


def _ask(question: Question, url: str, key: str | None, top_k: int) -> Answered:
    """Asks the service. Raises Unavailable with the service's message."""
    body = {"top_k": top_k, "record_access": False, **question.model_dump(exclude={"expected"})}
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 (the user's own address)
    started = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        detail = text[:200]
        with suppress(ValueError, KeyError, TypeError):
            detail = str(json.loads(text)["detail"])
        raise Unavailable(f"{question.query!r} was answered {error.code}: {detail}") from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"{url} does not answer: {error}") from error
    taken = (time.perf_counter() - started) * 1000
    return Answered(question, [item["memory"]["memory_id"] for item in answer["items"]], taken)
