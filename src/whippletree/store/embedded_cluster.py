"""Create the embedded server's data directory: whole, with its database, or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from whippletree.store.embedded_server import LOG_LINES, NAME, Failure, Plan, options, server_environment

# Written once, into postgresql.conf, and not on the command line: there the operator could not change them.
DEFAULT_SETTINGS = """
# Whippletree wrote these when it created the cluster; they are yours to change.
shared_buffers = 128MB
max_connections = 200
max_wal_size = 2GB
# PostgreSQL's own default begins with the schema that is named like the user, which is Whippletree's.
search_path = 'public, whippletree'
"""


def create_cluster(plan: Plan, data: Path) -> None:
    """Make the cluster beside its place, then rename it. The caller holds the supervisor's lock.

    A crash leaves a `data.new-…` directory, which the next call removes.
    """
    for abandoned in data.parent.glob("data.new-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    fresh = data.parent / f"data.new-{os.getpid()}"
    try:
        fresh.mkdir(mode=0o700)
        if plan.uid is not None and plan.gid is not None:
            os.chown(fresh, plan.uid, plan.gid)
        sync = ["--no-sync"] if plan.settings.get("fsync") == "off" else []
        local = ["--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject"]
        _run(plan, "initdb", "-D", str(fresh), "-U", NAME, *local, *sync)
        # The directory is the server user's, who must not be able to point root's writing elsewhere.
        conf = os.open(fresh / "postgresql.conf", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        with os.fdopen(conf, "a") as file:
            file.write(DEFAULT_SETTINGS)
        single = ["--single", "-D", str(fresh), *options(plan.settings), "postgres"]
        _run(plan, "postgres", *single, given=f"CREATE DATABASE {NAME}\n")
        fresh.rename(data)
        _sync_directory(data.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _run(plan: Plan, program: str, *arguments: str, given: str = "") -> None:
    done = subprocess.run(  # noqa: S603 - the program is the one that was found, the arguments are ours
        [f"{plan.bin}/{program}", *arguments],
        input=given.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        cwd="/",  # the caller's own may be closed to the server's user
        env=server_environment(),
        start_new_session=True,  # an interrupt of the caller's terminal is the caller's to handle
        **plan.identity(),
    )
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
    # A single-user server ends with 0 even when its one statement failed.
    if done.returncode != 0 or any(" ERROR: " in line for line in lines):
        raise Failure("\n".join([f"{program} failed.", *lines[-LOG_LINES:]]))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
