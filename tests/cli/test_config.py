from __future__ import annotations

import json
from pathlib import Path

import pytest

from whippletree.cli.main import main
from whippletree.settings import all_settings

PASSWORD = "s3cret"


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.whippletree]\ndirect_dsn = "postgresql://h/direct"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHIPPLETREE_DSN", f"postgresql://u:{PASSWORD}@h/db")


def test_config_shows_each_setting_with_its_source(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["config", "--schema", "orders", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)

    assert set(shown) == {setting.name for setting in all_settings()}
    assert shown["dsn"] == {"value": "postgresql://u:***@h/db", "source": "WHIPPLETREE_DSN"}
    assert shown["schema"] == {"value": "orders", "source": "argument"}
    assert shown["direct_dsn"] == {"value": "postgresql://h/direct", "source": str(tmp_path / "pyproject.toml")}


def test_config_prints_a_line_for_each_setting_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"]) == 0
    shown = capsys.readouterr().out

    assert "schema\twhippletree\tdefault\n" in shown
    assert PASSWORD not in shown


def test_a_schema_that_cannot_be_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--schema", "x; drop table y"]) == 2
    assert capsys.readouterr().err.startswith("error: schema: 'x; drop table y' cannot be a schema: use 1 to 48")


def test_a_password_on_the_command_line_stays_out_of_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--dsn", f"mysql://u:{PASSWORD}@h/db"]) == 2
    assert PASSWORD not in capsys.readouterr().err
