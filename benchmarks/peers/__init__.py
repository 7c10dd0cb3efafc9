"""Recalld beside other memory services, as they come from PyPI: one embedding service for all, the same texts.

    scripts/benchmark peers                            # all of them; what is measured is not measured again
    scripts/benchmark peers --only recalld mem0        # some of them
    scripts/benchmark peers --install                  # only makes the environments
    scripts/benchmark peers --quick                    # a fifth of the texts and searches: does everything run here?

Each product gets an environment of its own in the cache folder, with the versions that `benchmarks/peers/requirements`
pins. Its figures are kept there as JSON, and a run goes on where another one ended: what is measured is not measured
again until the product, the texts or the size change, or with `--again`. Linux only.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.evaluation import sets
from benchmarks.harness import ROOT, Row, Section, folder, serving
from benchmarks.lives import LIVES
from benchmarks.peers.measuring import FULL, QUICK, Size, User, measured, users_of
from benchmarks.peers.products import PRODUCTS, Place, Product

NOT_SHOWN = """
What it does not show:

- What is learned by a language model. Here every text is stored as it is; mem0 and Hindsight are made to have a model
  read it first, which costs seconds and money a text and changes what can be found.
- How good answers are. recall@10 says how many of the texts that answer a question stand among the first ten.
- More memories, more users, other machines, a service across a network, a PostgreSQL or a Qdrant server that is tuned.
- Other embedding models. This one is small and was taught by us on what memory is asked; all products use it here.
- An embedding service that keeps no vectors. This one does: for all products a known query runs no model.
""".strip()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=PRODUCTS, default=list(PRODUCTS))
    parser.add_argument("--quick", action="store_true", help="fewer texts and searches")
    parser.add_argument("--install", action="store_true", help="make the environments, measure nothing")
    parser.add_argument("--again", action="store_true", help="measure what is measured, too")
    parser.add_argument(
        "--texts",
        type=Path,
        nargs="+",
        default=[LIVES / "test"],
        help="lives, or files of public chats; the English ones",
    )
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "peers", help="default: %(default)s")


def run(options: argparse.Namespace) -> Iterator[Section]:
    print(f"Environments and figures are kept in {options.cache}.", flush=True)
    products = [PRODUCTS[name] for name in options.only]
    size = QUICK if options.quick else FULL
    worlds = [world for path in options.texts for world in sets.load(path) if world.language in (None, "en")]
    users = users_of(worlds, size)
    told = compared(products, options.cache, users, size, install=options.install, again=options.again)
    kept = [(product, result) for product, result in told if result is not None]
    if options.install or not kept:
        return
    notes = [f"- {product.name} {result['version']}: {product.said}. {result['when']}." for product, result in kept]
    yield Section(
        f"{size.memories:,} memories of {size.users} users",
        rows_of({product.name: result["figures"] for product, result in kept}),
        met=len(kept) == len(products),
        notes=[*notes, "", NOT_SHOWN],
        figures=[{"product": product.name, **result} for product, result in kept],
    )


def compared(
    products: Sequence[Product], cache: Path, users: Sequence[User], size: Size, *, install: bool, again: bool
) -> Iterator[tuple[Product, dict[str, Any] | None]]:
    """Each product with its result; None where it did not install, start or answer, which is said on standard error."""
    for product in products:
        try:
            home = installed(product, cache)
            if install:
                continue
            file = cache / "figures" / f"{product.name}-{size.memories}.json"
            key = sha256(f"{product.revision()}{size}{users}".encode()).hexdigest()
            result: dict[str, Any] = json.loads(file.read_text()) if file.exists() and not again else {}
            if result.get("key") != key:
                result = {"key": key, **result_of(product, home, cache, users, size)}
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(result, indent=2) + "\n")
            yield product, result
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the others are measured all the same)
            print(f"{product.name}: {error!r}; its output: {cache}/{product.name}.log", file=sys.stderr)
            yield product, None


def installed(product: Product, cache: Path) -> Path:
    """Returns the folder of the product's environment; makes it if it is missing or of other versions."""
    wanted = product.requirements.read_text()
    home = cache / "environments" / product.requirements.stem
    done = home / "requirements.txt"
    if not done.exists() or done.read_text() != wanted:
        print(f"{product.name}: installing …", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([python_for(product), "-m", "venv", home], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-qq", "--requirement", str(product.requirements)]
        subprocess.run(pip, check=True)
        shutil.copy(product.requirements, done)
    return home


def python_for(product: Product) -> Path:
    """The Python that runs this, or the first of PATH that can run the product's probe."""
    for path in (Path(sys.executable).parent, *map(Path, os.environ["PATH"].split(os.pathsep))):
        python = path / "python3"
        if (
            python.exists()
            and not subprocess.run([python, "-c", product.probe], check=False, stderr=subprocess.DEVNULL).returncode
        ):
            return python
    raise RuntimeError(f"no python3 of PATH can run: {product.probe}")


def result_of(product: Product, home: Path, cache: Path, users: Sequence[User], size: Size) -> dict[str, Any]:
    """Each product has an embedding service of its own, which knows no text yet."""
    print(f"{product.name}: measuring …", file=sys.stderr, flush=True)
    python = home / "bin" / "python"
    service = serving(lambda port: ("-m", "benchmarks.peers.embeddings", str(port)), {})
    with service as embedding, folder() as data, (cache / f"{product.name}.log").open("wb") as log:
        Path(data).chmod(0o755)  # PostgreSQL runs as another user where this one is root
        figures = measured(product, Place(python, Path(data), f"{embedding.url}/v1", log), users, size, embedding)
    figures["installed, MB"] = round(product.size(home) / 1e6)
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    return {"product": product.name, "version": product.version(python), "when": when, "figures": figures}


def rows_of(figures: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """A row for each figure, with a column for each product."""
    names = list(dict.fromkeys(name for of_one in figures.values() for name in of_one))
    return [{"": name, **{product: of_one.get(name) for product, of_one in figures.items()}} for name in names]
