"""A cluster for tests: three masters with a replica each, on random ports of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import redis
from tests.ports import free_port
from tests.servers import BINARIES

MASTERS = 3
SLOTS = 16_384
NODE_TIMEOUT_MS = 1_000


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, each once."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


class ClusterServer:
    """One server of a cluster."""

    def __init__(self, kind: str, port: int, bus_port: int) -> None:
        self.port = port
        self.bus_port = bus_port
        self.directory = Path(tempfile.mkdtemp(prefix="orbweb-cluster-"))
        self.arguments = [
            str(BINARIES[kind]()),
            *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(self.directory)),
            *("--cluster-enabled", "yes", "--cluster-port", str(bus_port)),
            *("--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--repl-diskless-sync-delay", "0"),
            *("--save", "", "--appendonly", "yes", "--loglevel", "warning"),
        ]
        self.client = redis.Redis(port=port, socket_timeout=2)
        self.start()

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self.arguments, stdout=log, stderr=subprocess.STDOUT)

    def answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def call(self, *words: object) -> object:
        return self.client.execute_command(*words)

    @property
    def id(self) -> str:
        return str(self.client.cluster("myid").decode())

    def info(self) -> dict[str, str]:
        """Of the cluster, as this server sees it."""
        return {str(key): str(value) for key, value in self.client.cluster("info").items()}

    def role(self) -> str:
        return str(self.client.info("replication")["role"])

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing more is sent."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.kill()
        self.client.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Cluster:
    """Masters are `servers[0:3]`; `servers[3 + n]` is the replica of `servers[n]`."""

    def __init__(self, kind: str = "valkey") -> None:
        ports = free_ports(4 * MASTERS)
        self.servers = [ClusterServer(kind, *ports[n : n + 2]) for n in range(0, len(ports), 2)]
        self.masters, self.replicas = self.servers[:MASTERS], self.servers[MASTERS:]
        self._wait(lambda: all(each.answers() for each in self.servers), "answers")
        self._join()

    @property
    def url(self) -> str:
        """As REDIS_URL: two of the servers."""
        return "redis://" + ",".join(f"127.0.0.1:{each.port}" for each in self.servers[:2])

    def _join(self) -> None:
        first = self.servers[0]
        share = -(-SLOTS // MASTERS)
        for number, master in enumerate(self.masters):
            begin = number * share
            end = min(begin + share, SLOTS) - 1
            master.call("CLUSTER", "ADDSLOTSRANGE", begin, end)
            master.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for each in self.servers[1:]:
            first.call("CLUSTER", "MEET", "127.0.0.1", each.port, each.bus_port)
        self._wait(lambda: all(self._knows_all(each) for each in self.servers), "introductions")
        for master, replica in zip(self.masters, self.replicas, strict=True):
            replica.call("CLUSTER", "REPLICATE", master.id)
        self._wait(self.healthy, "replicas")

    def _knows_all(self, server: ClusterServer) -> bool:
        return server.info()["cluster_known_nodes"] == str(len(self.servers))

    def healthy(self) -> bool:
        """All slots are served, and every master has a replica that follows it."""
        if not all(each.answers() for each in self.servers):
            return False
        links = [each.client.info("replication").get("master_link_status") for each in self.servers]
        states = [each.info()["cluster_state"] for each in self.servers]
        return links.count("up") == MASTERS and set(states) == {"ok"}

    def master_of(self, key: str) -> int:
        """Number of the master that owns a key."""
        slot = int(str(self.masters[0].call("CLUSTER", "KEYSLOT", key)))
        return slot // -(-SLOTS // MASTERS)

    def until_promoted(self, number: int) -> None:
        """Wait until the replica of a master has taken its place."""
        self._wait(lambda: self.replicas[number].role() == "master", "promotion")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            if time.monotonic() > deadline:
                logs = [(each.directory / "log").read_text()[-500:] for each in self.servers]
                raise TimeoutError(f"the cluster has no {what}: {logs}")
            time.sleep(0.02)

    def stop(self) -> None:
        for each in self.servers:
            each.stop()
