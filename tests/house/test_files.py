"""Files stay small, and hold nothing of the machine on which they were written."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.house.tree import everything, files, name_of, parsed

FUNCTION = re.compile(r"^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) (?:\w+\.)?(\w+)", re.MULTILINE)
# One letter of each word is in brackets, or this file would accuse itself.
FOREIGN = re.compile(r"pyp[i]\.org|pythonhoste[d]\.org|(?<![\w.])/(?:wor[k]|roo[t]|hom[e]|User[s])/")


def test_a_module_can_be_read_in_one_sitting() -> None:
    lengths = {name_of(file): len(_lines(file)) for file in files("src", suffix=".py")}
    assert not {name: length for name, length in lengths.items() if length > 300}


def test_an_sql_file_holds_one_function_of_its_name() -> None:
    for file in files("src/whippletree/sql/functions", suffix=".sql"):
        assert FUNCTION.findall(file.read_text(encoding="utf-8")) == [file.stem], name_of(file)


def test_an_sql_function_fits_a_screen() -> None:
    lengths = {}
    for file in files("src/whippletree/sql/functions", suffix=".sql"):
        lines = FUNCTION.split(file.read_text(encoding="utf-8"))[-1].splitlines()
        # Reasons are free; only what the database reads is counted.
        lengths[name_of(file)] = sum(bool(line.strip()) and not line.strip().startswith("--") for line in lines)
    assert not {name: length for name, length in lengths.items() if length > 60}


def test_rows_that_are_locked_up_to_a_limit_are_picked_once() -> None:
    """Anywhere but in a MATERIALIZED part a plan may pick again for each row that it joins, and lock more."""
    for file in files("src/whippletree/sql/functions", suffix=".sql"):
        source = re.sub("--.*", "", file.read_text(encoding="utf-8"))
        for limit in re.finditer(r"\bLIMIT\b[^()]*\bFOR (NO KEY )?UPDATE\b", source):
            assert _opening(source, limit.start()).endswith("AS MATERIALIZED"), name_of(file)


def test_no_file_names_a_package_registry_or_a_path_of_one_machine() -> None:
    found = {name_of(file): FOREIGN.findall(file.read_text(encoding="utf-8")) for file in everything()}
    assert not {name: matches for name, matches in found.items() if matches}


def test_no_test_sleeps() -> None:
    found = {name_of(file): _sleeps(file) for file in files("tests", suffix=".py")}
    sleeping = {name: lines for name, lines in found.items() if lines}
    assert not sleeping, "give the time as an argument, or wait for an event"


def test_what_is_logged_is_said_in_the_files_for_it() -> None:
    speaking = [file for file in files("src", suffix=".py") if "logging.getLogger(" in file.read_text(encoding="utf-8")]
    # The command decides where the log goes.
    assert {name_of(file) for file in speaking if file.name != "log.py"} == {"src/whippletree/cli/run.py"}


def _opening(source: str, place: int) -> str:
    """What stands before the parenthesis that a place of a source is in."""
    depth = 0
    for at in range(place - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(source[at], 0)
        if depth < 0:
            return source[:at].rstrip()
    return ""


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def _sleeps(file: Path) -> list[int]:
    calls = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.Call)]
    sleeps = [call for call in calls if ast.unparse(call.func) in ("time.sleep", "asyncio.sleep", "sleep")]
    # sleep(0) gives others their turn and waits for nothing.
    return [call.lineno for call in sleeps if ast.unparse(call) != f"{ast.unparse(call.func)}(0)"]
