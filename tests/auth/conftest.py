"""An issuer of tokens over real HTTP, and a service that accepts them."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest

from app.settings import OidcSettings, Settings
from tests.conftest import Service, Starter
from tests.support.issuer import AUDIENCE, Issuer, issuing


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")  # for the issuer itself: http is enough on this machine
    with issuing() as found:
        yield found


@pytest.fixture
def accepting(settings: Settings, issuer: Issuer) -> Settings:
    """Settings of a service that accepts the issuer's tokens; their claim `tenant` names the tenant."""
    oidc = OidcSettings(issuer=issuer.url, audience=f"other {AUDIENCE}", tenant_claim="tenant")
    return settings.model_copy(update={"oidc": oidc})


@pytest.fixture
async def guarded(start: Starter, accepting: Settings) -> AsyncIterator[Service]:
    """The issuer dates its tokens by the real clock; the service's clock begins there and is moved by tests."""
    async with start(accepting) as service:
        service.clock.time = datetime.now(UTC)
        yield service
