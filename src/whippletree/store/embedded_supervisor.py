"""The small process that owns the embedded server, so that none of its users has to outlive the others."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from whippletree.store.embedded_server import (
    PATIENCE,
    TICK,
    Answer,
    Failure,
    Place,
    Plan,
    ask,
    is_still_at,
    last_lines,
    open_lock,
    options,
    pid_in,
    server_environment,
    take,
)

# Bare packages in place of ours: what those import, the supervisor would carry about all its life.
PROGRAM = """
import sys, types
for name, path in zip(("whippletree", "whippletree.store"), sys.argv[1:]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from whippletree.store.embedded_supervisor import main
main(sys.argv[3])
"""


def spawn_supervisor(plan: Plan) -> int:
    """Return a pipe that ends when the server answers, or when another supervisor has the lock already.

    What the pipe brings before its end is the reason why there is no server.
    """
    store = Path(__file__).parent
    words = [str(store.parent), str(store), json.dumps(dataclasses.asdict(plan))]
    reading, writing = os.pipe()
    try:
        subprocess.run(  # noqa: S603 - our own program; it returns at once, and leaves nobody's child behind
            [sys.executable, "-I", "-S", "-c", PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            cwd="/",
            env=server_environment(),
            start_new_session=True,  # an interrupt at a user's terminal is not meant for the server
            check=False,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return reading


class Adopted:
    """A server that another supervisor launched. It is not our child: the kernel does not tell us its end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.handle: int | None = None
        with contextlib.suppress(OSError, AttributeError):  # not on every system
            self.handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        if self.handle is not None:
            return -1 if select.select([self.handle], [], [], 0)[0] else None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return -1
        return None

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Supervisor:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.place = Place(Path(plan.directory), Path(plan.sockets))
        self.users = open_lock(self.place.users_lock)
        self.server: subprocess.Popen[bytes] | Adopted | None = None
        self.launched_at = 0
        self.leaving = False

    def leave(self, *signal_and_frame: object) -> None:
        self.leaving = True

    def bring_up(self) -> None:
        """Launch or adopt until a server answers. Every state that a crash can leave behind leads here."""
        began, pause = time.monotonic(), TICK
        while not self.leaving:
            ended = self.server.poll() if self.server is not None else None
            if ended is not None:
                self.server = None
                words = last_lines(self.place.log, self.launched_at)
                # Three things pass: that somebody ended it, that a killed server's backends are still there,
                # and that the server before this one is still leaving.
                passing = any("shared memory block" in line or "lock file" in line for line in words)
                if not (passing or ended <= 0) or time.monotonic() - began > PATIENCE:
                    raise Failure("\n".join(["The server ended while it was starting.", *words]))
                time.sleep(pause)
                pause = min(2 * pause, 2.0)
            answer, pid = ask(self.place.socket)
            if answer is Answer.READY:
                if self.server is None:
                    self.server = self._adopt(pid)
                return
            if answer is Answer.ABSENT and self.server is None:
                self._launch()
            elif time.monotonic() - began > answer.patience:
                raise Failure("\n".join([f"The server is {answer.value}.", *last_lines(self.place.log)]))
            time.sleep(TICK / 2)

    def watch(self) -> None:
        """Keep the server alive while it has users. Returns when it was stopped."""
        while True:
            if self.leaving or self.place.stop_request.exists():
                return self.shut_down(signal.SIGINT)
            if not is_still_at(self.users, self.place.users_lock):
                return self.shut_down(signal.SIGQUIT)
            if not self.place.keep.exists() and take(self.users):
                # Not given back: who comes now waits until this process has gone, then starts afresh.
                return self.shut_down(signal.SIGINT)
            if self.server is None or self.server.poll() is not None:
                _say("whippletree: the server has ended while it was in use; starting it again")
                self.server = None
                self.bring_up()
            elif not self.place.socket.exists():
                _say("whippletree: the server's socket has been removed; starting it again")
                self.shut_down(signal.SIGINT)
                self.bring_up()
            time.sleep(TICK)

    def shut_down(self, how: signal.Signals) -> None:
        server, self.server = self.server, None
        self.place.stop_request.unlink(missing_ok=True)
        if server is None:
            return
        for number in (how, signal.SIGQUIT):
            server.send_signal(number)
            server.send_signal(signal.SIGCONT)  # a suspended server would not see the other
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                if server.poll() is not None:
                    return
                time.sleep(TICK / 2)

    def _adopt(self, pid: int | None) -> Adopted:
        pid = pid_in(self.place.data / "postmaster.pid") if pid is None else pid
        if not pid:  # the kernel's 0 means another container; there a pid file would mislead us
            raise Failure("The server runs where this process cannot see it, and its supervisor has gone.")
        return Adopted(pid)

    def _launch(self) -> None:
        _clear_leftovers(self.place)
        with self.place.log.open("ab") as log:
            if log.tell() > 16 * 1024 * 1024:
                log.truncate(0)
            self.launched_at = os.fstat(log.fileno()).st_size
            private = {"listen_addresses": "", "unix_socket_permissions": "0700"}
            settings = private | self.plan.settings | {"unix_socket_directories": self.plan.sockets}
            # A session of its own, and none of our descriptors: an inherited lock would outlive us.
            self.server = subprocess.Popen(  # noqa: S603 - the program that was found, the user's own settings
                [f"{self.plan.bin}/postgres", "-D", str(self.place.data), *options(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.plan.identity(),
            )


def _clear_leftovers(place: Place) -> None:
    """Remove pid files that name a stranger. Called while nothing answers.

    This does not open a way for two servers: since version 12 PostgreSQL finds the shared memory of a server, or of
    its last backends, by the data directory itself.

    PostgreSQL clears up after itself, but it believes a pid file whose number another process of the same
    user has by now: after a restart of the machine, or of a container, that is likely. It also believes in
    a dead one that nobody has waited for, of which a container without an init has many.
    """
    for leftover in (place.data / "postmaster.pid", place.sockets / f"{place.socket.name}.lock"):
        pid = pid_in(leftover)
        if pid is not None and _is_surely_not_a_server(pid, place.data):
            leftover.unlink(missing_ok=True)


def _is_surely_not_a_server(pid: int, data: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return not (Path(os.fsdecode(words[0])).name == "postgres" and os.fsencode(data) in words)


def _say(words: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, f"{words}\n".encode())


def main(plan_as_json: str) -> None:
    """Say nothing and close the pipe when the server answers; anything said before is why it does not."""
    plan = Plan(**json.loads(plan_as_json))
    if os.fork():
        os._exit(0)  # nobody's child: no user has to reap this process, and none is told of its end
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o077)
    supervisor = Supervisor(plan)
    lock = open_lock(supervisor.place.supervisor_lock)
    for _ in range(8):  # somebody may only be looking whether it is held
        if take(lock):
            break
        time.sleep(TICK / 4)
    else:
        return
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    supervisor.place.stop_request.unlink(missing_ok=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        supervisor.bring_up()
        with supervisor.place.log.open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        supervisor.watch()
    except (Failure, OSError) as failure:
        _say(str(failure))
        sys.exit(1)
