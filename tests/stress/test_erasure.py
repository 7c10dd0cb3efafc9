"""After each erasure, no file of the data directory has a byte of the user's.

That the search finds what was deleted but not overwritten is tested in tests/retention/test_api_erasure.py.
"""

import pytest

from tests.conftest import Service
from tests.stress.size import size
from tests.support.lives import Life, bytes_with

pytestmark = [pytest.mark.anyio, pytest.mark.stress]


@pytest.mark.parametrize("engine", ["embedded"])
async def test_of_no_erased_user_a_byte_is_left(service: Service) -> None:
    directory = service.resources.settings.data_dir
    for number in range(size(2, 20)):
        gone, stays = f"canary{number:03}x7f3a9c", f"other{number}"
        await Life(service.client, gone).lived()
        await Life(service.client, stays).lived()
        receipt = (await service.client.delete(f"/v1/users/{gone}")).json()
        assert bytes_with(directory, gone) == {}
        assert not any(receipt["verification"].values())
        assert bytes_with(directory, stays) != {}
