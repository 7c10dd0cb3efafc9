"""Compares ways of teaching the encoder at one small budget: python -m benchmarks.train.variants OUT --base FOLDER

Each row of `VARIANTS` is taught, made int8 and measured as the service would load it: on `lives/choose`, and on sets
that none of them was taught on. What is done already in OUT is not done again; `--only` names the rows. In the end it
prints the table: MRR and its difference to the reference, with the interval that the choice of questions gives (95 %,
paired bootstrap). What chance in teaching gives is the difference of the reference's two seeds.
"""

import argparse
import json
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SERVED = ROOT / "app" / "embedding" / "data"
CHOOSE = "lives/choose"
STRANGERS = ("locomo", "realtalk", "beam")
REFERENCE, SHIPPED = "reference", "recalld-minilm-1"
"""Rows that others are compared with: those whose name begins with `SHIPPED` with that one."""
MOST = 3
"""Conversations of each of these sets."""
TEACH = "encoder {out} --base {base} --save 25"
BUDGET = "--examples 2400 --epochs 1"
"""Of what is shipped, 12,600 examples were seen."""
VARIANTS = {
    "reference": f"{TEACH} {BUDGET}",
    "reference, seed 2": f"{TEACH} {BUDGET} --seed 2",
    "batch 16": f"{TEACH} {BUDGET} --batch 16",
    "batch 64": f"{TEACH} {BUDGET} --batch 64",
    "batch 64, rate 6e-5": f"{TEACH} {BUDGET} --batch 64 --rate 6e-5",
    "no hard negatives": f"{TEACH} {BUDGET} --hard 0",
    "3 hard negatives": f"{TEACH} {BUDGET} --hard 3",
    "1,200 examples, 2 epochs": f"{TEACH} --examples 1200 --epochs 2",
    "800 examples, 3 epochs": f"{TEACH} --examples 800 --epochs 3",
    "rate 1e-4": f"{TEACH} {BUDGET} --rate 1e-4",
    "English only": f"{TEACH} {BUDGET} --language en",
    "half a teacher": f"{TEACH} {BUDGET} --teacher {{teacher}} --distil 0.5",
    "reference, .25 of the base": "average {out} {reference} {base} --share 0.25",
    "reference, .5 of the base": "average {out} {reference} {base} --share 0.5",
    "mean of both seeds": "average {out} {reference} {reference-seed-2} --share 0.5",
    "2,400 examples, 2 epochs": f"{TEACH} --examples 2400 --epochs 2",
    "2,400 examples, 3 epochs": f"{TEACH} --examples 2400 --epochs 3",
    "all-MiniLM-L6-v2": "weights {out} {minilm} --base {base}",
    "recalld-minilm-1": "weights {out} {shipped} --base {base}",
    "recalld-minilm-1, .25 of the base": "weights {out} {shipped} --base {base} --average 0.25",
    "recalld-minilm-1, .5 of the base": "weights {out} {shipped} --base {base} --average 0.5",
    "recalld-minilm-1, 4 layers": "layers {out} --base {recalld-minilm-1} --layers 4",
    "recalld-minilm-1, 3 layers": "layers {out} --base {recalld-minilm-1} --layers 3",
}
"""Module and arguments of each. `{name-of-a-row}` is its folder; that row has to stand before."""

Figures: TypeAlias = dict[str, dict[str, list[float]]]
"""By set: `reciprocal`, `recall`, `first` of each question."""


def slug(name: str) -> str:
    """`reference, seed 2` → `reference-seed-2`."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name).split())


def command(name: str, out: Path, places: dict[str, str]) -> list[str]:
    """The arguments of Python that teach a row."""
    known = {slug(row): str(out / slug(row)) for row in VARIANTS} | places | {"out": str(out / slug(name))}
    module, *arguments = (part.format_map(known) for part in shlex.split(VARIANTS[name]))
    return ["-m", f"benchmarks.train.{module}", *arguments]


def run(name: str, given: argparse.Namespace) -> None:
    """Teaches a row, makes it int8 and measures it; writes OUT/row.json in the end."""
    folder = given.out / slug(name)
    served, before = folder / "served", spent()
    places = {
        "base": given.base,
        "teacher": given.teacher or "",
        "minilm": str(SERVED / "all-MiniLM-L6-v2.onnx"),
        "shipped": str(SERVED / "recalld-minilm-1.onnx"),
    }
    python(command(name, given.out, places))
    taught = spent() - before
    served.mkdir(parents=True, exist_ok=True)
    shutil.copy(SERVED / "tokenizer.json", served)
    python(["-m", "benchmarks.train.export", str(folder), str(served / "model.onnx")])
    lives = ["--lives", "choose", *given.lives]
    sets = ["--data", str(given.data), "--sets", *STRANGERS, "--most", str(MOST)] if given.data else []
    figures = folder / "figures.json"
    python(["-m", "benchmarks.train.measure", str(served), *lives, *sets, "--json", str(figures)])
    row = {"name": name, "flags": VARIANTS[name], "seconds": taught, "figures": json.loads(figures.read_text())}
    (given.out / f"{slug(name)}.json").write_text(json.dumps(row), encoding="utf-8")


def python(arguments: Sequence[str]) -> None:
    print("python", *arguments, flush=True)
    subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT)


def spent() -> float:
    """Seconds of processor time of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    others = [name for name in reference if name != CHOOSE]
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
    parser.add_argument("--data", type=Path, help=f"folder with {', '.join(STRANGERS)}")
    parser.add_argument("--lives", nargs="*", default=[], help="further folders in the lives' shape to measure on")
    parser.add_argument("--teacher", help="any MODEL of benchmarks.train.measure")
    parser.add_argument("--only", nargs="*", default=list(VARIANTS), choices=list(VARIANTS), metavar="ROW")
    given = parser.parse_args()
    for name in given.only:
        if not (given.out / f"{slug(name)}.json").exists():
            run(name, given)
    files = [given.out / f"{slug(name)}.json" for name in VARIANTS]
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    for begins in (REFERENCE, SHIPPED):
        group = [row for row in rows if row["name"].startswith(SHIPPED) == (begins == SHIPPED)]
        if group and group[0]["name"] == begins:
            print(table(group), end="\n\n")


if __name__ == "__main__":
    main()
