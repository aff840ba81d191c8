"""Settings come from arguments, then WHIPPLETREE_* variables, then [tool.whippletree] in pyproject.toml.

A setting is one field of `Settings`, which says its default, how a text becomes its value, and its meaning.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

from whippletree.errors import InvalidSetting

PREFIX = "WHIPPLETREE_"
# Variables of ours that are no settings: where the tests find PostgreSQL, and who runs the embedded one.
OTHER_VARIABLES = frozenset({"WHIPPLETREE_TEST_DSN", "WHIPPLETREE_SERVER_USER"})
HIDDEN = "***"


class Dsn:
    """The address of a PostgreSQL, as a URL or as `key=value` pairs. Only `reveal` shows its password."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        text = text.strip()
        if not text.startswith(("postgresql://", "postgres://")):
            # asyncpg takes URLs only, so the other form becomes the URL of the same meaning.
            text = f"postgresql:///?{urlencode(_pairs(text), quote_via=quote)}"
        self._text = text

    def reveal(self) -> str:
        """The URL with its password, for a driver and for nobody else."""
        return self._text

    def redact(self, text: str) -> str:
        """The text without this DSN's password, however the text came by it."""
        for password in sorted(self._passwords(), key=len, reverse=True):
            # Whole words only: with the password `postgres`, PostgreSQL must not become ***QL.
            text = re.sub(rf"(?<!\w){re.escape(password)}(?!\w)", HIDDEN, text)
        return text

    def _passwords(self) -> set[str]:
        found = {match[2] for pattern in (_IN_URL, _IN_QUERY) for match in pattern.finditer(self._text)}
        return {form for password in found for form in (password, unquote(password)) if form}

    def __str__(self) -> str:
        # The last @ ends the password even when it was not percent-encoded: better to hide too much.
        text = _IN_URL.sub(rf"\1{HIDDEN}@", self._text)
        return _IN_QUERY.sub(rf"\1{HIDDEN}", text)

    def __repr__(self) -> str:
        return f"Dsn({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dsn) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def redact(text: str, *known: Dsn) -> str:
    """The text without anything that looks like a password of a DSN, nor the passwords of the known ones."""
    for dsn in known:
        text = dsn.redact(text)
    for pattern in _IN_TEXT:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def valid_schema(name: str) -> str:
    """The name, if it can be a schema of ours: it needs no quotes and leaves room for names made from it."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", name) or name.startswith("pg_"):
        raise InvalidSetting(
            f"{name!r} cannot be a schema: use 1 to 48 of a-z, 0-9 and _, not starting with a digit or pg_"
        )
    return name


def _dsn(value: object) -> Dsn:
    return value if isinstance(value, Dsn) else Dsn(_text(value))


def _schema(value: object) -> str:
    return valid_schema(_text(value))


def _path(value: object) -> Path:
    return Path(value if isinstance(value, Path) else _text(value)).expanduser()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidSetting(f"must be text, not {type(value).__name__}")
    return value


def _by(parse: Callable[[object], object], meaning: str, variable: str = "") -> dict[str, Any]:
    return {"parse": parse, "meaning": meaning, "variable": variable}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What this process works with. Made by `load`, it also knows where each setting came from."""

    dsn: Dsn | None = field(default=None, metadata=_by(_dsn, "The PostgreSQL to use; if none, the embedded"))
    direct_dsn: Dsn | None = field(default=None, metadata=_by(_dsn, "The same, not through a pooler"))
    schema: str = field(default="whippletree", metadata=_by(_schema, "Where our tables and functions are"))
    data_directory: Path | None = field(
        default=None, metadata=_by(_path, "The embedded PostgreSQL's data", "WHIPPLETREE_DATA_DIR")
    )
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        valid_schema(self.schema)

    @classmethod
    def load(cls, **arguments: object) -> Settings:
        """The effective settings. An argument that is None, like an empty variable, counts as not given."""
        names = [setting.name for setting in all_settings()]
        _refuse_unknown(arguments, names, "argument")
        _refuse_misspelt_variables()
        file, table = _nearest_table(Path.cwd())
        _refuse_unknown(table, names, f"[tool.whippletree] in {file}")

        values: dict[str, Any] = {}
        sources = dict.fromkeys(names, "default")
        for setting in all_settings():
            name, variable = setting.name, variable_of(setting)
            if arguments.get(name) is not None:
                sources[name] = "argument"
                values[name] = _parsed(setting, arguments[name], name)
            elif os.environ.get(variable):
                sources[name] = variable
                values[name] = _parsed(setting, os.environ[variable], variable)
            elif name in table:
                sources[name] = str(file)
                values[name] = _parsed(setting, table[name], f"{name} in {file}")
                # In a file, a path means the same wherever the program is started.
                if isinstance(values[name], Path):
                    values[name] = file.parent / values[name]
        return cls(**values, sources=sources)


def all_settings() -> tuple[Field[Any], ...]:
    return tuple(setting for setting in fields(Settings) if "parse" in setting.metadata)


def variable_of(setting: Field[Any]) -> str:
    return setting.metadata["variable"] or PREFIX + setting.name.upper()


def _parsed(setting: Field[Any], given: object, where: str) -> object:
    try:
        return setting.metadata["parse"](given)
    except InvalidSetting as error:
        raise InvalidSetting(f"{where}: {error}") from None


def _refuse_unknown(given: Iterable[str], names: list[str], where: str) -> None:
    for name in given:
        if name not in names:
            nearest = difflib.get_close_matches(name, names, 1)
            advice = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(names)}"
            raise InvalidSetting(f"{where}: unknown setting {name!r}; {advice}")


def _refuse_misspelt_variables() -> None:
    known = {variable_of(setting) for setting in all_settings()} | OTHER_VARIABLES
    endings = [variable.removeprefix(PREFIX) for variable in known]
    for name in os.environ:
        if not name.startswith(PREFIX) or name in known:
            continue
        # Only near misses: Kubernetes sets WHIPPLETREE_PORT and others by itself for a service of that name.
        if nearest := difflib.get_close_matches(name.removeprefix(PREFIX), endings, 1, cutoff=0.66):
            raise InvalidSetting(f"unknown variable {name}; did you mean {PREFIX}{nearest[0]}?")


def _nearest_table(start: Path) -> tuple[Path, dict[str, object]]:
    for directory in (start, *start.parents):
        file = directory / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidSetting(f"{file} cannot be read: {error}") from None
        if table := content.get("tool", {}).get("whippletree"):
            return file, table
    return start / "pyproject.toml", {}


def _pairs(text: str) -> list[tuple[str, str]]:
    r"""The pairs of `host=localhost password='it\'s'`."""
    value = r"'(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*"
    if not re.fullmatch(rf"(?:\w+\s*=\s*(?:{value})(?:\s+|$))+", text):
        # The text stays out of the message: it may hold a password.
        raise InvalidSetting(
            "a DSN is a URL (postgresql://user:password@host/database) or key=value pairs, this is neither"
        )
    return [
        (key, re.sub(r"\\(.)", r"\1", raw[1:-1] if raw.startswith("'") else raw))
        for key, raw in re.findall(rf"(\w+)\s*=\s*({value})", text)
    ]


_IN_URL = re.compile(r"(?s)(^postgres(?:ql)?://[^:@/?]*:)(.*)@")
_IN_QUERY = re.compile(r"(?i)([?&](?:ssl)?password=)([^&]*)")
_IN_TEXT = (
    re.compile(r"(postgres(?:ql)?(?:\+\w+)?://[^:@/?\s]*:)[^\s'\"]*(?=@)"),
    re.compile(r"(?i)([?&](?:ssl)?password=)[^&\s'\"]*"),
    re.compile(
        r"(?i)((?<![?&])(?<![?&]ssl)password(?:\s*=\s*|['\"]\s*[:=]\s*))"
        r"(?:'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?|(?:[^\s'\"\\]|\\.)+)"
    ),
)
