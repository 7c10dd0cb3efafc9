"""Logs as JSON lines on standard error; never a secret, never a memory's text."""

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import orjson

from app.clock import rfc3339

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[0]:
            # where and what kind; the message of an exception may quote what somebody sent
            line["error"] = record.exc_info[0].__name__
            line["stack"] = traceback.format_tb(record.exc_info[2])
        return orjson.dumps(line, default=str).decode()


def configure(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("uvicorn.access", "httpx", "httpx2", "huggingface_hub"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # quotes what it was sent; our tools log their own faults
