"""The environment in which the extra `encryption` is installed, and keys of stores.

`scripts/encryption` makes it. Where it is missing, tests that need it are skipped and say so; with
`RECALLD_TEST_ENCRYPTION=required`, as in CI, they fail.
"""

import os

import apsw
import pytest

from tests.support.server import ROOT

KEY, OTHER_KEY = "5a" * 32, "c3" * 32
_PYTHON = ROOT / ".venv-encryption" / "bin" / "python"


def can_encrypt() -> bool:
    """Whether this process has the extra."""
    return any(name.startswith("multipleciphers-") for name in apsw.vfs_names())


@pytest.fixture(scope="session")
def encrypting_python() -> str:
    """The interpreter that has the extra."""
    if not _PYTHON.exists():
        missing = "the extra `encryption` is not installed for tests: run scripts/encryption"
        if os.environ.get("RECALLD_TEST_ENCRYPTION") == "required":
            pytest.fail(missing)
        pytest.skip(missing)
    return str(_PYTHON)
