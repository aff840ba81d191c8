"""Installs each peer in an environment of its own and lets it drain messages with a no-op handler in one process."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import venv
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.place import Run
from benchmarks.table import Figure

# Beside our own packages: whoever removes the environment removes these too.
_PLACE = Path(sys.prefix) / "peers"


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue that others use. Its script stands beside this file, and runs with nothing but these requirements."""

    name: str
    requirements: tuple[str, ...]
    messages: int


PEERS = (
    # The wheel carries pgmq's SQL, so that no extension has to be installed on the server.
    Peer("pgmq", ("pgmq==1.1.4", "asyncpg", "uvloop"), 50_000),
    Peer("pgqueuer", ("pgqueuer==1.6.0", "asyncpg", "uvloop"), 20_000),
    Peer("procrastinate", ("procrastinate==3.10.0", "psycopg[binary]", "uvloop"), 1_500),
)


async def measure(run: Run, notes: Console) -> list[Figure]:
    """One figure per peer. A peer that cannot be had is said to be missing; no figure is made up for it."""
    figures = []
    for peer in PEERS:
        notes.print(f"measuring {peer.name} …")
        try:
            python = await _environment(peer)
            rates = [await _rate(peer, python, run) for _ in range(run.repeat)]
        except _Unavailable as reason:
            notes.print(f"{peer.name} was not measured: {reason}")
        else:
            name = f"{peer.requirements[0].replace('==', ' ')}, drain"
            figures.append(Figure(name=name, value=statistics.median(rates), unit="messages/s"))
    return figures


class _Unavailable(Exception):
    """The peer could not be installed, or did not run."""


async def _environment(peer: Peer) -> Path:
    place = _PLACE / peer.name
    python, stamp = place / "bin" / "python", place / "requirements"
    wanted = "\n".join(peer.requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        await asyncio.to_thread(venv.create, place, clear=True, with_pip=True)
        await _output(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements)
        stamp.write_text(wanted)
    return python


async def _rate(peer: Peer, python: Path, run: Run) -> float:
    script = Path(__file__).parent / f"{peer.name}_drain.py"
    messages = run.size(peer.messages, 200)
    async with run.database() as dsn:
        told = json.loads(await _output(python, script, dsn, str(messages)))
    if told["drained"] != messages:
        raise _Unavailable(f"it drained {told['drained']} of {messages} messages")
    return float(messages / told["seconds"])


async def _output(*command: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    said, complained = await process.communicate()
    if process.returncode != 0:
        raise _Unavailable("\n".join(complained.decode().strip().splitlines()[-3:]))
    return said.decode()
