"""`recalld eval`: asks a running service stored questions, each with the memories that should answer it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, quantiles
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.cli import _common as cli
from app.errors import FieldError, Invalid
from app.validation_words import in_words

DEPTHS = (1, 5, 10, 20)
"""The values of k for recall@k."""


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
            parser=cli.file_or_folder,
            help='JSON lines: {"query": …, "user_id": …, "expected": [memory ids]}.',
        ),
    ],
    url: Annotated[
        str, typer.Option(envvar="RECALLD_URL", callback=cli.whole_address, help="Of the running service.")
    ] = "http://127.0.0.1:8000",
    key: cli.KeyOption = None,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="How many memories to ask for.")] = 20,
    misses: Annotated[
        bool, typer.Option("--misses", help="List the questions whose memories were not all found.")
    ] = False,
    as_json_: cli.AsJson = False,
) -> None:
    """Ask stored questions and print recall@k, MRR and latency: the same before and after an upgrade, on your own data.
    Nothing is recorded as accessed."""
    questions = list(read(queries))

    async def work(ask: cli.Ask) -> list[Answered]:
        answers = []
        for question in questions:
            body = {"top_k": top_k, "record_access": False, **question.model_dump(exclude={"expected"})}
            started = time.perf_counter()
            try:
                found = (await ask("POST", "/v1/memories/search", body))["items"]
            except cli.CommandFailed as error:
                raise cli.CommandFailed(f"{question.query!r}: {error.detail}") from error
            took = (time.perf_counter() - started) * 1000
            answers.append(Answered(question, [item["memory"]["memory_id"] for item in found], took))
        return answers

    answers = cli.call(cli.Target(url, key), work, "Asking …")
    result = figures(answers, top_k)
    missed = [answer for answer in answers if answer.recall(top_k) < 1]
    if as_json_:
        listed = [{**answer.question.model_dump(), "found": answer.memory_ids} for answer in missed]
        cli.as_json({**result, "misses": listed})
        return
    cli.table(("figure", "value"), [(name, f"{value:g}") for name, value in result.items()])
    if misses and missed:
        print()
        cli.table(
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
