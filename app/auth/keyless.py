"""Whether requests without an API key are served: only while no key was ever made for the store."""

import asyncio

from app.auth.keys import Keys
from app.auth.marker import KeysMade


class KeylessAccess:
    """Of one process. Once a key was seen it is over for good: a store that loses its keys while the process runs
    does not open the door again."""

    def __init__(self, keys: Keys, marker: KeysMade) -> None:
        self._keys, self._marker = keys, marker
        self.ended = False

    async def allowed(self) -> bool:
        """Looks into the store only while no key was seen. Raises StoreUnavailable."""
        if self.ended:
            return False
        if await self._keys.any_made():
            await self.end()
            return False
        return not self._marker.names_store()

    async def lost(self) -> bool:
        """Keys were made for this store, and it holds none. Raises StoreUnavailable."""
        if await self._keys.any_made():
            await self.end()
            return False
        return self._marker.names_store()

    async def end(self) -> None:
        """A key was seen or made. The marker file says so from now on."""
        self.ended = True
        await asyncio.to_thread(self._marker.note)
