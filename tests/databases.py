"""Real databases for tests: PostgreSQL and MariaDB from Debian, each in its own directory."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.ports import free_port

from orbweb.sql.databases import open_engine

START_SECONDS = 60.0


def program(name: str, *folders: str) -> str | None:
    """A server program, which Debian keeps off the path."""
    found = shutil.which(name)
    places = (
        folder for pattern in folders for folder in sorted(Path("/").glob(pattern.lstrip("/")))
    )
    return found or next((str(each / name) for each in places if (each / name).exists()), None)


def postgres_program(name: str = "postgres") -> str | None:
    return program(name, "/usr/lib/postgresql/*/bin")


def mariadb_program(name: str = "mariadbd") -> str | None:
    return program(name, "/usr/sbin", "/usr/bin")


class Database:
    """A database in a directory of its own; killed and started as a test likes."""

    url = ""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="orbweb-db-"))

    def kill(self) -> None:
        """SIGKILL: what is not on disk is lost. SQLite has no server to kill."""

    def start(self) -> None:
        """Start it, again if it was killed; returns when it answers."""

    def stop(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        engine = open_engine(self.url)
        try:
            with engine.connect() as connection:
                return [tuple(row) for row in connection.execute(sa.text(sql))]
        finally:
            engine.dispose()

    def execute(self, *statements: str) -> None:
        engine = open_engine(self.url)
        try:
            with engine.begin() as connection:
                for statement in statements:
                    connection.execute(sa.text(statement))
        finally:
            engine.dispose()


class Sqlite(Database):
    """A file."""

    def __init__(self) -> None:
        super().__init__()
        self.url = f"sqlite:///{self.directory}/items.db"


class ServerDatabase(Database):
    """A server process on a port of the loopback. Not run as root, which servers refuse.

    It hands what it commits to the system and does not wait for the disk: that survives the death
    of the process, and it is the process that tests kill.
    """

    user = ""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.as_user: dict[str, object] = {}
        if os.getuid() == 0:
            account = pwd.getpwnam(self.user)
            self.as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(self.directory, account.pw_uid, account.pw_gid)

    def setup(self, command: Sequence[str]) -> None:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.directory, **self.as_user
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        """See `Database`. Started again while processes of a killed server still hold its data."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            self.spawn()
            if self.answers(deadline):
                return
        raise TimeoutError((self.directory / "log").read_text())

    def spawn(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
                **self.as_user,
            )

    def answers(self, deadline: float) -> bool:
        """Wait until it answers; False when it ended instead."""
        assert self.process is not None
        while time.monotonic() < deadline:
            try:
                self.rows("SELECT 1")
            except sa.exc.DBAPIError:
                time.sleep(0.05)
                if self.process.poll() is not None:
                    return False
            else:
                return True
        return False

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)  # PostgreSQL's children end by themselves
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        super().stop()


class Postgres(ServerDatabase):
    user = "postgres"

    def __init__(self) -> None:
        super().__init__()
        self.data = self.directory / "data"
        initdb = postgres_program("initdb")
        assert initdb is not None
        options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self.setup([initdb, "-D", str(self.data), *options])
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.start()

    def command(self) -> list[str]:
        server = postgres_program()
        assert server is not None
        sockets = f"unix_socket_directories={self.directory}"
        settings = ("listen_addresses=127.0.0.1", sockets, "fsync=off")
        options = [word for setting in settings for word in ("-c", setting)]
        return [server, "-D", str(self.data), "-p", str(self.port), *options]


class Mariadb(ServerDatabase):
    user = "mysql"

    def __init__(self) -> None:
        super().__init__()
        self.data = self.directory / "data"
        install = mariadb_program("mariadb-install-db")
        assert install is not None
        options = (
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            f"--tmpdir={self.directory}",  # in /tmp another server may take its files for its own
        )
        self.setup([install, "--no-defaults", f"--datadir={self.data}", *options])
        self.url = f"mysql://root@127.0.0.1:{self.port}/mysql"
        self.start()
        self.execute("CREATE DATABASE items CHARACTER SET utf8mb4")
        self.url = f"mysql://root@127.0.0.1:{self.port}/items"

    def command(self) -> list[str]:
        server = mariadb_program()
        assert server is not None
        return [
            server,
            *("--no-defaults", f"--datadir={self.data}", f"--port={self.port}"),
            *("--bind-address=127.0.0.1", f"--socket={self.directory / 's'}"),
            f"--pid-file={self.directory / 'pid'}",
            f"--tmpdir={self.directory}",
            "--innodb-flush-method=nosync",
        ]


def open_database(kind: str) -> Database:
    """A database that is empty. Skips the test, and says why, where it cannot be had."""
    if kind == "postgres" and postgres_program() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    if kind == "mariadb" and mariadb_program() is None:
        pytest.skip("MariaDB is not installed: apt-get install mariadb-server")
    return {"postgres": Postgres, "mariadb": Mariadb, "sqlite": Sqlite}[kind]()


KINDS = ("sqlite", "postgres", "mariadb")
