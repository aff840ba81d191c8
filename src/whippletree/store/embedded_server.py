"""What the embedded server's users and its supervisor both know: its files, its locks, and how to ask it.

Standard library only, and little of it: the supervisor is made of this and of its own file.

    users.lock        shared by everyone who uses the server; whoever gets it alone knows that nobody is left
    supervisor.lock   held by the one supervisor; its content, a pid, is information only

The kernel drops a lock however its holder ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import socket
import struct
from pathlib import Path
from typing import Any

NAME = "whippletree"  # of the database and of its owner
TICK = 0.1
PATIENCE = 60.0
LOG_LINES = 15


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where a server lives, as whom and how it runs. Travels as JSON from a user to the supervisor."""

    directory: str
    sockets: str
    bin: str
    uid: int | None = None
    gid: int | None = None
    settings: dict[str, str] = dataclasses.field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """How to start a process as the server's user: a change of user alone would keep root's groups."""
        return {} if self.uid is None else {"user": self.uid, "group": self.gid, "extra_groups": []}


class Place:
    """The files of one embedded server."""

    def __init__(self, directory: Path, sockets: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.users_lock = directory / "users.lock"
        self.supervisor_lock = directory / "supervisor.lock"
        self.keep = directory / "keep"
        self.stop_request = directory / "stop"
        self.sockets = sockets
        self.socket = sockets / ".s.PGSQL.5432"


class Answer(enum.Enum):
    READY = "ready"
    NOT_YET = "starting, recovering or shutting down"
    SILENT = "silent"
    ABSENT = "absent"

    @property
    def patience(self) -> float:
        # With one that recovers there is more: to start it again would only begin its recovery anew.
        return 600.0 if self is Answer.NOT_YET else PATIENCE


class Failure(Exception):
    """What went wrong, and the server's own words about it."""


def ask(address: Path) -> tuple[Answer, int | None]:
    """Connect as a client would: the only proof that a server lives. Its pid, too, if the kernel tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(2.0)
        try:
            connection.connect(str(address))
            startup = f"user\0{NAME}\0database\0{NAME}\0\0".encode()
            connection.sendall(struct.pack("!ii", len(startup) + 8, 3 << 16) + startup)
            pid = None
            if hasattr(socket, "SO_PEERCRED"):
                credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                pid = int(struct.unpack("3i", credentials)[0])
            with connection.makefile("rb") as reply:
                kind, length = struct.unpack("!ci", reply.read(5))
                body = reply.read(length - 4)
            with contextlib.suppress(OSError):
                connection.sendall(b"X\0\0\0\4")
        except (TimeoutError, BlockingIOError):
            return Answer.SILENT, None
        except (OSError, struct.error):
            return Answer.ABSENT, None
    # Any other refusal, such as too many connections, comes from a server that works.
    return (Answer.NOT_YET if kind == b"E" and b"C57P03\0" in body else Answer.READY), pid


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def take(lock: int, *, shared: bool = False) -> bool:
    import fcntl  # absent on Windows, where this module must still import

    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_still_at(lock: int, path: Path) -> bool:
    """False when the directory was removed: others would lock another file of that name."""
    try:
        return path.stat().st_ino == os.fstat(lock).st_ino
    except FileNotFoundError:
        return False


def last_lines(log: Path, offset: int = 0) -> list[str]:
    """The server's last words, without its answers to those who asked too early."""
    try:
        with log.open("rb") as file:
            file.seek(max(offset, log.stat().st_size - 64 * 1024))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip() and "system is starting up" not in line][-LOG_LINES:]


def pid_in(path: Path) -> int | None:
    try:
        return abs(int(path.read_text().split(maxsplit=1)[0])) or None
    except (OSError, ValueError, IndexError):
        return None


def options(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def server_environment() -> dict[str, str]:
    """Ours, without what steers PostgreSQL, and with messages in English: the supervisor reads them."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}
