"""What decides whether a claim takes a stream is written once: the claim, `why` and `status` ask the same function."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.tree import PACKAGE, files

_NOW = r"(?:COALESCE\()?(?:[pv]_as_of|clock_timestamp|now\()"
_COMPARED = r"\s*(?:<>|[<>]=?|=)\s*"
_SETS = re.compile(r"\bSET\b(?:(?!\bWHERE\b|\bFROM\b|;).)*", re.DOTALL)
WRITTEN_OUT = {
    "is_ready": rf"\bready_at{_COMPARED}{_NOW}",
    "is_parked": rf"\b(?:ready_at|retry_at){_COMPARED}'infinity'",
    "is_leased": rf"\blease_expiry{_COMPARED}{_NOW}",
    "is_ahead": rf"\b(?:scheduled_for|due_at|retry_at){_COMPARED}{_NOW}",
    "is_open_to": r"=\s*ANY\s*\(\s*(?:p_owners|owners_served)\b",
    "run_length": r"\battempts\s*<\s*p_max_attempts\s+THEN",
    "works_queue": r"\bqueues\s*&&",
}
"""By the function that is to be asked: how its condition looks where somebody writes it out instead."""


def test_a_condition_of_the_claim_is_written_once() -> None:
    asking = files("src/whippletree/sql/functions", "src/whippletree/sql/views", suffix=".sql")
    asking += files("src/whippletree", suffix=".py")
    written = {
        (file.stem, name)
        for file in asking
        for name, words in WRITTEN_OUT.items()
        if file.stem != name and re.search(words, _conditions(file))
    }
    assert not written, "ask the function"


def test_postgresql_can_put_a_condition_of_the_claim_in_place_of_its_call() -> None:
    """One that sets something, or is read anew at every call, would be called for each stream and find no index."""
    for name in WRITTEN_OUT:
        text = (PACKAGE / "sql" / "functions" / f"{name}.sql").read_text(encoding="utf-8")
        assert re.search(r"^LANGUAGE sql IMMUTABLE PARALLEL SAFE\nRETURN ", text, re.MULTILINE), name


def _conditions(file: Path) -> str:
    """The text without its comments, and without what it sets."""
    text = file.read_text(encoding="utf-8")
    return _SETS.sub("", re.sub(r"--.*", "", text)) if file.suffix == ".sql" else text
