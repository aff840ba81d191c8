"""A log that machines read."""

from __future__ import annotations

import json
import logging
import sys
from uuid import uuid4

from whippletree.cli.json_log import JsonFormatter


def record(words: str, *arguments: object, **extra: object) -> logging.LogRecord:
    return logging.getLogger("whippletree.test").makeRecord(
        "whippletree.test", logging.WARNING, "file.py", 1, words, arguments, None, extra=extra
    )


def test_a_record_is_one_object_with_the_fields_that_were_added() -> None:
    stream_id = uuid4()
    line = JsonFormatter().format(record("the lease of %s\nis lost", "it", stream_id=stream_id, attempts=3))
    assert "\n" not in line
    written = json.loads(line)
    assert written.pop("time").endswith("+00:00")
    assert written == {
        "level": "warning",
        "logger": "whippletree.test",
        "message": "the lease of it\nis lost",
        "stream_id": str(stream_id),
        "attempts": 3,
    }


def test_a_field_that_was_added_does_not_hide_what_every_record_has() -> None:
    written = json.loads(JsonFormatter().format(record("words", level="mine", error="mine")))
    assert written["level"] == "warning"
    assert written["error"] == "mine"


def test_a_traceback_is_a_field() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        failed = record("failed")
        failed.exc_info = sys.exc_info()
    assert "ValueError: bad" in json.loads(JsonFormatter().format(failed))["error"]
