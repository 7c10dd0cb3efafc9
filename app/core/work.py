"""For whom the work of this context is done: the tenant, for fair turns, and the account that pays for it.

Work is priced in units. A unit is about a millisecond of one core, as measured with the default model.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias

CHARACTERS_PER_UNIT = 32
"""Characters of English that the default model embeds in a millisecond."""
BODY_BYTES_PER_UNIT = 100_000
SEARCH_UNITS = 2.0
SEARCHED_PER_UNIT = 10_000
"""Records of a scope that a search scores in a millisecond, in addition to `SEARCH_UNITS`."""
CONTEXT_UNITS = 5.0
"""A context without its searches."""

Account: TypeAlias = Callable[[float], None]
"""Takes units of work."""

_TENANT: ContextVar[str] = ContextVar("tenant_at_work", default="")
_ACCOUNT: ContextVar[Account | None] = ContextVar("account", default=None)


def work_for(tenant: str) -> None:
    """Assigns the work of this context, and of tasks started in it, to a tenant."""
    _TENANT.set(tenant)


def tenant_at_work() -> str:
    """Returns the tenant of this context; empty if there is none."""
    return _TENANT.get()


def charge_to(account: Account | None) -> None:
    """Makes an account pay for the work of this context, and of tasks started in it. None: nobody pays."""
    _ACCOUNT.set(account)


def charge(units: float) -> None:
    """Charges work, before it is done, to the account of this context, if there is one."""
    account = _ACCOUNT.get()
    if account is not None:
        account(units)
