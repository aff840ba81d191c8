"""No statement needs a newer server than the oldest that is promised, while the tests run on the newest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.tree import files, name_of, parsed
from whippletree.store.schema import OLDEST_SERVER

STATEMENT = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|SET|SHOW|ALTER|GRANT)\b")
# What is easily written, and since when it is understood. Not all that is new: `WHIPPLETREE_TEST_DSN` tells the rest.
NEW_WORDS = {
    15: r"MERGE INTO|NULLS NOT DISTINCT|ON PARAMETER|security_invoker|regexp_(?:count|instr|like|substr)|"
    r"pg_stat_force_next_flush",
    16: r"IS (?:NOT )?JSON|JSON_(?:ARRAY|ARRAYAGG|OBJECT|OBJECTAGG)|SYSTEM_USER|any_value|array_(?:sample|shuffle)|"
    r"date_(?:add|subtract)|pg_input_(?:is_valid|error_info)|random_normal|pg_stat_io|\d+_\d+",
    17: r"JSON_(?:TABLE|EXISTS|QUERY|VALUE|SCALAR|SERIALIZE)|AT LOCAL|MAINTAIN|ON_ERROR|merge_action|"
    r"transaction_timeout|random\([^()]|to_(?:bin|oct)|uuid_extract_(?:timestamp|version)|pg_basetype",
    18: r"RETURNING (?:WITH|OLD|NEW)\b|WITHOUT OVERLAPS|VIRTUAL|NOT ENFORCED|uuidv[47]|array_(?:sort|reverse)|casefold|"
    r"crc32c?|pg_get_acl",
}
LATER = re.compile(
    "|".join(rf"(?<![\w.])(?:{words})(?!\w)" for since, words in NEW_WORDS.items() if since > OLDEST_SERVER)
)


def test_no_statement_needs_a_newer_server_than_is_promised() -> None:
    found = {where: LATER.findall(text) for where, text in _statements()}
    assert not {where: words for where, words in found.items() if words}


def test_every_subquery_has_a_name() -> None:
    """Version 16 and later do without."""
    assert not {where: nameless for where, text in _statements() if (nameless := _nameless(text))}
    assert _nameless("SELECT * FROM (SELECT (1)) WHERE true") == ["SELECT (1)"]
    assert _nameless("SELECT * FROM (SELECT (1)) AS t JOIN (VALUES (1)) v ON true") == []


def test_what_is_newer_would_be_found() -> None:
    for newer in ("MERGE INTO t", "SELECT any_value(x)", "SELECT 1_000", "SELECT random(1, 6)", "SELECT uuidv7()"):
        assert LATER.search(newer), newer
    for old in ("SELECT random()", "SET enable_mergejoin = off", "v_any_value", "'2040-01-01'", "p_1"):
        assert not LATER.search(old), old


def _nameless(text: str) -> list[str]:
    found = []
    for start in re.finditer(r"\b(?:FROM|JOIN|LATERAL)\s*\(\s*(?=SELECT|VALUES|WITH)", text):
        depth, end = 1, start.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if not re.match(r"\s*(?!(?:WHERE|ORDER|GROUP|LIMIT|UNION|LEFT|CROSS|JOIN|ON)\b)\w", text[end:]):
            found.append(text[start.end() : end - 1])
    return found


def _statements() -> Iterator[tuple[str, str]]:
    for file in files("src", suffix=".sql"):
        yield name_of(file), re.sub(r"--.*", "", file.read_text(encoding="utf-8"))
    for file in files("src", suffix=".py"):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and STATEMENT.search(node.value):
                yield f"{name_of(file)}:{node.lineno}", node.value
