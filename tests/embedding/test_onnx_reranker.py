"""Cross-encoders that ONNX Runtime runs: small graphs whose scores can be computed by hand."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from app.embedding.onnx import TAUGHT, read_folder, read_session
from app.embedding.onnx_reranker import BATCH_TOKENS, MAX_TOKENS, OnnxReranker, load_reranker
from app.embedding.reranking import RerankerInvalid, RerankingFailed
from tests.support.rerankers import model_folder

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def overlap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnnxReranker]:
    reranker = load_reranker(model_folder(tmp_path_factory.mktemp("models") / "overlap", "overlap"), threads=1)
    yield reranker
    asyncio.run(reranker.close())


async def test_each_text_is_read_beside_the_query(overlap: OnnxReranker) -> None:
    texts = ["plays the violin in Boston", "violin", "nothing of it", "in in in in", ""]
    assert await overlap.score("violin in Boston", texts) == [3.0, 1.0, 0.0, 4.0, 0.0]
    assert await overlap.score("violin🎻", ["a violin🎉", "ｖｉｏｌｉｎ→drum"]) == [1.0, 1.0]


async def test_the_order_of_the_texts_and_their_batches_change_nothing(overlap: OnnxReranker) -> None:
    texts = [" ".join(["violin"] * (n % 7) + ["drum"] * (n * 11 % 97)) for n in range(100)]
    assert len(texts) * 97 > 2 * BATCH_TOKENS, "several batches"
    assert await overlap.score("violin", texts) == [float(n % 7) for n in range(100)]
    assert await overlap.score("violin", texts[::-1]) == [float(n % 7) for n in range(100)][::-1]


async def test_a_pair_that_is_too_long_is_cut_on_both_sides(overlap: OnnxReranker) -> None:
    (score,) = await overlap.score("violin " * 2_000, ["violin " * 2_000])
    assert score in (62, 63)  # of the 128 tokens that this tokenizer.json allows, three are special


async def test_no_pair_is_longer_than_ours(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "long", "overlap")
    tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "truncation": None, "padding": None}))
    reranker = load_reranker(folder, threads=1)
    (score,) = await reranker.score("violin " * 2_000, ["violin " * 2_000])
    assert score in ((MAX_TOKENS - 4) // 2, (MAX_TOKENS - 2) // 2)
    await reranker.close()


async def test_any_characters_are_scored(overlap: OnnxReranker) -> None:
    assert await overlap.score("\x00\u202e", ["\x00", "\U0001f600" * 300, "上个月", "\u0301"]) is not None


async def test_a_model_without_token_types_and_with_one_number_a_row_is_read(tmp_path: Path) -> None:
    reranker = load_reranker(model_folder(tmp_path / "brevity", "brevity"), threads=2)
    scores = await reranker.score("q", ["one two three", "one"])
    assert scores == [-7.0, -5.0]  # with [CLS] and two [SEP]
    await reranker.close()


async def test_its_name_is_the_folders_with_a_hash_of_the_weights(overlap: OnnxReranker, tmp_path: Path) -> None:
    other = load_reranker(model_folder(tmp_path / "overlap", "brevity"), threads=1)
    assert overlap.name.startswith("overlap:onnx-")
    assert other.name.startswith("overlap:onnx-")
    assert other.name != overlap.name
    await other.close()


class Gated:
    """A session whose runs wait while `open` is not set."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.open, self.entered, self.runs = Event(), Event(), 0
        self.open.set()

    def get_inputs(self) -> Any:
        return self._session.get_inputs()

    def run(self, outputs: None, feed: Any) -> Any:
        self.runs += 1
        self.entered.set()
        assert self.open.wait(60)
        return self._session.run(outputs, feed)


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[tuple[OnnxReranker, Gated]]:
    graph, _, tokenizer = read_folder(model_folder(tmp_path / "gated", "overlap"))
    session = Gated(read_session("gated", str(graph), 1))
    reranker = OnnxReranker("gated", session, tokenizer)
    yield reranker, session
    session.open.set()
    asyncio.run(reranker.close())


async def test_the_event_loop_goes_on_while_the_model_runs(gated: tuple[OnnxReranker, Gated]) -> None:
    reranker, session = gated
    session.open.clear()
    call = asyncio.create_task(reranker.score("violin", ["violin"]))
    await asyncio.sleep(0)
    session.open.set()  # by the loop, which the model does not hold up
    assert await call == [1.0]


async def test_a_call_that_was_given_up_stops_before_its_next_batch(gated: tuple[OnnxReranker, Gated]) -> None:
    reranker, session = gated
    session.open.clear()
    session.entered.clear()
    session.runs = 0
    call = asyncio.create_task(reranker.score("violin", ["violin " * 300] * 100))
    assert await asyncio.to_thread(session.entered.wait, 60)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    session.open.set()
    assert await reranker.score("violin", ["violin"]) == [1.0]
    assert session.runs == 2, "one batch of the first call, and the second call's"


async def test_a_model_that_fails_is_a_reason_without_its_words(overlap: OnnxReranker) -> None:
    class Failing(Gated):
        def run(self, outputs: None, feed: Any) -> Any:
            if self.runs:
                raise ValueError("my private text")
            return super().run(outputs, feed)

    reranker = OnnxReranker("failing", Failing(overlap._session), overlap._tokenizer)
    with pytest.raises(RerankingFailed, match=r"model failed \(ValueError\)") as caught:
        await reranker.score("q", ["a"])
    assert "private" not in str(caught.value)
    await reranker.close()


def test_what_is_no_reranker_is_refused(tmp_path: Path) -> None:
    cases = {"classes": r"gave \(2, 2\) for 2 pairs, not one each"}
    for graph, reason in cases.items():
        with pytest.raises(RerankerInvalid, match=reason):
            load_reranker(model_folder(tmp_path / graph, graph), threads=1)


def test_an_embedding_model_is_refused(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "minilm", "overlap")
    (folder / "model.onnx").write_bytes(TAUGHT.file.read_bytes())
    with pytest.raises(RerankerInvalid, match=r"the model's inputs are \['input_ids'\]"):
        load_reranker(folder, threads=1)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("model.onnx", None, "must hold tokenizer.json and model.onnx"),
        ("tokenizer.json", None, "must hold tokenizer.json and model.onnx"),
        ("model.onnx", b"no graph", "ONNX Runtime cannot load the model"),
        ("tokenizer.json", b"{}", "tokenizer.json cannot be read"),
    ],
)
def test_a_folder_that_lacks_or_breaks_a_file_is_refused(
    tmp_path: Path, file: str, content: bytes | None, reason: str
) -> None:
    folder = model_folder(tmp_path / "broken", "overlap")
    (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
    with pytest.raises(RerankerInvalid, match=reason):
        load_reranker(folder, threads=1)
