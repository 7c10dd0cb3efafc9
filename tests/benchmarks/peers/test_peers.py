"""The comparison with other products, tried on a product of the tests; nothing is installed."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.evaluation.sets import Item, Question, World
from benchmarks.harness import Connection, Server, serving
from benchmarks.peers import compared, python_for, rows_of
from benchmarks.peers.measuring import Asked, Size, User, recalled, seconds_of, tree, turns, users_of
from benchmarks.peers.products import PRODUCTS, Place, Product

SMALL = Size(24, 2, alone=4, new=4, known=4, new_together=16, known_together=16)
FAKE = str(Path(__file__).parent / "fake_product.py")


class Fake(Product):
    starts = 0

    def start(self, place: Place) -> AbstractContextManager[Server]:
        Fake.starts += 1
        return place.serve(FAKE, after=(str(place.folder / "kept.json"),))

    def version(self, python: Path) -> str:
        return "1.0"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Its environment stands already: the Python of the tests."""
    requirements = tmp_path / "fake.txt"
    requirements.write_text("fake==1.0\n")
    home = tmp_path / "environments" / "fake"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to(sys.executable)
    (home / "requirements.txt").write_text("fake==1.0\n")
    monkeypatch.setattr(Fake, "starts", 0)
    return Fake("fake", "fake", requirements, "a product of the tests", batch=5)


@pytest.fixture
def users() -> list[User]:
    """Each question is answered by two texts, of which one is stored."""
    texts = [f"text{at} word{at}" for at in range(12)]
    return [
        User([f"{text} of{number}" for text in texts], [Asked("word3", (f"text3 word3 of{number}", "never stored"))])
        for number in range(2)
    ]


def results(fake: Fake, tmp_path: Path, users: list[User], *, again: bool = False) -> list[dict[str, Any] | None]:
    return [result for _, result in compared([fake], tmp_path, users, SMALL, install=False, again=again)]


def test_a_product_is_measured_once_and_its_figures_are_kept(fake: Fake, tmp_path: Path, users: list[User]) -> None:
    (result,) = results(fake, tmp_path, users)
    assert result is not None
    figures = result["figures"]
    assert (figures["recall@10"], figures["hits, at most 10"]) == (0.5, 10)
    assert figures["add, p50 ms"] > 0
    assert figures["new query, ms of a core"] >= figures["of it the embedding service"]
    assert figures["memory after the load, MB (PSS)"] > 1
    assert fake.starts == 2, "once for the load, once more with the memories"
    assert results(fake, tmp_path, users) == [result]
    assert fake.starts == 2, "what is measured is not measured again"
    fake.requirements.write_text("fake==1.0\n# another revision\n")
    (tmp_path / "environments" / "fake" / "requirements.txt").write_text(fake.requirements.read_text())
    assert results(fake, tmp_path, users) != [result]
    assert fake.starts == 4


def test_a_product_that_does_not_start_stops_no_other_one(
    fake: Fake, tmp_path: Path, users: list[User], capfd: pytest.CaptureFixture[str]
) -> None:
    class Broken(Fake):
        def start(self, place: Place) -> AbstractContextManager[Server]:
            return place.serve("-c", "raise SystemExit(3)")

    broken = Broken("broken", "fake", fake.requirements, "ends at once")
    told = dict(compared([broken, fake], tmp_path, users, SMALL, install=False, again=False))
    assert told[broken] is None
    assert told[fake] is not None
    assert "exit code 3" in capfd.readouterr().err


def test_users_have_as_many_texts_and_only_questions_that_these_answer() -> None:
    def world(name: str, *texts: str) -> World:
        items = tuple(Item(text, name=name) for text in texts)
        questions = (
            Question("first?", texts[:1], 9, "", ""),
            Question("all?", texts, 9, "", ""),
            Question("?", (), 9, "", ""),
        )
        return World(name, items, questions)

    size = replace(SMALL, memories=6, users=2)
    worlds = [world("Ada", "a", "b"), world("Ben", "c", "c", "d"), world("Cleo", "e", "f", "g", "h")]
    first, second = users_of(worlds, size)
    assert first.texts == ["Ada: a", "Ada: b", "Ben: c"]
    assert first.questions == [
        Asked("first?", ("Ada: a",)),
        Asked("all?", ("Ada: a", "Ada: b")),
        Asked("first?", ("Ben: c",)),
    ]
    assert second.texts == ["Cleo: e", "Cleo: f", "Cleo: g"]
    assert [asked.query for asked in second.questions] == ["first?"]
    assert [user for user, _ in turns([first, second])] == ["0", "1", "0", "0"]
    with pytest.raises(ValueError, match="enough for 1 users"):
        users_of(worlds[:2], size)


def test_a_long_conversation_is_that_of_several_users() -> None:
    items = tuple(Item(f"text {number}") for number in range(8))
    world = World("Ada", items, tuple(Question(item.content, (item.content,), 8, "", "") for item in items))
    users = users_of([world], replace(SMALL, memories=6, users=2))
    assert [user.texts for user in users] == [[f"text {at}" for at in range(3)], [f"text {at}" for at in range(3, 6)]]
    assert [[asked.query for asked in user.questions] for user in users] == [user.texts for user in users]


def test_the_share_that_was_found_knows_no_white_space() -> None:
    assert recalled(["a  b\nc"], Asked("", ("a b c", "d"))) == 0.5


def test_processor_time_is_of_all_processes_below() -> None:
    work = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'sum(range(10**7)); input()'])"
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE) as process:
        while seconds_of(tree([process.pid])) < 0.1:
            assert process.poll() is None
        assert len(tree([process.pid])) == 2
        process.communicate(b"\n")
    assert seconds_of([process.pid]) == 0


def test_a_python_is_chosen_that_can_run_the_probe(fake: Fake) -> None:
    assert python_for(fake).exists()
    with pytest.raises(RuntimeError, match="can run: import nothing_of_this_name"):
        python_for(replace(fake, probe="import nothing_of_this_name"))


def test_a_figure_that_one_product_lacks_leaves_its_cell_empty() -> None:
    rows = rows_of({"a": {"x": 1, "y": 2}, "b": {"y": 3}})
    assert rows == [{"": "x", "a": 1, "b": None}, {"": "y", "a": 2, "b": 3}]


@pytest.fixture
def embeddings() -> Iterator[Connection]:
    service = serving(lambda port: ("-m", "benchmarks.peers.embeddings", str(port)), {})
    with service as server, closing(Connection(server.url)) as connection:
        yield connection


def test_the_embedding_service_answers_as_openai_does(embeddings: Connection) -> None:
    def ask(**body: Any) -> list[dict[str, Any]]:
        answer: dict[str, Any] = json.loads(embeddings.ask("POST", "/v1/embeddings", body))
        rows: list[dict[str, Any]] = answer["data"]
        return rows

    (lone,) = ask(input="the red bicycle", model="any")
    coded = ask(input=["a blue car", "the red bicycle"], encoding_format="base64")
    assert [row["index"] for row in coded] == [0, 1]
    vector = np.frombuffer(base64.b64decode(coded[1]["embedding"]), np.float32)
    np.testing.assert_allclose(vector, np.array(lone["embedding"], np.float32), atol=1e-6)
    assert vector.size == 384


def test_every_product_pins_what_it_installs() -> None:
    for product in PRODUCTS.values():
        lines = [line.split("#")[0].strip() for line in product.requirements.read_text().splitlines()]
        names = [line for line in lines if line and not line.startswith("--hash")]
        assert names
        assert all("==" in line for line in names), product.name
        if product.package != "recalld":
            assert any(line.startswith(f"{product.package}==") for line in names)


def test_routes_of_ours_are_named_so() -> None:
    said = [PRODUCTS[name].said for name in ("mem0", "langgraph")]
    assert all("thin route of ours" in text for text in said)
