"""Figures of a set's answers, and the table that shows them: pure functions, the report of `benchmark recall`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.evaluation import measures
from benchmarks.evaluation.judging import Answer, Found, Set
from benchmarks.evaluation.measures import Floats, interval
from benchmarks.harness import Row, Section, table

HYBRID = "hybrid"
FEATURED = 20
"""Never answered questions that `misses` lists."""


def summary(asked: Set, answers: Sequence[Answer], modes: Sequence[str]) -> dict[str, Any]:
    known = [answer for answer in answers if answer.evidence]
    names = asked.metrics
    values = {mode: np.array([answer.figures(mode)[: len(names)] for answer in known]) for mode in modes}
    kinds = np.array([answer.question.kind for answer in known])
    return {
        "set": asked.name,
        "file": asked.path.name,
        "conversations": len(asked.worlds),
        "items": sum(len(world.items) for world in asked.worlds),
        "questions": len(known),
        "never_said": len(answers) - len(known),
        "top_k": asked.top_k,
        "intervals": f"95 % percentile bootstrap over questions, {measures.RESAMPLES} draws",
        "modes": {
            mode: {
                "all": _figures(values[mode], names),
                "kinds": {kind: _figures(values[mode][kinds == kind], names) for kind in dict.fromkeys(kinds.tolist())},
                "latency": _latency([answer.found[mode] for answer in answers]),
            }
            for mode in modes
        },
        "differences": {
            f"{HYBRID} - {mode}": _figures(values[HYBRID] - values[mode], names)
            for mode in modes
            if HYBRID in modes and mode != HYBRID
        },
        "calibration": calibration(answers) if HYBRID in modes else None,
        "answers": [_row(answer) for answer in answers],
    }


def _figures(values: Floats, names: Sequence[str]) -> dict[str, Any]:
    """Mean and interval of each metric."""
    if not len(values):
        return {"questions": 0}
    columns = {
        name: {"mean": round(float(column.mean()), 4), "interval": _rounded(interval(column))}
        for name, column in zip(names, values.T, strict=True)
    }
    return {"questions": len(values), **columns}


def _latency(found: Sequence[Found]) -> dict[str, dict[str, float]]:
    """Milliseconds. `embed` is of the searches that computed a vector: the other modes find it cached."""
    parts = {part: [each.took_ms[part] for each in found] for part in ("embed", "search", "total")}
    parts |= {"waited": [each.waited_ms for each in found]}
    return {
        part: dict(zip(("p50", "p95"), _rounded(measures.percentiles(times), 2), strict=True))
        for part, times in parts.items()
        if times
    }


def calibration(answers: Sequence[Answer]) -> dict[str, Any]:
    """The score of hybrid's first memory against whether that memory is evidence; of a question that was never
    answered it is not. Searches that found nothing have no score; their best score counts as 0 in the AUC."""
    known = [answer for answer in answers if answer.evidence]
    never = [answer for answer in answers if not answer.evidence]
    right = [score for score, is_right in _first_scores(known) if is_right]
    best, best_never = ([answer.found[HYBRID].score or 0.0 for answer in part] for part in (known, never))
    return {
        "with never said": _reliability(answers) if never else None,
        "answerable": _reliability(known),
        "right_first": {"count": len(right), "median": _median(right)},
        "never_said": {"count": len(never), "median": _median(best_never)},
        "auc": {
            "value": round(measures.auc(best, best_never), 4),
            "interval": _rounded(measures.auc_interval(best, best_never)),
        }
        if best and best_never
        else None,
    }


def _reliability(answers: Sequence[Answer]) -> dict[str, Any] | None:
    pairs = list(_first_scores(answers))
    if not pairs:
        return None
    scores, outcomes = zip(*pairs, strict=True)
    mean, most = measures.chance_error(scores)
    return {
        "answers": len(pairs),
        "ece": round(measures.calibration_error(scores, outcomes), 4),
        "ece_if_calibrated": {"mean": round(mean, 4), "p95": round(most, 4)},
        "brier": round(measures.brier(scores, outcomes), 4),
        "mean_score": round(float(np.mean(scores)), 4),
        "share_right": round(float(np.mean(outcomes)), 4),
        "bins": [
            {"answers": size, "mean_score": round(score, 4), "share_right": round(share, 4)}
            for size, score, share in measures.calibration_bins(scores, outcomes)
        ],
    }


def _first_scores(answers: Sequence[Answer]) -> Iterator[tuple[float, bool]]:
    for answer in answers:
        found = answer.found[HYBRID]
        if found.score is not None:
            yield found.score, found.right


def _median(values: Sequence[float]) -> float | None:
    return round(float(np.median(values)), 4) if values else None


def _row(answer: Answer) -> dict[str, Any]:
    return {
        "conversation": answer.world,
        "query": answer.question.query,
        "kind": answer.question.kind,
        "after": answer.question.after,
        "evidence": answer.evidence,
        "found": {
            mode: {"ranks": found.ranks, "score": found.score, "right": found.right, "session_hit": found.session_hit}
            for mode, found in answer.found.items()
        },
    }


def _rounded(values: Sequence[float], digits: int = 4) -> list[float]:
    return [round(value, digits) for value in values]


# --- Text -------------------------------------------------------------------------------------------------------------


def section(result: Mapping[str, Any], more: Sequence[str] = ()) -> Section:
    """A row for each mode, kind of question and difference; below them the calibration, and `more`."""
    rows: list[Row] = []
    for mode, figures in result["modes"].items():
        took = figures["latency"]["search"]
        rows.append(_cells(mode, "all", figures["all"]) | {"search p50 ms": took["p50"], "p95": took["p95"]})
        kinds = figures["kinds"] if len(figures["kinds"]) > 1 else {}
        rows += [_cells(mode, kind, row) for kind, row in kinds.items()]
    for name, row in result["differences"].items():
        rows.append(_cells(name.replace(" - ", " − "), "all, paired", row, sign="+"))
    title = (
        f"{result['set']} ({result['file']}): {result['conversations']} conversations, {result['items']:,} items, "
        f"{result['questions']} questions with evidence, {result['never_said']} never answered"
    )
    return Section(title, rows, notes=[*_notes(result), *more], figures=result)


def _cells(mode: str, kind: str, row: Mapping[str, Any], sign: str = "") -> Row:
    metrics = {name: _cell(each["mean"], each["interval"], sign) for name, each in row.items() if name != "questions"}
    return {"mode": mode, "questions": kind, "n": row["questions"], **metrics}


def _cell(value: float, bounds: Sequence[float], sign: str = "") -> str:
    low, high = bounds
    if sign:
        return f"{value:+.3f} ({low:+.3f} … {high:+.3f})"
    return f"{value:.3f} ({low:.2f}–{high:.2f})"


def _notes(result: Mapping[str, Any]) -> Iterator[str]:
    embed = max((figures["latency"]["embed"]["p50"] for figures in result["modes"].values()), default=0.0)
    yield f"Intervals: {result['intervals']}. `search` leaves out the query's vector (p50 {embed:.1f} ms, then cached)."
    found = result["calibration"]
    if not found:
        return
    rows: list[Row] = [
        {
            "score of the first memory": name,
            "answers": part["answers"],
            "ECE": f"{part['ece']:.3f}",
            "a calibrated score's ECE, mean (95 % below)": "{mean:.3f} ({p95:.3f})".format(**part["ece_if_calibrated"]),
            "Brier": f"{part['brier']:.3f}",
        }
        for name in ("with never said", "answerable")
        if (part := found[name])
    ]
    yield f"\n{table(rows)}\n" if rows else ""
    right, never, auc = found["right_first"], found["never_said"], found["auc"]
    yield f"Right first memories: {right['count']}, median score {_shown(right['median'])}."
    if auc:
        yield f"Never answered: {never['count']}, median best score {_shown(never['median'])}."
        yield f"AUC of the best score, answerable against never answered: {_cell(auc['value'], auc['interval'])}."


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def misses(answers: Sequence[Answer], mode: str) -> list[str]:
    """Evidence that is not among the first five, and the never answered questions whose best score is highest."""
    lines = [line for answer in answers for line in _missed(answer, mode)]
    never = [(answer.found[mode].score or 0.0, answer) for answer in answers if not answer.evidence]
    for score, answer in sorted(never, key=lambda each: -each[0])[:FEATURED]:
        lines.append(f"\n{answer.world}, never answered: {answer.question.query}")
        lines.append(f"  {score:.3f}: {answer.found[mode].first}")
    return lines


def _missed(answer: Answer, mode: str) -> Iterator[str]:
    found = answer.found[mode]
    if found.missing:
        yield f"\n{answer.world}, {answer.question.kind}: {answer.question.query}"
        yield from (f"  {place or '> all'}: {text}" for text, place in found.missing.items())
        yield f"  1: {found.first}"
