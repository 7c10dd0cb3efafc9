"""Single bits, torn, zeroed and swapped pages in each file of an embedded store at rest: each is noticed, or touches
nothing. None is served. What is altered in the log under a running process is not noticed (decision 17)."""

import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import RecordDamaged, StoreDamaged, StoreUnavailable
from app.storage.changes import Update
from app.storage.sqlite.connections import checkpoint
from app.storage.sqlite.store import FILE_NAME, EmbeddedOptions, EmbeddedStore
from tests.stress.size import size
from tests.support.declared import DIM, ENTRIES, NUMBERED, THINGS, T, ask, entry, thing

pytestmark = [pytest.mark.anyio, pytest.mark.stress]

SECTOR, PAGE = 512, 8192
FILES = (FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-commits")
COLLECTIONS = (THINGS, NUMBERED, ENTRIES)
Image = dict[str, bytes]
Spoil = Callable[[random.Random, Image], Image]


async def opened(folder: Path) -> EmbeddedStore:
    return await EmbeddedStore.open(folder, COLLECTIONS, EmbeddedOptions(busy_timeout_ms=50), dim=DIM)


async def crash_image(folder: Path) -> Image:
    """The files of a store whose process was killed: half of its pages are in the database, and half in the log."""
    store = await opened(folder)
    try:
        for number in range(80):
            vector = np.eye(DIM, dtype=np.float32)[number % DIM]
            # values of one page, and of several: of the text and of the search row
            name = f"{number:03} " * (5_000 if number % 4 == 0 else 200)
            words = " ".join(f"{number}x{which}" for which in range(1_500 if number % 5 == 0 else 1))
            await store.commit([thing(f"t{number}", name=name), entry(f"tea {words}", f"e{number}", vector=vector)])
            if number == 40:
                checkpoint(store.writer._connection)
            if number in (60, 70):
                await store.commit([Update(THINGS, T, f"t{number - 40}", set={"name": "y" * 900})])
        return {name: (folder / name).read_bytes() for name in FILES}
    finally:
        await store.close()


async def served(folder: Path) -> Any:
    """Everything that can be asked of the store: documents by list and by id, and what a search gets."""
    store = await opened(folder)
    try:
        things = await store.find(THINGS, T, limit=500)
        entries = await store.find(ENTRIES, T, limit=500)
        single = [await store.get(THINGS, T, f"t{number}") for number in range(80)]
        found = await store.search(ENTRIES, ask("tea", vector=np.eye(DIM, dtype=np.float32)[0]))
        fetched = await store.fetch(ENTRIES, T, found.rows)
        documents = sorted(one.doc["entry_id"] for one in fetched if one is not None)
        columns = [part.tolist() for part in (found.cosine, found.term_counts, found.length, found.time, found.flags)]
        counts = [await store.count(one, T) for one in COLLECTIONS]
        await store.check()
        return things, entries, single, documents, columns, counts
    finally:
        await store.close()


def bit(dice: random.Random, image: Image) -> Image:
    name = dice.choices(FILES, (10, 10, 1))[0]
    content = bytearray(image[name])
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    return {**image, name: bytes(content)}


def torn(dice: random.Random, image: Image) -> Image:
    """Some sectors of a page are zeros, noise, or those of another page."""
    name = dice.choice(FILES[:2])
    content = bytearray(image[name])
    start = dice.randrange(len(content) // SECTOR) * SECTOR
    end = min(len(content), start + SECTOR * dice.randint(1, PAGE // SECTOR - 1))
    other = dice.randrange(len(content) - (end - start))
    new = (bytes(end - start), dice.randbytes(end - start), bytes(content[other : other + end - start]))
    content[start:end] = dice.choice(new)
    return {**image, name: bytes(content)}


def cut(dice: random.Random, image: Image) -> Image:
    name = dice.choice(FILES[:2])
    return {**image, name: image[name][: dice.randrange(len(image[name]))]}


def zeroed(dice: random.Random, image: Image) -> Image:
    """A page of the database became zeros, whose checksum is right."""
    content = bytearray(image[FILE_NAME])
    start = dice.randrange(1, len(content) // PAGE) * PAGE
    content[start : start + PAGE] = bytes(PAGE)
    return {**image, FILE_NAME: bytes(content)}


def swapped(dice: random.Random, image: Image) -> Image:
    """Two pages of the database, each with its checksum, have changed places."""
    pages = [image[FILE_NAME][start : start + PAGE] for start in range(0, len(image[FILE_NAME]), PAGE)]
    one, other = dice.sample(range(1, len(pages)), 2)
    pages[one], pages[other] = pages[other], pages[one]
    return {**image, FILE_NAME: b"".join(pages)}


async def outcomes(folder: Path, image: Image, spoil: Spoil, rounds: int) -> Counter[str]:
    """How often damage was noticed, touched nothing, and was served."""
    write(folder, image)
    truth = await served(folder)
    dice, seen = random.Random(rounds), Counter[str]()
    for _ in range(rounds):
        write(folder, spoil(dice, image))
        try:
            same = await served(folder) == truth
        except (StoreDamaged, RecordDamaged):
            seen["noticed"] += 1
        except StoreUnavailable as error:
            seen["noticed" if "newer version" in error.detail else "unnamed"] += 1
        except Exception:  # noqa: BLE001 (an answer of 500: no content, and no word about the store)
            seen["unnamed"] += 1
        else:
            seen["touched nothing" if same else "served"] += 1
    return seen


def write(folder: Path, image: Image) -> None:
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    for name, content in image.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "rounds"),
    [
        (bit, size(40, 2_000)),
        (torn, size(20, 200)),
        (cut, size(10, 200)),
        (zeroed, size(40, 500)),
        (swapped, size(40, 500)),
    ],
    ids=["bit", "torn", "cut", "zeroed", "swapped"],
)
async def test_damage_is_noticed_or_touches_nothing(tmp_path: Path, spoil: Spoil, rounds: int) -> None:
    image = await crash_image(tmp_path / "made")
    seen = await outcomes(tmp_path / "spoilt", image, spoil, rounds)
    print(f"{spoil.__name__}: {dict(seen)}")
    assert set(seen) <= {"noticed", "touched nothing"}
    assert seen["noticed"] > rounds / 4


def checksum(page: bytes) -> bytes:
    """What `cksumvfs` writes at the end of a page."""
    first = second = 0
    for one, other in struct.iter_unpack("<II", page):
        first = (first + one + second) % 2**32
        second = (second + other + first) % 2**32
    return struct.pack("<II", first, second)


async def test_damage_with_right_checksums_and_without_the_note_is_seen_as_served(tmp_path: Path) -> None:
    """The planted bug: damage that neither checksums nor the note of commits can show."""
    image = await crash_image(tmp_path / "made")
    del image[FILES[2]]

    def bit_of_database(dice: random.Random, before: Image) -> Image:
        content = bytearray(before[FILE_NAME])
        place = dice.randrange(PAGE, len(content))
        begin = place - place % PAGE
        assert content[begin + PAGE - 8 : begin + PAGE] == checksum(bytes(content[begin : begin + PAGE - 8]))
        content[place] ^= 1 << dice.randrange(8)
        content[begin + PAGE - 8 : begin + PAGE] = checksum(bytes(content[begin : begin + PAGE - 8]))
        return {**before, FILE_NAME: bytes(content)}

    def cut_log(dice: random.Random, before: Image) -> Image:
        return {**before, FILES[1]: before[FILES[1]][: dice.randrange(len(before[FILES[1]]))]}

    assert (await outcomes(tmp_path / "spoilt", image, cut_log, 5))["served"] > 0
    seen = await outcomes(tmp_path / "spoilt", image, bit_of_database, 40)
    assert seen["served"] > 0
