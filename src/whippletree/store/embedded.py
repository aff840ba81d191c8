"""The embedded PostgreSQL: the database when you name none.

The first user starts it, all users share it, and it stops when the last one leaves, however that one ends.
A user is whoever holds the shared lock. The server belongs to the supervisor, which no user has to outlive.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self
from urllib.parse import quote

from whippletree.errors import StoreUnavailable
from whippletree.store import embedded_place
from whippletree.store.embedded_binaries import Binaries, find_binaries, known_places, reachable_binaries
from whippletree.store.embedded_cluster import create_cluster
from whippletree.store.embedded_server import (
    NAME,
    PATIENCE,
    Answer,
    Failure,
    Place,
    Plan,
    ask,
    is_still_at,
    last_lines,
    open_lock,
    take,
)
from whippletree.store.embedded_status import Status, is_supervised, look, users_of
from whippletree.store.embedded_supervisor import spawn_supervisor

PAUSE = 0.05
HANG = 5.0  # silence of a supervisor that deserves a nudge

HINTS = (
    ("No space left on device", "free some space on that disk, then start again."),
    ("Permission denied", "let the server's user in, or choose another directory: WHIPPLETREE_DATA_DIR=..."),
    ("configuration parameter", "correct that setting here or in data/postgresql.conf, then start again."),
    (
        "invalid value for parameter",
        "correct that setting here or in data/postgresql.conf, then start again.",
    ),
    ("configuration file", "correct data/postgresql.conf, then start again."),
    ("shared memory block", "a process of a killed server is still running; end it, then start again."),
    ("[Errno", "choose another directory: WHIPPLETREE_DATA_DIR=..."),
    ("is silent", "the server's process is there, but it does nothing; end it, then start again."),
    ("", "see the log that `whippletree db status` names; or use another server, with WHIPPLETREE_DSN=..."),
)


class EmbeddedPostgres:
    """One process's use of the embedded server in a directory.

    `start()` may be called again at any time, and brings back a server that has died. Whoever does not call
    `close()` leaves when the process ends. `server_settings` count for the one who finds no server running.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        server_settings: Mapping[str, str] | None = None,
        binaries: Path | None = None,
    ) -> None:
        if sys.platform == "win32":
            raise StoreUnavailable("There is no embedded PostgreSQL on Windows: set WHIPPLETREE_DSN.")
        directory = (directory or embedded_place.default_directory()).expanduser().resolve()
        self._place = Place(directory, embedded_place.socket_directory(directory))
        self._settings = dict(server_settings or {})
        self._binaries = binaries
        self._users: int | None = None
        self._mutex = threading.Lock()

    @property
    def directory(self) -> Path:
        return self._place.directory

    @property
    def dsn(self) -> str:
        return f"postgresql://{NAME}@/{NAME}?host={quote(str(self._place.sockets), safe='')}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def start(self) -> str:
        """Become a user of the server, and return its address when it answers. Idempotent; blocks."""
        with self._mutex:
            was_user = self._users is not None
            try:
                with self._explained():
                    self._become_user()
                    self._bring_up()
            except BaseException:
                if not was_user:
                    self._leave()
                raise
            return self.dsn

    ensure = start

    def close(self) -> None:
        """Stop being a user. The server stops soon after, unless somebody else uses it. Idempotent."""
        with self._mutex:
            if self._users is None:
                return
            # Leaving cannot fail: what is not put right here, the next user puts right.
            with contextlib.suppress(StoreUnavailable, OSError):
                if not is_supervised(self._place) and ask(self._place.socket)[0] is not Answer.ABSENT:
                    # The supervisor was killed: without another one the server would stay for ever.
                    os.close(spawn_supervisor(self._plan()))
            self._leave()

    def keep(self) -> None:
        """Let the server run on without users, until `stop()`."""
        self._place.keep.touch(mode=0o600)

    def stop(self, *, force: bool = False) -> bool:
        """Stop the server and wait for its end; False if it was not running. Refuses while others use it."""
        was_running = ask(self._place.socket)[0] is not Answer.ABSENT
        self.close()
        if not force and (others := users_of(self._place)):
            pids = f": {', '.join(map(str, others))}" if any(others) else ""
            raise StoreUnavailable(
                f"The server is in use by {len(others)} other process{'es'[: 2 * (len(others) > 1)]}{pids}. "
                f"It stops when the last one leaves. To stop it all the same: whippletree db stop --force"
            )
        with self._explained():
            self._bring_down(force=force)
        return was_running

    def _bring_down(self, *, force: bool) -> None:
        began = time.monotonic()
        try:
            self._place.keep.unlink(missing_ok=True)
            while True:
                answer, supervised = ask(self._place.socket)[0], is_supervised(self._place)
                if not supervised and answer is Answer.ABSENT:
                    return
                if not supervised:
                    os.close(spawn_supervisor(self._plan()))  # it adopts the server, and can then stop it
                elif force and answer is Answer.READY:
                    self._place.stop_request.touch(mode=0o600)
                self._wait(began, 3 * PATIENCE, "The server does not stop.")
        finally:
            self._place.stop_request.unlink(missing_ok=True)

    def status(self) -> Status:
        """Look, and change nothing."""
        return look(self._place, self.dsn)

    def inherit(self) -> None:
        """Let the program that replaces this process, or that it starts, be a user in its stead."""
        if self._users is not None:
            os.set_inheritable(self._users, True)

    def binaries(self) -> Binaries:
        """The programs that fit the data directory, where the server's user can run them."""
        version = self._place.data / "PG_VERSION"
        places = known_places() if self._binaries is None else [self._binaries]
        found = find_binaries(places, major=int(version.read_text()) if version.exists() else None)
        account = embedded_place.server_account(self._place.data)
        return reachable_binaries(found, account, self.directory / "binaries")

    def _become_user(self) -> None:
        if self._users is not None and is_still_at(self._users, self._place.users_lock):
            return
        self._leave()
        embedded_place.prepare_directory(self.directory, embedded_place.server_account(self._place.data))
        self._users = open_lock(self._place.users_lock)
        began = time.monotonic()
        while not take(self._users, shared=True):
            self._wait(began, 3 * PATIENCE, "The server is still stopping.")

    def _leave(self) -> None:
        if self._users is not None:
            # Closed, not unlocked: a forked child shares the lock, and stays a user until it closes its own.
            os.close(self._users)
            self._users = None

    def _bring_up(self) -> None:
        began, pipe, words = time.monotonic(), None, b""
        try:
            while True:
                answer, supervised = ask(self._place.socket)[0], is_supervised(self._place)
                if answer is Answer.READY and supervised:
                    return
                if pipe is None and not supervised:
                    plan = self._plan()
                    self._create_cluster_once(plan)
                    pipe = spawn_supervisor(plan)
                if pipe is not None and select.select([pipe], [], [], PAUSE)[0]:
                    said = os.read(pipe, 65536)
                    words += said
                    if not said:
                        os.close(pipe)
                        pipe = None
                        if words:
                            raise Failure(words.decode(errors="replace"))
                self._wait(began, answer.patience, f"The server is {answer.value}.")
        finally:
            if pipe is not None:
                os.close(pipe)

    def _plan(self) -> Plan:
        account = embedded_place.server_account(self._place.data)
        embedded_place.prepare_socket_directory(self._place.sockets, account)
        return Plan(
            directory=str(self.directory),
            sockets=str(self._place.sockets),
            bin=str(self.binaries().bin),
            uid=account.uid if account else None,
            gid=account.gid if account else None,
            settings=self._settings,
        )

    def _create_cluster_once(self, plan: Plan) -> None:
        version = self._place.data / "PG_VERSION"
        lock = open_lock(self._place.supervisor_lock)
        try:
            # Who does not get the lock leaves the work to the one who has it.
            if not version.exists() and take(lock) and not version.exists():
                create_cluster(plan, self._place.data)
        finally:
            os.close(lock)

    def _wait(self, began: float, patience: float, words: str) -> None:
        waited = time.monotonic() - began
        if waited > patience:
            said = "\n".join([f"{words} Waited for {waited:.0f} seconds.", *last_lines(self._place.log)])
            raise StoreUnavailable(self._explain(said))
        if waited > HANG and is_supervised(self._place):
            # A supervisor that somebody has suspended still holds its locks; this wakes it.
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(self._place.supervisor_lock.read_text()), signal.SIGCONT)
        time.sleep(PAUSE)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (Failure, OSError) as error:
            raise StoreUnavailable(self._explain(str(error))) from error

    def _explain(self, words: str) -> str:
        hint = next(hint for sign, hint in HINTS if sign in words)
        return f"No embedded PostgreSQL in {self.directory}. {words.strip()}\nWhat to do: {hint}"
