"""Where the embedded server lives, and as whom it runs.

PostgreSQL refuses to run as root. Started by root, it runs as an account that exists already, in directories
made for it; no account is created, and the mode of a directory that exists is never changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

from whippletree.errors import InvalidSetting, StoreUnavailable

DIRECTORY_VARIABLE = "WHIPPLETREE_DATA_DIR"
ACCOUNT_VARIABLE = "WHIPPLETREE_SERVER_USER"
LONGEST_SOCKET_PATH = 100  # the kernel's limit is 103 bytes or 107, depending on the system


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The unprivileged user that the server runs as."""

    name: str
    uid: int
    gid: int

    def can(self, *command: str) -> bool:
        """Try it as that user: mode bits alone do not know of access lists."""
        try:
            done = subprocess.run(  # noqa: S603 - the callers' own words
                command,
                user=self.uid,
                group=self.gid,
                extra_groups=[],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        except OSError:
            return False
        return done.returncode == 0

    def can_enter(self, directory: Path) -> bool:
        return self.can("/bin/sh", "-c", 'cd -- "$0"', str(directory))


def default_directory() -> Path:
    if chosen := os.environ.get(DIRECTORY_VARIABLE):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/var/lib/whippletree")  # root's home is normally closed to the server's user
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "whippletree"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "whippletree"


def server_account(data: Path) -> Account | None:
    """The user that the server must become, or None when it can stay who we are."""
    if os.geteuid() != 0:
        return None
    import pwd  # absent on Windows

    chosen = os.environ.get(ACCOUNT_VARIABLE)
    with contextlib.suppress(FileNotFoundError):
        owned = data.stat()
        if owned.st_uid != 0 and not chosen:
            # A cluster runs only as the user who owns it, whatever accounts have been added since.
            return Account(name=f"#{owned.st_uid}", uid=owned.st_uid, gid=owned.st_gid)
    names = [chosen] if chosen else ["postgres", "nobody"]
    for name in names:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise InvalidSetting(
        f"PostgreSQL does not run as root, and there is no account {' or '.join(map(repr, names))} for it. "
        f"Name one that exists, such as {ACCOUNT_VARIABLE}=daemon"
    )


def prepare_directory(directory: Path, account: Account | None) -> None:
    """Create what is missing. Directories that root creates are open, so that the server's user can pass."""
    downwards = (*reversed(directory.parents), directory)
    missing = [path for path in downwards if not path.exists()]
    existing = downwards[: len(downwards) - len(missing)]
    if account is not None and not _can_soon_enter(account, existing[-1]):
        closed = next((path for path in existing if not account.can_enter(path)), existing[-1])
        raise StoreUnavailable(
            f"The embedded PostgreSQL runs as the unprivileged user {account.name!r}, who cannot enter "
            f"{closed}. Choose another data directory: {DIRECTORY_VARIABLE}=/var/lib/whippletree"
        )
    for path in missing:
        with contextlib.suppress(FileExistsError):  # made by somebody who starts at the same time
            path.mkdir(mode=0o700 if account is None else 0o755)
            if account is not None:
                path.chmod(0o755)  # whatever the umask says


def _can_soon_enter(account: Account, directory: Path) -> bool:
    for _ in range(5):  # somebody who starts at the same time has made it, and is about to open it
        if account.can_enter(directory):
            return True
        time.sleep(0.05)
    return False


def socket_directory(directory: Path) -> Path:
    """The same for every process, from the data directory alone: TMPDIR may differ between them."""
    inside = directory / "socket"
    # A comma separates hosts in a connection string.
    if len(os.fsencode(inside / ".s.PGSQL.5432")) <= LONGEST_SOCKET_PATH and "," not in str(inside):
        return inside
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path("/tmp") / f"whippletree-{name}"  # noqa: S108 - its owner is verified


def prepare_socket_directory(sockets: Path, account: Account | None) -> None:
    """This directory is the server's only gate: one that somebody else made would be somebody else's gate."""
    with contextlib.suppress(FileExistsError):
        sockets.mkdir(mode=0o700)
    found = sockets.lstat()
    ours = os.geteuid() if account is None else account.uid
    private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o077 == 0
    if private and account is not None and found.st_uid == os.geteuid():
        os.chown(sockets, account.uid, account.gid, follow_symlinks=False)
    elif not private or found.st_uid != ours:
        raise StoreUnavailable(
            f"{sockets} belongs to somebody else, or others can enter it: not a safe place for a socket. "
            f"Remove it, or choose a data directory with a shorter path: {DIRECTORY_VARIABLE}=..."
        )
