from collections.abc import Iterator

import pytest

from tests.support.model import Model, scripted_model


@pytest.fixture
def llm() -> Iterator[Model]:
    with scripted_model() as model:
        yield model
