"""The documents are honest: what they print runs, and what they point at exists."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
import types
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.house.tree import ROOT, files, name_of
from whippletree.cli.main import cli
from whippletree.settings import Dsn, Settings
from whippletree.store.database import connect
from whippletree.store.schema import migrate
from whippletree.testing.database import Template

DOCUMENTS = [*ROOT.glob("*.md"), *files("docs", "examples", suffix=".md")]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    file: Path
    line: int
    language: str
    text: str


def _blocks(*languages: str) -> list[Block]:
    found = []
    for file in DOCUMENTS:
        content = file.read_text(encoding="utf-8")
        for match in FENCE.finditer(content):
            block = Block(file, content.count("\n", 0, match.start()) + 2, match[2], textwrap.dedent(match[3]))
            if not languages or block.language in languages:
                found.append(block)
    return found


def _place(block: Block) -> str:
    return f"{name_of(block.file)}:{block.line}"


@pytest.fixture
def database(dsn: Dsn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A test database, which a printed program finds as a user's program would."""
    monkeypatch.setenv("WHIPPLETREE_DSN", dsn.reveal())
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("block", _blocks(), ids=_place)
def test_a_block_that_nobody_runs_says_that_it_is_text(block: Block) -> None:
    assert block.language in ("python", "sql", "console", "toml", "json", "text")


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("block", _blocks("python"), ids=_place)
async def test_printed_python_runs(block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: str) -> None:
    if "__main__" in block.text:
        # As its reader would: in a file of its own.
        (tmp_path / "program.py").write_text(block.text, encoding="utf-8")
        await _run_program(tmp_path / "program.py")
        return
    module = types.ModuleType("printed")
    monkeypatch.setitem(sys.modules, "printed", module)
    # As many lines before it as in the document, so that a traceback points there.
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, block.file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, vars(module))
    if inspect.iscoroutine(result):
        await result
    tests = [test for name, test in vars(module).items() if name.startswith("test_")]
    if tests:
        with Template.made(server) as template:
            for test in tests:
                await test(await template.copy())


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("block", _blocks("sql"), ids=_place)
async def test_printed_sql_runs(block: Block) -> None:
    settings = Settings.load()
    async with connect(settings) as connection:
        await migrate(connection, settings.schema)
        await connection.execute(f"SET search_path TO {settings.schema}")
        await connection.execute(block.text)


@pytest.mark.parametrize("block", _blocks("console"), ids=_place)
def test_printed_commands_exist(block: Block) -> None:
    for line in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE):
        program, *arguments = shlex.split(re.split(r" (?:\||>|&&|&$)", line)[0], comments=True)
        if program == "whippletree":
            _parse(cli, arguments)
        elif program == "./dev":
            known = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
            assert not arguments or f"./dev {arguments[0]} " in known, line


@pytest.mark.parametrize("block", _blocks("toml", "json"), ids=_place)
def test_printed_data_is_well_formed(block: Block) -> None:
    (tomllib.loads if block.language == "toml" else json.loads)(block.text)


@pytest.mark.parametrize("file", DOCUMENTS, ids=name_of)
def test_links_and_named_files_exist(file: Path) -> None:
    text = FENCE.sub("", file.read_text(encoding="utf-8"))
    linked = [file.parent / target for target in re.findall(r"\]\((?!\w+:|#)([^)#]+)", text)]
    named = [ROOT / target for target in re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./]+)`", text)]
    assert not [str(target) for target in linked + named if not target.exists()]


def test_the_guarantees_name_tests_that_exist() -> None:
    guarantees = ROOT / "docs" / "guarantees.md"
    promised = (
        re.findall(r"\btest_\w+\b(?!\.py)", guarantees.read_text(encoding="utf-8")) if guarantees.exists() else []
    )
    sources = "\n".join(file.read_text(encoding="utf-8") for file in files("tests", suffix=".py"))
    assert not set(promised) - set(re.findall(r"def (test_\w+)", sources))


async def _run_program(file: Path) -> None:
    program = await asyncio.create_subprocess_exec(sys.executable, file, stderr=asyncio.subprocess.PIPE)
    _, errors = await program.communicate()
    assert program.returncode == 0, errors.decode()


def _parse(command: click.Command, arguments: list[str]) -> None:
    """Parses the arguments as the command would, and runs nothing."""
    if isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        found = command.get_command(click.Context(command), arguments[0])
        assert found is not None, f"there is no {arguments[0]!r}"
        _parse(found, arguments[1:])
    elif not {"--help", "-h", "--version"} & set(arguments):
        command.make_context(command.name, arguments)
