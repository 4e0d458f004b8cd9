"""The log of a server on standard error: lines of text, or of JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from kstore.cli.output import LIBRARY_LOGGER

if TYPE_CHECKING:
    from kstore.cli.output import Output

_ACCESS = "kstore.serve.access"


class _Lines(logging.Handler):
    """Hands each message to the command's output, as a line."""

    def __init__(self, out: Output, *, is_json: bool) -> None:
        super().__init__()
        self._out = out
        self._is_json = is_json

    def emit(self, record: logging.LogRecord) -> None:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        if not self._is_json:
            self._out.log_line(f"{time} {record.levelname} {record.getMessage()}")
            if record.exc_info:
                self._out.log_line(logging.Formatter().formatException(record.exc_info))
            return
        fields: dict[str, Any] = {"time": time, "level": record.levelname, "logger": record.name}
        own = getattr(record, "fields", None)
        fields |= {"message": record.getMessage()} if own is None else own
        if record.exc_info:
            fields["error"] = logging.Formatter().formatException(record.exc_info)
        self._out.log_line(json.dumps(fields))


@contextmanager
def logged(out: Output, *, log_format: str, is_access_logged: bool) -> Iterator[None]:
    """Write what the library logs with the time, in place of the notices that other commands make of it; requests too
    where that is wanted."""
    library, access = logging.getLogger(LIBRARY_LOGGER), logging.getLogger(_ACCESS)
    handler = _Lines(out, is_json=log_format == "json")
    level = access.level
    out.hidden_loggers.add(LIBRARY_LOGGER)
    library.addHandler(handler)
    access.setLevel(logging.INFO if is_access_logged else logging.WARNING)
    try:
        yield
    finally:
        library.removeHandler(handler)
        access.setLevel(level)
        out.hidden_loggers.discard(LIBRARY_LOGGER)
