"""`recalld backup` and `recalld restore`."""

from pathlib import Path
from typing import Annotated

import typer

from app.audit.erasure_key import FILE_NAME as ERASURE_KEY
from app.auth.marker import FILE_NAME as KEYS_MADE
from app.cli.output import AsJson, as_json
from app.cli.running import on_store
from app.settings import Settings
from app.storage.opening import restore_store
from app.wiring import where_of

BESIDE_A_STORE = frozenset({KEYS_MADE, ERASURE_KEY})
"""Files of the data directory that stay when the store is lost, and are no store themselves."""


def backup(
    file: Annotated[Path, typer.Argument(help="Where to; it must not be there yet.")], as_json_: AsJson = False
) -> None:
    """Write the whole store into one file, as it is at one moment. Services may go on writing."""
    size = on_store(lambda store: store.backup(file), existing=True)
    if as_json_:
        as_json({"file": str(file), "bytes": size})
    else:
        print(f"{file}: {size:,} bytes")


def restore(
    file: Annotated[Path, typer.Argument(help="What `recalld backup` wrote.")], as_json_: AsJson = False
) -> None:
    """Put a backup into RECALLD_DATA_DIR, in which there may be no store. A damaged file is refused."""
    settings = Settings()
    size = restore_store(where_of(settings), file, beside=BESIDE_A_STORE)
    if as_json_:
        as_json({"directory": str(settings.data_dir), "bytes": size})
    else:
        print(
            f"{settings.data_dir}: {size:,} bytes. Users erased after this backup was made are in it: erase them again."
        )
