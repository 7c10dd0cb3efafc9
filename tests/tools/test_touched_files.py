"""The counter of the files that a request touches."""

from pathlib import Path
from threading import Thread

import pytest

from tools.touched_files import ROOT, Tracer, count


def test_files_count_whose_functions_ran_while_the_tracer_was_on_in_any_thread(tmp_path: Path) -> None:
    calls = {}
    for name in ("before", "during", "threaded"):
        source = f"def {name}(): return [1]\nclass Body: pass\n"
        space: dict[str, object] = {}
        exec(compile(source, str(tmp_path / f"{name}.py"), "exec"), space)
        calls[name] = space[name]
    tracer = Tracer(tmp_path)
    with tracer.installed():
        calls["before"]()  # type: ignore[operator]
        tracer.start()
        calls["during"]()  # type: ignore[operator]
        thread = Thread(target=calls["threaded"])  # type: ignore[arg-type]
        thread.start()
        thread.join()
        assert tracer.stop() == ["during.py", "threaded.py"]
        calls["before"]()  # type: ignore[operator]
    assert tracer.stop() == ["during.py", "threaded.py"]


@pytest.mark.slow
def test_one_request_of_each_kind_is_counted() -> None:
    found = count()
    assert set(found) == {"append", "search", "context"}
    assert "context/service.py" in found["context"]
    assert "memories/search.py" in found["search"]
    assert "sessions/service.py" in found["append"]
    assert all((ROOT / "app" / file).is_file() for files in found.values() for file in files)
