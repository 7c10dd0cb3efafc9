"""What a tenant stores: its records and their bytes, which engines count in the commit that changes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Usage:
    """A number of records and their bytes, without indexes: as JSON in the embedded store, as BSON in MongoDB."""

    records: int = 0
    bytes: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.records + other.records, self.bytes + other.bytes)


UsageByTenant: TypeAlias = Mapping[str, Mapping[str, Usage]]
"""Usage by tenant and collection, without those that have nothing."""


def total(usage: Mapping[str, Usage]) -> Usage:
    """Returns the sum over all collections."""
    return sum(usage.values(), Usage())


def nonzero(counted: Mapping[str, Mapping[str, Usage]]) -> dict[str, dict[str, Usage]]:
    """Returns the same usage without collections and tenants that have nothing."""
    kept = {tenant: {name: one for name, one in own.items() if one != Usage()} for tenant, own in counted.items()}
    return {tenant: own for tenant, own in kept.items() if own}


def differences(stored: UsageByTenant, counted: UsageByTenant) -> list[str]:
    """Returns a sentence for each tenant whose stored usage is not the one that was counted."""
    return [
        f"tenant {tenant} is said to have {_said(stored, tenant)} and has {_said(counted, tenant)}"
        for tenant in sorted({*stored, *counted})
        if stored.get(tenant, {}) != counted.get(tenant, {})
    ]


def _said(usage: UsageByTenant, tenant: str) -> str:
    whole = total(usage.get(tenant, {}))
    return f"{whole.records} records of {whole.bytes} bytes"


@dataclass(frozen=True, slots=True)
class StoredTotals:
    """What all tenants store together: how many tenants have records, and the usage by collection."""

    tenants: int
    collections: Mapping[str, Usage]


class Accounting(Protocol):
    """Reads and repairs the usage of tenants. Collections count if they are declared `counted`."""

    async def stored(self) -> UsageByTenant:
        """Returns the usage of every tenant, as kept up by the commits."""
        ...

    async def totals(self) -> StoredTotals:
        """Returns the sums over all tenants, added up by the engine. Raises StoreUnavailable."""
        ...

    async def recount(self) -> list[str]:
        """Counts every record and corrects the stored usage. Returns a sentence for each tenant that was wrong."""
        ...
