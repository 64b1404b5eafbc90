"""The Valkey server of one directory: started by the first process that needs it, shared by all.

Three locks under `.orbweb/` and one mark carry all that processes must agree on. A SIGKILL leaves
none of them in a wrong state, because the locks are the kernel's (flock):

- `start.lock` is held while the server is being started or stopped;
- `server.lock` is held by the server as long as it lives;
- `users.lock` is held, shared, by every process that uses the store;
- `keep` exists when the server is to stay although nobody uses it.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.embedded_server import (
    HAS_LOCKS,
    HINT,
    POLL_SECONDS,
    START_SECONDS,
    STOP_SECONDS,
    UNREACHABLE_SECONDS,
    Answer,
    ServerProcess,
    lock_shared,
    try_lock,
)
from orbweb.log import event, get_logger

FOLDER = ".orbweb"

logger = get_logger("frontier.embedded")


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
        self._server = ServerProcess(self.folder)
        self._keep_file = self.folder / "keep"
        self._user: IO[bytes] | None = None
        self._last_pid: int | None = None

    @property
    def url(self) -> str:
        """Address of the server for a Redis client, whether it runs or not."""
        return self._server.url

    def __enter__(self) -> str:
        self.register()
        try:
            return self.ensure()
        except (ConfigError, StoreUnavailable, KeyboardInterrupt):
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

        A server that was killed is started again on the same data, so this is also what to call
        after an outage. Raises `ConfigError` when there is no server program for this machine or
        the directory cannot be written, and `StoreUnavailable` with the server's own words when it
        does not start.
        """
        self._prepare()
        with self._starting():
            if self._server.alive() and self._server.wait(UNREACHABLE_SECONDS) is Answer.REFUSED:
                self._server.terminate()
            if not self._server.alive():
                self._server.start()
                event(logger, "store_started", pid=self._server.pid, url=self.url)
        self._server.wait_until_loaded()
        self._last_pid = self._server.pid
        return self.url

    def register(self) -> None:
        """Count this process as a user until `release`, or until it dies in whatever way."""
        if self._user is not None:
            return
        self._prepare()
        user = (self.folder / "users.lock").open("ab")
        lock_shared(user)
        self._user = user

    def release(self) -> None:
        """Leave; the last user stops the server, unless it is kept. Its data is on disk then.

        Where the folder was deleted meanwhile, nobody can find the server any more: it is left.
        """
        if self._user is None:
            return
        if not self.folder.is_dir():
            self._leave()
            event(
                logger,
                "store_folder_deleted",
                level=logging.WARNING,
                folder=str(self.folder),
                server_still_runs_as_pid=self._last_pid,
            )
            return
        with self._starting():
            self._leave()
            if self._in_use() or self._keep_file.exists() or not self._server.alive():
                return
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
            if not self._server.alive():
                return False
            self._shut_down()
            return True

    def status(self) -> EmbeddedStatus:
        """Look, and change nothing; waits while the server is being started or stopped."""
        if not self.folder.is_dir() or not self._server.alive():
            return EmbeddedStatus(False, Answer.REFUSED, self.url, kept=self._keep_file.exists())
        with self._starting():
            in_use = self._in_use()
        answer = self._server.ping()
        facts = self._server.facts() if answer is Answer.READY else {}
        return EmbeddedStatus(
            running=True,
            answer=answer,
            url=self.url,
            pid=self._server.pid,
            in_use=in_use,
            kept=self._keep_file.exists(),
            version=str(facts.get("valkey_version") or facts.get("redis_version") or ""),
            memory_bytes=int(facts.get("used_memory", 0)),
        )

    def _shut_down(self) -> None:
        pid = self._server.pid
        self._server.shut_down()
        event(logger, "store_stopped", pid=pid, folder=str(self.folder))

    def _prepare(self) -> None:
        if not HAS_LOCKS:
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

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Hold the right to start or stop the server."""
        with (self.folder / "start.lock").open("ab") as lock:
            deadline = time.monotonic() + START_SECONDS + STOP_SECONDS
            while not try_lock(lock):
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"another process has been starting or stopping the store in {self.folder} "
                        f"for more than {START_SECONDS + STOP_SECONDS:g} s"
                    )
                time.sleep(POLL_SECONDS)
            yield

    def _in_use(self) -> bool:
        """Whether a living process uses it. Only while `_starting`: two who look see each other."""
        with (self.folder / "users.lock").open("ab") as lock:
            return not try_lock(lock)

    def _leave(self) -> None:
        if self._user is not None:
            self._user.close()
            self._user = None
