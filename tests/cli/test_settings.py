from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from whippletree.errors import InvalidSetting
from whippletree.settings import Dsn, Settings, redact, valid_schema


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own, without our variables."""
    for name in [name for name in os.environ if name.startswith("WHIPPLETREE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:s3cret@h/db",
        "postgres://u:s3cret@h1,h2/db?sslmode=require",
        "postgresql://u@h/db?password=s3cret&connect_timeout=3",
        "postgresql://u:s3cret@x:y@h/db",
        "postgresql://u:s3cret/x@h/db",
        "postgresql://u:a?s3cret@h/db",
        "postgresql://h/db?sslpassword=s3cret",
        "host=h user=u password=s3cret",
        r"host=h user=u password='s3cret \' more' dbname=db",
        "password = s3cret host = h",
    ],
)
def test_a_dsn_shows_its_password_only_when_asked(text: str) -> None:
    dsn = Dsn(text)

    shown = [
        str(dsn),
        repr(dsn),
        f"{dsn}",
        repr(Settings(dsn=dsn)),
        redact(text),
        redact(f"at {text}!"),
    ]

    assert not [each for each in shown if "s3cret" in each or "more" in each]
    assert "s3cret" in dsn.reveal()
    assert pickle.loads(pickle.dumps(dsn)) == dsn == Dsn(text)


def test_a_shown_dsn_still_tells_where_it_leads() -> None:
    assert str(Dsn("postgresql://u:p@h:1/db?password=q&a=b")) == "postgresql://u:***@h:1/db?password=***&a=b"
    assert str(Dsn("postgresql://[::1]:5432/db")) == "postgresql://[::1]:5432/db"


def test_pairs_become_the_url_that_every_driver_takes() -> None:
    dsn = Dsn(r"host=h  password='a b\'&' dbname = db")
    assert dsn.reveal() == "postgresql:///?host=h&password=a%20b%27%26&dbname=db"


@pytest.mark.parametrize("text", ["", "s3cret", "mysql://u:s3cret@h/db", "host=h s3cret", "password='s3cret"])
def test_what_is_no_dsn_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(InvalidSetting, match="key=value") as caught:
        Dsn(text)
    assert "s3cret" not in str(caught.value)


def test_a_known_password_is_removed_wherever_it_occurs() -> None:
    dsn = Dsn("postgresql://u:s3%2Fcret@h/db")
    assert redact("tried s3/cret and s3%2Fcret", dsn) == "tried *** and ***"
    assert redact("PostgreSQL, not postgres", Dsn("postgresql://u:postgres@h/db")) == "PostgreSQL, not ***"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("connect(password='s3cret', x=1)", "connect(password=***, x=1)"),
        ('{"password": "s3cret", "x": 1}', '{"password": ***, "x": 1}'),
        ("PGPASSWORD=s3&cret psql", "PGPASSWORD=*** psql"),
        ("postgresql+asyncpg://u:s3cret@h/db failed", "postgresql+asyncpg://u:***@h/db failed"),
        ("?sslpassword=s3cret&x=1", "?sslpassword=***&x=1"),
        ("password authentication failed", "password authentication failed"),
    ],
)
def test_a_text_loses_its_passwords(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize("name", ["whippletree", "public", "_a1", "a" * 48])
def test_a_plain_name_can_be_a_schema(name: str) -> None:
    assert valid_schema(name) == name


@pytest.mark.parametrize("name", ["", "x; drop table y", "Orders", "1a", "pg_own", 'a"b', "a\n", "é", "a" * 49])
def test_any_other_name_is_refused_as_a_schema(name: str) -> None:
    with pytest.raises(InvalidSetting, match="a-z, 0-9 and _"):
        valid_schema(name)
    with pytest.raises(InvalidSetting):
        Settings(schema=name)


def test_arguments_win_over_variables_and_variables_over_the_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = directory / "pyproject.toml"
    file.write_text('[tool.whippletree]\nschema = "filed"\ndata_directory = "data"\n')
    monkeypatch.setenv("WHIPPLETREE_SCHEMA", "varied")
    monkeypatch.setenv("WHIPPLETREE_DSN", "")
    (directory / "below").mkdir()
    monkeypatch.chdir(directory / "below")

    assert Settings.load(schema="argued").schema == "argued"
    settings = Settings.load(schema=None)
    assert settings == Settings(schema="varied", data_directory=directory / "data")
    assert settings.sources == {
        "dsn": "default",
        "direct_dsn": "default",
        "schema": "WHIPPLETREE_SCHEMA",
        "data_directory": str(file),
    }


def test_the_nearest_file_with_our_table_is_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "pyproject.toml").write_text('[tool.whippletree]\nschema = "outer"\n')
    (directory / "inner").mkdir()
    (directory / "inner" / "pyproject.toml").write_text("[tool.other]\n")
    monkeypatch.chdir(directory / "inner")
    assert Settings.load().schema == "outer"


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("WHIPPLETREE_DNS", "WHIPPLETREE_DSN"),
        ("WHIPPLETREE_SHEMA", "WHIPPLETREE_SCHEMA"),
        ("WHIPPLETREE_DATA_DIRECTORY", "WHIPPLETREE_DATA_DIR"),
        ("WHIPPLETREE_DIRECTDSN", "WHIPPLETREE_DIRECT_DSN"),
    ],
)
def test_a_misspelt_variable_is_refused(variable: str, nearest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "postgresql://u:s3cret@h/db")
    with pytest.raises(InvalidSetting, match=f"{variable}; did you mean {nearest}") as caught:
        Settings.load()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("ending", ["PORT", "SERVICE_HOST", "SERVICE_PORT", "PORT_5432_TCP_ADDR", "TEST_DSN"])
def test_variables_of_others_are_left_alone(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"WHIPPLETREE_{ending}", "x")
    assert Settings.load() == Settings()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('schemas = "x"', "unknown setting 'schemas'; did you mean schema"),
        ('colour = "x"', "unknown setting 'colour'; there are dsn,"),
        ("schema = 5", "schema in .*: must be text, not int"),
        ('schema = "Loud"', "'Loud' cannot be a schema"),
        ("schema = ", "cannot be read"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place(directory: Path, table: str, message: str) -> None:
    (directory / "pyproject.toml").write_text(f"[tool.whippletree]\n{table}\n")
    with pytest.raises(InvalidSetting, match=message) as caught:
        Settings.load()
    assert str(directory / "pyproject.toml") in str(caught.value) or "unknown" in str(caught.value)


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="did you mean schema"):
        Settings.load(shema="x")
