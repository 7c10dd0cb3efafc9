"""Compares ways of teaching the encoder at one small budget: python -m benchmarks.train.variants OUT --base FOLDER

Each row of `VARIANTS` is taught, made int8 and measured as the service would load it: on `lives/choose`, and on sets
that none of them was taught on. What is done already in OUT is not done again; `--only` names the rows. In the end it
prints the table: MRR and its difference to the reference, with the interval that the choice of questions gives (95 %,
paired bootstrap). What chance in teaching gives is the difference of the reference's two seeds.
"""

import argparse
import json
import shlex
import shutil
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SERVED = ROOT / "app" / "embedding" / "data"
CHOOSE = "lives/choose"
REFERENCE, SHIPPED = "reference", "recalld-minilm-1"
"""Rows that others are compared with: those whose name begins with `SHIPPED` with that one."""
MOST = 2
"""Conversations of each set that is not in this repository."""
TEACH = "encoder {out} --base {base} --near {minilm} --near-vectors {near} --save 10 --threads 1 --rate 2e-4"
"""The rate is seven times that of what was shipped: so few steps hardly move the weights otherwise."""
BUDGET = "--examples 512 --epochs 1"
"""Of what is shipped, 12,600 examples were seen."""
SHORTEN = "layers {out} --base {recalld-minilm-1} --like recalld-minilm-1 --texts 2048 --passes 1 --threads 1"
VARIANTS = {
    "reference": f"{TEACH} {BUDGET}",
    "reference, seed 2": f"{TEACH} {BUDGET} --seed 2",
    "rate 1e-4": f"{TEACH} {BUDGET} --rate 1e-4",
    "batch 16": f"{TEACH} {BUDGET} --batch 16",
    "batch 64": f"{TEACH} {BUDGET} --batch 64",
    "no hard negatives": f"{TEACH} {BUDGET} --hard 0",
    "3 hard negatives": f"{TEACH} {BUDGET} --hard 3",
    "half the examples, twice": f"{TEACH} --examples 256 --epochs 2",
    "a third of the examples, three times": f"{TEACH} --examples 171 --epochs 3",
    "English only": f"{TEACH} {BUDGET} --language en",
    "half from a teacher": f"{TEACH} {BUDGET} --teacher {{teacher}} --distil 0.5",
    "reference, .25 of the base": "average {out} {reference} {base} --share 0.25",
    "reference, .5 of the base": "average {out} {reference} {base} --share 0.5",
    "mean of both seeds": "average {out} {reference} {reference-seed-2} --share 0.5",
    "twice as many examples": f"{TEACH} --examples 1024 --epochs 1",
    "all-MiniLM-L6-v2": "weights {minilm}/model.onnx {out} --base {base}",
    "recalld-minilm-1": "weights {shipped} {out} --base {base}",
    "recalld-minilm-1, .25 of the base": "weights {shipped} {out} --base {base} --average 0.25",
    "recalld-minilm-1, .5 of the base": "weights {shipped} {out} --base {base} --average 0.5",
    "recalld-minilm-1, 4 layers": f"{SHORTEN} --layers 4",
    "recalld-minilm-1, 3 layers": f"{SHORTEN} --layers 3",
}
"""Module and arguments of each. `{name-of-a-row}` is its folder; that row has to stand before."""

Figures: TypeAlias = dict[str, dict[str, list[float]]]
"""By set: `reciprocal`, `recall`, `first` of each question."""


def slug(name: str) -> str:
    """`reference, seed 2` → `reference-seed-2`."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name).split())


def command(name: str, out: Path, places: dict[str, str]) -> list[str]:
    """The module that teaches a row, and its arguments."""
    known = {slug(row): str(out / slug(row)) for row in VARIANTS} | places | {"out": str(out / slug(name))}
    return [part.format_map(known) for part in shlex.split(VARIANTS[name])]


def teach(name: str, given: argparse.Namespace) -> None:
    """Teaches a row and makes it int8; begins OUT/row.json."""
    folder = given.out / slug(name)
    served, before = folder / "served", time.process_time()
    places = {
        "base": given.base,
        "teacher": given.teacher or "",
        "near": str(given.out / "near.npz"),
        "minilm": given.minilm,
        "shipped": str(SERVED / "recalld-minilm-1.onnx"),
    }
    run(*command(name, given.out, places))
    seconds = time.process_time() - before
    served.mkdir(parents=True, exist_ok=True)
    shutil.copy(SERVED / "tokenizer.json", served)
    run("export", str(folder), str(served / "model.onnx"))
    write(given.out, {"name": name, "flags": VARIANTS[name], "seconds": seconds, "figures": {}})


def measure(row: dict[str, Any], given: argparse.Namespace) -> None:
    """Measures a row on the sets on which it was not measured yet."""
    folder, known = given.out / slug(row["name"]), row["figures"]
    lives = [part for part in ("choose", *given.lives) if f"lives/{Path(part).name}" not in known]
    sets = [name for name in given.sets if name not in known]
    if lives or sets:
        file = folder / "figures.json"
        data = ["--data", str(given.data), "--most", str(MOST), "--sets", *sets] if sets else []
        run("measure", str(folder / "served"), "--lives", *lives, *data, "--json", str(file))
        known.update(json.loads(file.read_text(encoding="utf-8")))
        write(given.out, row)


def read(out: Path, name: str) -> dict[str, Any] | None:
    file = out / f"{slug(name)}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def write(out: Path, row: dict[str, Any]) -> None:
    (out / f"{slug(row['name'])}.json").write_text(json.dumps(row), encoding="utf-8")


def run(module: str, *arguments: str) -> None:
    """As `python -m benchmarks.train.MODULE ARGUMENTS`, without loading torch again."""
    print(module, *arguments, flush=True)
    import_module(f"benchmarks.train.{module}").main(arguments)


def mean_of_sets(figures: Figures, sets: Sequence[str], what: str) -> float:
    """Each set counts the same, however many questions it has."""
    return float(np.mean([np.mean(figures[name][what]) for name in sets]))


def difference(
    figures: Figures, reference: Figures, sets: Sequence[str], what: str, seed: int = 1, draws: int = 2000
) -> tuple[float, float, float]:
    """How much higher than the reference, and the ends of the interval: questions of each set are drawn again."""
    chance = np.random.default_rng(seed)
    means = []
    for name in sets:
        gained = np.asarray(figures[name][what], float) - np.asarray(reference[name][what], float)
        drawn = gained[chance.integers(len(gained), size=(draws, len(gained)))].mean(1)
        means.append((gained.mean(), drawn))
    low, high = np.quantile(np.mean([drawn for _, drawn in means], axis=0), [0.025, 0.975])
    return float(np.mean([mean for mean, _ in means])), float(low), float(high)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """In Markdown; the first row is the reference."""
    reference = rows[0]["figures"]
    others = [name for name in reference if name != CHOOSE and all(name in row["figures"] for row in rows)]
    lines = [
        f"| | processor s | {CHOOSE} | first | difference | {' | '.join(others)} | difference of their mean |",
        "|---|" + "--:|" * (5 + len(others)),
    ]
    for row in rows:
        figures = row["figures"]
        gains = [difference(figures, reference, sets, "reciprocal") for sets in ([CHOOSE], others)]
        shown = ["" if row is rows[0] else f"{gain:+.3f} ({low:+.3f} to {high:+.3f})" for gain, low, high in gains]
        both = [f"{mean_of_sets(figures, [name], 'recall'):.3f} / {mean_of_sets(figures, [name], 'reciprocal'):.3f}"
                for name in (CHOOSE, *others)]  # fmt: skip
        first = f"{mean_of_sets(figures, [CHOOSE], 'first'):.3f}"
        cells = [row["name"], f"{row['seconds']:.0f}", both[0], first, shown[0], *both[1:], shown[1]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", required=True, help="folder of sentence-transformers with the official weights")
    parser.add_argument("--minilm", required=True, help="folder that scripts/make_embedding_model has made")
    parser.add_argument("--data", type=Path, help="folder of the sets that are not in this repository")
    parser.add_argument("--sets", nargs="*", default=[], help="of them, to measure on: locomo realtalk beam")
    parser.add_argument("--lives", nargs="*", default=[], help="further folders in the lives' shape to measure on")
    parser.add_argument("--teacher", help="any MODEL of benchmarks.train.measure")
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), choices=list(VARIANTS), metavar="ROW")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.only:
        if read(given.out, name) is None:
            teach(name, given)
        if row := read(given.out, name):
            measure(row, given)
    rows = [row for name in VARIANTS if (row := read(given.out, name)) and row["figures"]]
    for begins in (REFERENCE, SHIPPED):
        group = [row for row in rows if row["name"].startswith(SHIPPED) == (begins == SHIPPED)]
        if group and group[0]["name"] == begins:
            print(table(group), end="\n\n")


if __name__ == "__main__":
    main()
