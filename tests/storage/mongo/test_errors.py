"""What the server's errors become for callers."""

import pytest
from pymongo.errors import BulkWriteError, OperationFailure

from app.errors import StorageFull, StoreUnavailable
from app.storage.mongo.connection import AUTHENTICATION, OUT_OF_SPACE, explained

OVER_QUOTA = "you are over your space quota, using 513 MB of 512 MB"


@pytest.mark.parametrize(
    "error",
    [
        OperationFailure("not enough disk space", OUT_OF_SPACE),
        BulkWriteError({"writeErrors": [{"code": OUT_OF_SPACE, "index": 0, "errmsg": "not enough disk space"}]}),
        OperationFailure(OVER_QUOTA, max(AUTHENTICATION)),
    ],
)
def test_a_full_disk_is_named(error: OperationFailure) -> None:
    found = explained(error)
    assert isinstance(found, StorageFull)
    assert (found.status, found.code, found.retry_after) == (503, "storage_full", 30)


def test_wrong_credentials_are_no_full_disk() -> None:
    found = explained(OperationFailure("bad auth: authentication failed", max(AUTHENTICATION)))
    assert isinstance(found, StoreUnavailable)
    assert not isinstance(found, StorageFull)
    assert "credentials" in found.detail
