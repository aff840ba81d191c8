"""Log records as one JSON object a line, with the fields that their writers have added."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """Writes `time`, `level`, `logger`, `message`, whatever came in `extra`, and the traceback as `error`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # What a writer adds does not replace what every record has.
        fields = {**{name: value for name, value in vars(record).items() if name not in _STANDARD}, **fields}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)
