"""Which runtime a setting chooses, and what is said where it is not there."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.embedding.factory import DEFAULT_MODEL, begin_loading, load_any, load_model, open_embedder
from app.embedding.model import ExtraOptions, Prompts, Server, knows_all_scripts
from app.embedding.onnx import DATA, TAUGHT, OnnxModel
from app.errors import EmbeddingUnavailable
from app.settings import EmbeddingSettings
from tests.support.scripted import scripted_server
from tests.support.server import ROOT, recalld
from tests.support.tuned import tuned


def test_an_extra_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "app.embedding.sentence_transformers", raising=False)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)  # the import system's own word for "not here"
    with pytest.raises(EmbeddingUnavailable, match=r"needs the extra sentence-transformers, .*scripts/extra sentence"):
        load_any("sentence-transformers:m")


def test_the_multilingual_model_that_is_not_here_is_named_with_its_command(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingUnavailable, match=r"`scripts/extra multilingual`") as refused:
        load_model("multilingual", models=tmp_path)
    assert "\n" not in refused.value.detail
    assert str(tmp_path) in refused.value.detail


def test_the_multilingual_model_is_the_folder_that_the_extra_makes(tmp_path: Path) -> None:
    folder = tmp_path / "multilingual-e5-small-aligned"
    folder.mkdir()
    (folder / "model.onnx").symlink_to(TAUGHT.file)
    shutil.copy(DATA / "tokenizer.json", folder)
    (folder / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "query: ", "passage": "passage: "}}'
    )
    model = load_model("multilingual", models=tmp_path)
    assert model.name.startswith("multilingual-e5-small-aligned:onnx-")
    assert model.prompts == Prompts("query: ", "passage: ")
    assert knows_all_scripts(model.name)
    assert not knows_all_scripts(load_model(DEFAULT_MODEL).name)


def test_the_service_does_not_start_and_says_why(tmp_path: Path) -> None:
    with scripted_server() as gone:
        url = gone.url
    settings = {"RECALLD_EMBEDDING_MODEL": "openai:m", "RECALLD_EMBEDDING_BASE_URL": url}
    ended = recalld(tmp_path / "data", command=tuned(embedding_seconds=0.5), **settings)
    assert ended.returncode == 1
    assert f"{url}: the embedding server cannot be reached" in ended.stderr
    assert "Traceback" not in ended.stderr


def in_a_new_process(code: str) -> str:
    code = f"import sys, app.cli.main, app.main; {code}"
    return subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True).stdout


def test_no_extra_and_no_mcp_sdk_is_imported_unasked() -> None:
    heavy = {"mcp", "openai", "torch", "transformers", "sentence_transformers"}
    assert not heavy & set(in_a_new_process("print(*sys.modules)").split())


def test_the_hubs_client_sends_no_telemetry() -> None:
    code = "import huggingface_hub.constants as c; print(c.HF_HUB_DISABLE_TELEMETRY)"
    assert in_a_new_process(code).strip() == "True"


@pytest.mark.anyio
async def test_what_was_begun_is_taken_when_the_options_are_the_same() -> None:
    with scripted_server() as server:
        options = ExtraOptions(server=Server(base_url=server.url))
        begin_loading("openai:m", options=options)
        embedder = await open_embedder("openai:m", options=ExtraOptions(server=Server(base_url=server.url)))
        await embedder.close()
        assert len(server.seen) == 1


def test_the_built_in_model_needs_none_of_it() -> None:
    assert isinstance(load_any(DEFAULT_MODEL), OnnxModel)


def test_options_are_the_settings() -> None:
    chosen = EmbeddingSettings.model_validate({"base_url": "http://127.0.0.1:1/v1", "api_key": "k", "dimensions": 5})
    assert ExtraOptions.of(chosen, 2) == ExtraOptions(8192, Server("http://127.0.0.1:1/v1", "k", 5, 2))
    assert ExtraOptions.of(EmbeddingSettings()) == ExtraOptions()
    assert "'k'" not in repr(chosen) + repr(ExtraOptions.of(chosen))


@pytest.mark.parametrize("url", ["", "ftp://a/v1", "a.example/v1", "https://user:password@a.example/v1", "http://a b"])
def test_an_address_that_is_none_or_holds_a_password_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        EmbeddingSettings(base_url=url)
