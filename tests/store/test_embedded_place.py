"""Where the embedded PostgreSQL lives, and as whom it runs."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest

from whippletree.errors import StoreUnavailable
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.embedded_place import default_directory, socket_directory

QUICK = {"fsync": "off"}


@pytest.fixture
def directory() -> Iterator[Path]:
    """A place of its own for each test, which the server's user can enter when the tests run as root."""
    parent = Path(tempfile.mkdtemp(prefix="wt-", dir="/tmp"))
    parent.chmod(0o755)
    yield parent / "server"
    EmbeddedPostgres(parent / "server").stop(force=True)
    shutil.rmtree(parent)


@pytest.fixture
def deep(directory: Path) -> Iterator[Path]:
    """A directory whose path is too long for a socket."""
    path = directory / ("long" * 20) / ("path" * 20)
    yield path
    EmbeddedPostgres(path).stop(force=True)
    socket_directory(path).rmdir()


def test_the_directory_is_the_named_one_or_else_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHIPPLETREE_DATA_DIR", "/srv/named")
    assert default_directory() == Path("/srv/named")
    monkeypatch.delenv("WHIPPLETREE_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    own = Path("/var/lib/whippletree") if os.geteuid() == 0 else Path("/srv/data/whippletree")
    assert default_directory() == own


def test_the_server_has_no_privileges_and_nothing_that_existed_was_changed(directory: Path) -> None:
    def world() -> list[object]:
        parents = [(path, path.stat().st_mode, path.stat().st_uid) for path in directory.parents]
        return [*parents, Path("/etc/passwd").read_bytes(), Path("/etc/group").read_bytes()]

    before = world()
    with EmbeddedPostgres(directory, server_settings=QUICK) as server:
        owner = (directory / "data").stat().st_uid
        assert Path(f"/proc/{server.status().pid}").stat().st_uid == owner
        assert owner == os.geteuid() or pwd.getpwuid(owner).pw_name in ("postgres", "nobody")
        assert owner != 0
        assert (directory / "data").stat().st_mode & 0o777 == 0o700
    assert world() == before


def test_a_long_path_gets_a_short_socket(deep: Path) -> None:
    with EmbeddedPostgres(deep, server_settings=QUICK) as server:
        assert server.status().running
        assert socket_directory(deep).stat().st_mode & 0o777 == 0o700


async def test_a_path_may_hold_spaces_and_signs(directory: Path) -> None:
    spaced = directory / "Application Support" / "100% für uns"
    assert socket_directory(spaced).is_relative_to(spaced)
    with EmbeddedPostgres(spaced, server_settings=QUICK) as server:
        connection = await asyncpg.connect(server.dsn)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
        with psycopg.connect(server.dsn) as other:
            assert other.execute("SELECT 1").fetchone() == (1,)
        assert server.status().version
    server.stop()


def test_a_socket_is_never_in_a_path_with_a_comma_which_separates_hosts(directory: Path) -> None:
    assert "," not in str(socket_directory(directory / "one,two"))


def test_a_socket_directory_that_others_can_enter_is_refused(deep: Path) -> None:
    socket_directory(deep).mkdir()
    socket_directory(deep).chmod(0o755)
    with pytest.raises(StoreUnavailable, match="not a safe place"):
        EmbeddedPostgres(deep, server_settings=QUICK).start()


def test_a_data_directory_closed_to_the_servers_user_is_refused_and_left_as_it_is(directory: Path) -> None:
    closed = directory.parent / "closed"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(closed / "server", server_settings=QUICK)
    if os.geteuid() == 0:
        with pytest.raises(StoreUnavailable, match=rf"cannot enter {closed}.*WHIPPLETREE_DATA_DIR"):
            server.start()
        assert not list(closed.iterdir())
    else:
        with server:
            assert server.status().running
        server.stop()
    assert closed.stat().st_mode & 0o777 == 0o700
