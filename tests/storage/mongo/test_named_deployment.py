"""What `RECALLD_TEST_MONGODB_URI` promises: tests leave a deployment that was named as they found it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.mongodb import start_mongodb

ROOT = Path(__file__).parents[3]


def test_no_database_is_left_behind_and_none_that_was_there_is_touched(tmp_path: Path) -> None:
    with start_mongodb(tmp_path / "data", durable=False) as named, named.client() as client:
        for database in ("recalld", "recalld_test_of_another"):
            client[database]["agent_memories"].insert_one({"_id": 1, "content": "green tea"})
        before = sorted(client.list_database_names())
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/test_usage.py"]
        given = {**os.environ, "RECALLD_TEST_MONGODB_URI": named.uri, "RECALLD_TEST_ENGINES": "mongodb"}
        done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3_000:]
        assert " passed" in done.stdout or "100%" in done.stdout
        assert sorted(client.list_database_names()) == before
        for database in ("recalld", "recalld_test_of_another"):
            assert list(client[database]["agent_memories"].find()) == [{"_id": 1, "content": "green tea"}]
