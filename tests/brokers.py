"""Kafka brokers for tests: librdkafka's own mock, the small `noida-db`, or a cluster of yours.

`ORBWEB_TEST_KAFKA=host:9092` names a cluster: the same tests then run there, on topics of their
own, except those that kill the broker.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from tests.ports import free_port

GIVEN = os.environ.get("ORBWEB_TEST_KAFKA", "")


def new_topic() -> str:
    """A name that no other test has."""
    return f"orbweb-test-{uuid.uuid4().hex[:12]}"


class MockBroker:
    """librdkafka's mock cluster, which lives as long as this object. It keeps nothing on disk."""

    def __init__(self) -> None:
        self._keeper = confluent_kafka.Producer(
            {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
        )
        brokers = self._keeper.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{each.host}:{each.port}" for each in brokers)

    def make_topic(self, name: str, partitions: int) -> None:
        """The mock makes topics itself, with four partitions."""

    def stop(self) -> None:
        del self._keeper


class GivenCluster:
    """The cluster that ORBWEB_TEST_KAFKA names."""

    servers = GIVEN

    def make_topic(self, name: str, partitions: int) -> None:
        _make_topic(self.servers, name, partitions)

    def stop(self) -> None:
        """Its topics are left to its retention."""


class Noida:
    """A broker of one process with all of Kafka's semantics that we need, killed as a test likes.

    It holds all messages in memory and in one JSON file: a few ten thousand at most.
    """

    def __init__(self) -> None:
        program = noida_program()
        if program is None:
            raise FileNotFoundError("noida-db is not installed")
        self.directory = Path(tempfile.mkdtemp(prefix="orbweb-kafka-"))
        self.port = free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self.arguments = [
            *(program, "start", "--data-dir", str(self.directory), "--only", "kafka"),
            *("--kafka-port", str(self.port)),
        ]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.arguments, cwd=self.directory, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise TimeoutError((self.directory / "log").read_text())

    def make_topic(self, name: str, partitions: int) -> None:
        _make_topic(self.servers, name, partitions)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def wait_until_saved(self) -> None:
        """Wait for its next save, which it makes once a second while anything changes.

        A cluster with `acks=all` has what it confirmed on several machines; this broker alone has
        it on disk a second later.
        """
        file = self.directory / "kafka.json"
        for _ in range(2):  # what it is writing now may have been gathered before
            now = time.time()
            while not file.exists() or file.stat().st_mtime <= now:
                self._touch()
                time.sleep(0.05)

    def _touch(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers, "linger.ms": 0})
        producer.produce("touched", b"")
        producer.flush(5)

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def noida_program() -> str | None:
    """The server's binary, beside the Python program that its wheel brings; None without it."""
    try:
        import noida_db
    except ImportError:
        return None
    program = Path(noida_db.__path__[0]) / "noida-db"
    return str(program) if program.exists() else None


def _make_topic(servers: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    (made,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    made.result(20)
