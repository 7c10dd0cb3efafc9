"""What is learned about the user is a fact about the user and shows in the profile; undo works through both."""

import pytest

from tests.conftest import Service
from tests.support.chat import talk
from tests.support.learning import end
from tests.support.memories import Json
from tests.support.model import Model

pytestmark = pytest.mark.anyio
