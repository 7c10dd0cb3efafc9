"""One caller's texts on their way through the model."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.embedding.model import Vectors

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Request:
    """One caller's texts. The model's thread fills the rows; the future belongs to the caller's loop."""

    texts: Sequence[str]
    rows: Vectors
    future: asyncio.Future[Vectors]
    urgent: bool = False
    tenant: str = ""
    measured: int = 0  # texts whose length is known
    waiting: list[tuple[int, int]] = field(default_factory=list)  # (length, index) of those known and not yet run
    finished: int = 0
    failed: bool = False

    @property
    def dropped(self) -> bool:
        return self.failed or self.future.done()  # done before its time: the caller cancelled it

    @property
    def exhausted(self) -> bool:
        return self.measured == len(self.texts) and not self.waiting

    def measured_as(self, lengths: Sequence[int]) -> None:
        """The lengths of the next texts."""
        end = self.measured + len(lengths)
        self.waiting += zip(lengths, range(self.measured, end), strict=True)
        self.measured = end

    def put(self, index: int, vector: Vectors) -> None:
        self.rows[index] = vector
        self.finished += 1
        if self.finished == len(self.texts) and not self.failed:
            self._tell(None)

    def fail(self, error: Exception) -> None:
        if not self.failed:
            self.failed = True
            self._tell(error)

    def _tell(self, error: Exception | None) -> None:
        try:
            self.future.get_loop().call_soon_threadsafe(self._settle, error)
        except RuntimeError:
            log.debug("the caller's event loop is closed: nobody waits")

    def _settle(self, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.rows)
        else:
            self.future.set_exception(error)
