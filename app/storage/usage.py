"""What a tenant stores: its records and their bytes, which engines count in the commit that changes them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
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


def by_tenant(counted: Iterable[tuple[tuple[str, str], Usage]]) -> dict[str, dict[str, Usage]]:
    """Returns the sums of the usages of a (tenant, collection), without collections and tenants that have nothing."""
    sums: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)
    for key, usage in counted:
        sums[key] += usage
    usages: defaultdict[str, dict[str, Usage]] = defaultdict(dict)
    for (tenant, name), usage in sums.items():
        if usage != Usage():
            usages[tenant][name] = usage
    return dict(usages)


def differences(stored: UsageByTenant, counted: UsageByTenant) -> list[str]:
    """Returns a sentence for each tenant whose stored usage is not the one that was counted."""
    return [
        f"tenant {tenant} is said to have {_in_words(stored, tenant)} and has {_in_words(counted, tenant)}"
        for tenant in sorted({*stored, *counted})
        if stored.get(tenant, {}) != counted.get(tenant, {})
    ]


def _in_words(usage: UsageByTenant, tenant: str) -> str:
    whole = total(usage.get(tenant, {}))
    return f"{whole.records} records of {whole.bytes} bytes"


@dataclass(frozen=True, slots=True)
class StoredTotals:
    """What all tenants store together: how many tenants have records, and the usage by collection."""

    tenants: int
    collections: Mapping[str, Usage]

    @classmethod
    def of(cls, tenants: int, collections: Mapping[str, Usage]) -> "StoredTotals":
        """Returns the totals without collections that have nothing."""
        return cls(tenants, {name: usage for name, usage in collections.items() if usage != Usage()})


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
