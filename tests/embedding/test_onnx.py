import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from app.embedding.factory import load_model
from app.embedding.onnx import DATA, TAUGHT, TOKENIZER, OnnxModel, load_folder, load_packaged, narrow, read_tokenizer
from app.errors import EmbeddingUnavailable

TEXTS = [
    "I love hiking",
    "short",
    "",
    "She went to a support group on the 7th of May and it was powerful " * 3,
    "你好",
    "👋",
]


def test_a_paraphrase_is_nearer_than_another_subject(minilm: OnnxModel) -> None:
    a, b, c = minilm.encode(["My dog is called Rex", "The name of my dog is Rex", "Interest rates rose again"])
    assert a @ b > 0.8
    assert a @ c < 0.2


def test_vectors_are_the_same_on_every_machine(minilm: OnnxModel) -> None:
    vector = minilm.encode(["This is an example sentence"])[0]
    assert vector[:3] == pytest.approx([0.0568, 0.0605, -0.0027], abs=0.01)


def test_rows_are_unit_float32(minilm: OnnxModel) -> None:
    rows = minilm.encode(TEXTS)
    assert rows.shape == (len(TEXTS), minilm.dim) == (6, 384)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(6), abs=1e-5)


def test_a_vector_is_the_same_to_the_last_bit_in_any_company(minilm: OnnxModel) -> None:
    """Dynamic quantization scales by the largest value of a run: texts of several tenants must not share one."""
    alone = {text: minilm.encode([text])[0].tobytes() for text in TEXTS}
    long, many = "They moved to Boston in the spring of that year. " * 40, [f"note number {n}" for n in range(20)]
    for company in (TEXTS, TEXTS[::-1], [*TEXTS[2:], *TEXTS[:2]], [long, *TEXTS, long], [*many, *TEXTS], TEXTS * 3):
        rows = minilm.encode(company)
        for text, row in zip(company, rows, strict=True):
            assert row.tobytes() == alone.get(text, row.tobytes()), text


def test_a_vector_is_the_same_with_more_threads(minilm: OnnxModel) -> None:
    assert load_packaged(TAUGHT, threads=2).encode(TEXTS).tobytes() == minilm.encode(TEXTS).tobytes()


def test_the_word_table_that_is_mapped_is_the_one_of_the_graph(minilm: OnnxModel) -> None:
    """Were it another place of the file, the vectors would be others."""
    copied = OnnxModel("copied", TAUGHT.file.read_bytes(), read_tokenizer(TOKENIZER))
    assert copied.encode(TEXTS).tobytes() == minilm.encode(TEXTS).tobytes()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("moved to Berlin🎉", "moved to Berlin 🎉"),
        ("moved to Berlin🇩🇪❤️, at last", "moved to Berlin 🇩🇪❤️, at last"),
        ("①Berlin and 2️⃣Rome", "① Berlin and 2 \u20e3 Rome"),
        ("the train Berlin➔Munich", "the train Berlin ➔ Munich"),
        ("我搬到了Berlin🎉", "我搬到了 Berlin 🎉"),
        ("moved to Ｂｅｒｌｉｎ １０", "moved to Berlin 10"),
        ("ﾃﾞｰﾀを見た", "テータを見た"),
    ],
)
def test_a_word_next_to_a_symbol_is_read_as_it_is_elsewhere(minilm: OnnxModel, written: str, read: str) -> None:
    assert minilm.encode([written]).tobytes() == minilm.encode([read]).tobytes()


PLAIN = Tokenizer.from_file(str(TOKENIZER))
APART = read_tokenizer(TOKENIZER)
ORDINARY = st.text(
    st.characters(exclude_categories=("Cs", "Cn", "Sm", "Sc", "Sk", "So", "No", "Me")).filter(
        lambda character: not "\uff00" <= character <= "\uffef"
    )
)


@example("Ich zahle 20,50 am 3.5. für 2½ kg – “ja”, naïve!")
@example("20°C, 5€, £940, x², Berlin→Rome, ½, 1 ≤ 2, 4★, ¥500, ™, 3～5日")
@example("我搬到了柏林，三月。東京に引っ越した。Я живу в Берлине. أسكن في برلين")
@given(ORDINARY)
def test_other_texts_keep_their_tokens(text: str) -> None:
    assert APART.encode(text).ids == PLAIN.encode(text).ids
    assert narrow(text) == text


def test_the_windows_of_a_long_text_cut_no_word_at_a_symbol(minilm: OnnxModel) -> None:
    text = " ".join(f"Ｗord{at}🎉" for at in range(300))
    windows = minilm.split(text)
    assert len(windows) > 1
    assert {word for window in windows for word in window.split()} == set(narrow(text).split())


def test_only_the_first_256_tokens_count(minilm: OnnxModel) -> None:
    long = "word " * 300
    assert [len(encoding.ids) for encoding in minilm.tokenize(["two words", long])] == [4, 256]
    plain, longer = minilm.encode([long, long + "other matters"])
    np.testing.assert_array_equal(plain, longer)


def test_any_str_is_embedded(minilm: OnnxModel) -> None:
    odd = ["a\ud800b", "\x00", " " * 10_000, "a" * 1_000_000]
    assert np.isfinite(minilm.encode(odd)).all()


def test_the_name_holds_the_variant(minilm: OnnxModel) -> None:
    assert minilm.name == TAUGHT.name


@pytest.mark.parametrize("which", ["weights", "tokenizer"])
def test_a_changed_file_is_refused(which: str, tmp_path: Path) -> None:
    source = {"weights": TAUGHT.file, "tokenizer": DATA / "tokenizer.json"}[which]
    planted = bytearray(source.read_bytes())
    planted[len(planted) // 2] ^= 1
    path = tmp_path / source.name
    path.write_bytes(planted)
    with pytest.raises(EmbeddingUnavailable, match="sha256"):
        load_packaged(TAUGHT, weights=path) if which == "weights" else load_packaged(TAUGHT, tokenizer=path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingUnavailable, match=r"gone\.onnx"):
        load_packaged(TAUGHT, weights=tmp_path / "gone.onnx")


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
def test_a_folder_is_a_model_named_after_itself_and_its_weights(minilm: OnnxModel, place: str, tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    (folder / place).parent.mkdir(parents=True)
    (folder / place).symlink_to(TAUGHT.file)
    shutil.copy(DATA / "tokenizer.json", folder)
    model = load_model(str(folder))
    assert (model.name, model.dim) == (f"my-model:onnx-{TAUGHT.sha256[:8]}", 384)
    np.testing.assert_array_equal(model.encode(["hello"]), minilm.encode(["hello"]))


def test_other_weights_beside_the_same_graph_are_another_model(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").symlink_to(TAUGHT.file)
    shutil.copy(DATA / "tokenizer.json", tmp_path)
    names = {load_folder(tmp_path).name}
    for weights in (b"one", b"two"):
        (tmp_path / "model.onnx_data").write_bytes(weights)
        names.add(load_folder(tmp_path).name)
    assert len(names) == 3


def test_a_folder_that_holds_no_model_says_what_it_must_hold(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingUnavailable, match=r"tokenizer\.json"):
        load_folder(tmp_path)
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(EmbeddingUnavailable, match=r"tokenizer\.json cannot be read"):
        load_folder(tmp_path)
    shutil.copy(DATA / "tokenizer.json", tmp_path)
    with pytest.raises(EmbeddingUnavailable, match="ONNX Runtime cannot load"):
        load_folder(tmp_path)


def test_a_setting_that_names_nothing_is_refused() -> None:
    with pytest.raises(EmbeddingUnavailable, match="neither"):
        load_model("./no/such/folder")


@pytest.mark.parametrize("name", ["recalld-minilm-1.onnx", "tokenizer.json"])
def test_the_files_are_those_that_their_readme_names(name: str) -> None:
    digest = hashlib.sha256((DATA / name).read_bytes()).hexdigest()
    row = next(line for line in (DATA / "README.md").read_text().splitlines() if line.startswith(f"| `{name}`"))
    assert row.endswith(f"| `{digest}` |")


# --- Windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "short", "She went to a support group. " * 20, "word " * 250, "你好" * 120])
def test_a_text_of_one_window_is_not_split(minilm: OnnxModel, text: str) -> None:
    assert minilm.split(text) == [text]


@pytest.mark.parametrize(
    "sentence",
    [
        "She went to a support group on the 7th of May, and it was powerful. ",
        "Donaudampfschifffahrtsgesellschaftskapitän ",
        "我昨天去了公园，天气很好。",
        "https://example.org/a/b?c=0123456789&d=",
        "👋🏽 a\ud800b \x00 ",
    ],
)
def test_a_long_text_is_split_into_windows_that_the_model_reads_whole(minilm: OnnxModel, sentence: str) -> None:
    text = sentence * (16_000 // len(sentence))
    windows = minilm.split(text)
    assert len(windows) == 8
    lengths = [len(encoding.ids) for encoding in minilm.tokenize(windows)]
    assert max(lengths) <= 256
    again = [minilm.split(window) for window in windows]
    assert all(len("".join(parts[1:])) < len(window) // 4 for parts, window in zip(again, windows, strict=True))
    assert sum(lengths) > 0.8 * 8 * 256


def test_a_text_of_a_little_more_than_one_window_has_two(minilm: OnnxModel) -> None:
    sentences = [f"This is sentence number {number} of many. " for number in range(40)]
    text = "".join(sentences)
    windows = minilm.split(text)
    assert len(windows) == 2
    assert windows[0] == text[: len(windows[0])]
    assert windows[0].endswith(". ")
    assert text.endswith(windows[1])


def test_the_end_of_a_long_text_is_near_what_it_says(minilm: OnnxModel) -> None:
    text = "We talked about the weather and the garden. " * 60 + "The code of the safe is 4711."
    (query,) = minilm.encode(["what is the code of the safe?"])
    whole, *windows = minilm.encode([text, *minilm.split(text)])
    assert (np.array(windows) @ query).max() > whole @ query + 0.2


def test_any_str_is_split(minilm: OnnxModel) -> None:
    for odd in ["a\ud800b" * 500, "\x00" * 3_000, " " * 100_000, "a" * 1_000_000, "\n \n" * 5_000 + "end"]:
        windows = minilm.split(odd)
        assert 1 <= len(windows) <= 8
        assert np.isfinite(minilm.encode(windows)).all()


def test_two_threads_get_the_same_vectors_at_once(minilm: OnnxModel) -> None:
    """Queries run beside other texts, in one session."""
    texts = [f"Ada likes tea number {at} " * (1 + at % 20) for at in range(40)]
    alone = minilm.encode(texts)
    with ThreadPoolExecutor(2) as threads:
        beside = [*threads.map(minilm.encode, [texts, texts[::-1]])]
    assert np.array_equal(alone, beside[0])
    assert np.array_equal(alone, beside[1][::-1])
