"""What can be told about an embedded server without touching it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from whippletree.store.embedded_binaries import inspect_binaries
from whippletree.store.embedded_server import Answer, Place, ask, pid_in, take


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One look at an embedded server."""

    running: bool
    dsn: str
    pid: int | None
    version: str | None
    binaries: str | None
    directory: str
    log: str
    kept: bool
    users: list[int]


def look(place: Place, dsn: str) -> Status:
    answer, pid = ask(place.socket)
    if pid is None and answer is not Answer.ABSENT:
        pid = pid_in(place.data / "postmaster.pid")
    try:
        # The server notes how it was started; what would be started now may be another installation.
        program = (place.data / "postmaster.opts").read_text().split(' "', 1)[0]
        found = inspect_binaries(Path(program).parent)
    except OSError:
        found = None
    return Status(
        running=answer is not Answer.ABSENT,
        dsn=dsn,
        pid=pid,
        version=found.version if found else None,
        binaries=str(found.bin) if found else None,
        directory=str(place.directory),
        log=str(place.log),
        kept=place.keep.exists(),
        users=users_of(place),
    )


def users_of(place: Place) -> list[int]:
    """The users' pids. One 0 stands for those whom the system does not list."""
    try:
        lock = os.open(place.users_lock, os.O_RDWR)
    except (FileNotFoundError, PermissionError):
        return []
    try:
        pids = _holders(lock)
        # Not everything is listed: another container's processes are not, nor any on some systems.
        if not pids and take(lock, shared=True) and not take(lock):
            return [0]
        return pids
    finally:
        os.close(lock)


def _holders(lock: int) -> list[int]:
    inode = f":{os.fstat(lock).st_ino}"
    try:
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return []
    return [int(words[4]) for words in held if words[3] == "READ" and words[5].endswith(inode)]


def is_supervised(place: Place) -> bool:
    try:
        lock = os.open(place.supervisor_lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not take(lock, shared=True)
    finally:
        os.close(lock)
