"""Erasure: after each, no file of the data directory has a byte of the user's."""

from app.storage.sqlite import set_wide
from scripts.battery_parts.row import Row
from scripts.battery_parts.service import service
from tests.retention.lives import Life, bytes_with


async def erasure(rounds: int) -> Row:
    hits, kept = 0, 0
    async with service() as made:
        directory = made.resources.settings.data_dir
        for number in range(rounds):
            canary = f"canary{number:03}x7f3a9c"
            await Life(made.client, canary).lived()
            await Life(made.client, f"other{number}").lived()
            receipt = (await made.client.delete(f"/v1/users/{canary}")).json()
            hits += sum(bytes_with(directory, canary).values())
            hits += sum(receipt["verification"].values())
            kept += bool(bytes_with(directory, f"other{number}"))
        caught = await _planted()
    figures = {"erasures": rounds, "bytes found": hits, "others still there": kept}
    return Row("byte scans of the data directory", figures, hits + (rounds - kept), caught)


async def _planted() -> bool:
    """Deleted, but not overwritten."""
    whole = set_wide.scrub
    set_wide.scrub = lambda path, busy_timeout_ms: None
    try:
        async with service() as made:
            await Life(made.client, "canaryplanted").lived()
            await made.client.delete("/v1/users/canaryplanted")
            return bool(bytes_with(made.resources.settings.data_dir, "canaryplanted"))
    finally:
        set_wide.scrub = whole
