"""The pytest plugin: one server for the run, one database for each test.

The server is the embedded PostgreSQL in a directory that the run makes and removes, shared by all processes of
pytest-xdist; or the one that WHIPPLETREE_TEST_DSN names, whose user may create databases.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from whippletree.testing.database import Database, Template

_INPUT = "whippletree_directory"
_directory = pytest.StashKey[Path]()

_SERVER_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_connections": "300"}
"""What a crash of the machine would cost is of no interest here."""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist where the run's server is."""
    node.workerinput[_INPUT] = str(_directory_of(node.config))


def pytest_unconfigure(config: pytest.Config) -> None:
    if (directory := config.stash.get(_directory, None)) is not None and not hasattr(config, "workerinput"):
        from whippletree.store.embedded import EmbeddedPostgres

        EmbeddedPostgres(directory).stop(force=True)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def whippletree_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of the run's server."""
    if dsn := os.environ.get("WHIPPLETREE_TEST_DSN"):
        yield dsn
        return
    from whippletree.store.embedded import EmbeddedPostgres

    with EmbeddedPostgres(_directory_of(pytestconfig), server_settings=_SERVER_SETTINGS) as embedded:
        yield embedded.dsn


@pytest.fixture(scope="session")
def whippletree_template(whippletree_server: str) -> Iterator[Template]:
    """A database with the schema installed, of which each test gets a copy."""
    from whippletree.testing.database import Template

    with Template.made(whippletree_server) as template:
        yield template


@pytest.fixture
def whippletree_database(whippletree_template: Template) -> Iterator[Database]:
    """A database of the test's own, with the schema installed."""
    from whippletree.testing.database import in_a_loop_of_its_own

    database = in_a_loop_of_its_own(whippletree_template.copy())
    yield database
    in_a_loop_of_its_own(database.drop())


def _directory_of(config: pytest.Config) -> Path:
    if (given := getattr(config, "workerinput", {}).get(_INPUT)) is not None:
        return Path(given)
    if (made := config.stash.get(_directory, None)) is None:
        made = config.stash[_directory] = Path(tempfile.mkdtemp(prefix="whippletree-test-"))
        # The server may run under another user, who has to get in.
        made.chmod(0o755)
    return made
