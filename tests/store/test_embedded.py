"""The embedded PostgreSQL: shared by its users, gone with the last of them, back after any way of ending."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from whippletree.errors import StoreUnavailable
from whippletree.store import embedded
from whippletree.store.embedded import EmbeddedPostgres
from whippletree.store.embedded_place import server_account, socket_directory
from whippletree.store.embedded_server import Place
from whippletree.store.embedded_status import is_supervised

QUICK = {"fsync": "off"}
USER = """
import sys
from pathlib import Path
from whippletree.store.embedded import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1]), server_settings={"fsync": "off"}).start(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A place of its own for each test, which the server's user can enter when the tests run as root."""
    parent = Path(tempfile.mkdtemp(prefix="wt-", dir="/tmp"))
    parent.chmod(0o755)
    yield parent / "server"
    EmbeddedPostgres(parent / "server").stop(force=True)
    shutil.rmtree(parent)


@pytest.fixture
def other_process(directory: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Begin another process that uses the server until its standard input ends."""
    begun: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        program = [sys.executable, "-c", USER, str(directory)]
        begun.append(subprocess.Popen(program, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


@pytest.fixture
def server(directory: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(directory, server_settings=QUICK) as started:
        yield started


def eventually(condition: Callable[[], bool], within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        pause.wait(0.02)


def answer(dsn: str, question: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
        return row[0] if row else None


def server_pid(directory: Path) -> int:
    pid = EmbeddedPostgres(directory).status().pid
    assert pid
    return pid


def supervisor_pid(directory: Path) -> int:
    return int((directory / "supervisor.lock").read_text())


def kill(pid: int) -> None:
    """Kill -9, and wait until it is true: a process that is being killed holds its locks for a moment."""
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([handle], [], [])
    os.close(handle)


def is_gone(directory: Path) -> bool:
    """Neither a server nor a supervisor is left."""
    place = Place(directory, socket_directory(directory))
    return not EmbeddedPostgres(directory).status().running and not is_supervised(place)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.communicate()
    assert process.returncode == 0


def test_a_started_server_answers_at_its_address(server: EmbeddedPostgres) -> None:
    assert answer(server.dsn, "SELECT current_database()") == "whippletree"
    assert answer(server.dsn, "SHOW server_encoding") == "UTF8"
    assert answer(server.dsn, "SHOW listen_addresses") == ""


def test_durability_is_not_loosened_by_default(directory: Path) -> None:
    with EmbeddedPostgres(directory) as server:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert answer(server.dsn, f"SHOW {setting}") == "on"


def test_starting_again_changes_nothing(server: EmbeddedPostgres) -> None:
    before = server_pid(server.directory)
    assert server.start() == server.ensure() == server.dsn
    assert server_pid(server.directory) == before


def test_two_processes_share_a_server_that_outlives_the_first_to_leave(
    directory: Path, other_process: Callable[[], subprocess.Popen[str]]
) -> None:
    first = other_process()
    dsn = said(first)
    second = other_process()
    assert said(second) == dsn
    pid = server_pid(directory)
    with psycopg.connect(dsn) as connection:
        end(first)
        # Long enough for the supervisor to see it, many times over: a stopping server would end the query.
        assert connection.execute("SELECT pg_sleep(1), 1").fetchone()
    assert server_pid(directory) == pid


def test_the_server_stops_when_its_last_user_leaves(server: EmbeddedPostgres) -> None:
    server.close()
    eventually(lambda: is_gone(server.directory))


def test_the_server_stops_when_its_only_user_is_killed(
    directory: Path, other_process: Callable[[], subprocess.Popen[str]]
) -> None:
    user = other_process()
    said(user)
    user.kill()
    eventually(lambda: is_gone(directory))


def test_who_comes_while_the_server_stops_gets_a_fresh_one(server: EmbeddedPostgres) -> None:
    for _ in range(5):
        server.close()
        server.start()
        assert answer(server.dsn, "SELECT 1") == 1


def test_a_killed_server_comes_back_while_it_is_in_use_with_all_that_was_committed(directory: Path) -> None:
    with EmbeddedPostgres(directory) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS number")
        killed = server_pid(directory)
        kill(killed)
        eventually(lambda: server.status().pid not in (None, killed))
        server.ensure()
        assert answer(server.dsn, "SELECT number FROM kept") == 42


def test_a_killed_supervisor_is_replaced_by_one_that_adopts_the_server(server: EmbeddedPostgres) -> None:
    pid, supervisor = server_pid(server.directory), supervisor_pid(server.directory)
    kill(supervisor)
    server.ensure()
    eventually(lambda: supervisor_pid(server.directory) != supervisor)
    assert server_pid(server.directory) == pid

    kill(pid)
    eventually(lambda: server.status().pid not in (None, pid))
    server.close()
    eventually(lambda: is_gone(server.directory))


def test_a_server_without_a_supervisor_stops_with_its_last_user_all_the_same(
    server: EmbeddedPostgres,
) -> None:
    kill(supervisor_pid(server.directory))
    server.close()
    eventually(lambda: is_gone(server.directory))


def test_all_can_be_killed_at_once(server: EmbeddedPostgres) -> None:
    kill(supervisor_pid(server.directory))
    kill(server_pid(server.directory))
    assert answer(server.ensure(), "SELECT 1") == 1


def test_a_suspended_supervisor_is_woken(server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "HANG", 0.1)
    os.kill(supervisor_pid(server.directory), signal.SIGSTOP)
    kill(server_pid(server.directory))
    assert answer(server.ensure(), "SELECT 1") == 1


def test_a_pid_file_that_names_a_stranger_does_not_prevent_the_start(server: EmbeddedPostgres) -> None:
    kill(supervisor_pid(server.directory))
    kill(server_pid(server.directory))
    account = server_account(server.directory / "data")
    stranger = subprocess.Popen(["sleep", "600"], user=account.uid if account else None)
    pid_file = server.directory / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
    assert answer(server.ensure(), "SELECT 1") == 1
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_creation_that_was_cut_off_leaves_nothing_in_the_way(
    directory: Path, other_process: Callable[[], subprocess.Popen[str]]
) -> None:
    user = other_process()
    eventually(lambda: any(directory.glob("data.new-*/PG_VERSION")))
    user.kill()
    user.wait()
    assert not (directory / "data").exists()
    with EmbeddedPostgres(directory, server_settings=QUICK) as server:
        assert answer(server.dsn, "SELECT 1") == 1


def test_ten_processes_that_start_at_once_get_one_server(
    directory: Path, other_process: Callable[[], subprocess.Popen[str]]
) -> None:
    processes = [other_process() for _ in range(10)]
    addresses = {said(process) for process in processes}
    started = {answer(address, "SELECT pg_postmaster_start_time()::text") for address in addresses}
    assert len(addresses) == len(started) == 1
    assert sorted(EmbeddedPostgres(directory).status().users) == sorted(process.pid for process in processes)
    for process in processes:
        end(process)
    eventually(lambda: is_gone(directory))


def test_an_interrupt_at_the_users_terminal_does_not_reach_the_server(server: EmbeddedPostgres) -> None:
    sessions = {
        os.getsid(0),
        os.getsid(supervisor_pid(server.directory)),
        os.getsid(server_pid(server.directory)),
    }
    assert len(sessions) == 3


def test_a_broken_configuration_is_shown_in_the_servers_own_words(server: EmbeddedPostgres) -> None:
    server.stop()
    with (server.directory / "data" / "postgresql.conf").open("a") as conf:
        conf.write("work_mem = plenty\n")
    with pytest.raises(StoreUnavailable, match=r"(?s)work_mem.*plenty.*What to do: correct") as raised:
        server.start()
    assert "postgresql.conf" in str(raised.value)
    assert is_gone(server.directory)


def test_a_bad_setting_is_named_and_no_cluster_is_left_behind(directory: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no_such_setting"):
        EmbeddedPostgres(directory, server_settings={"no_such_setting": "1"}).start()
    assert not [path for path in directory.iterdir() if path.name.startswith("data")]


def test_a_cluster_of_another_major_version_is_left_alone_and_says_what_to_install(directory: Path) -> None:
    (directory / "data").mkdir(parents=True)
    directory.chmod(0o755)
    (directory / "data" / "PG_VERSION").write_text("11\n")
    with pytest.raises(StoreUnavailable, match=r"(?s)made by PostgreSQL 11.*What to do: install"):
        EmbeddedPostgres(directory).start()


def test_a_directory_that_was_removed_takes_its_server_along(server: EmbeddedPostgres) -> None:
    pid = server_pid(server.directory)
    shutil.rmtree(server.directory, ignore_errors=True)  # the server removes some of its files itself
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    shutil.rmtree(server.directory, ignore_errors=True)
    assert answer(server.ensure(), "SELECT 1") == 1
