"""A write that is torn loses nothing: what the order of writes and the repair promise."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from tests.lua.direct import DirectClient, run_now
from tests.lua.mutants import TORN_MUTANTS, Mutant
from tests.lua.task_mutants import TORN_TASK_MUTANTS
from tests.lua.torn import KINDS, LEASE_MS, SEEDS, Recorder, aof_of, page, torn_faults
from tests.lua.twins import build_scripts
from tests.servers import Server

from orbweb.frontier.base import Ack, Nack, RunConfig, RunState
from orbweb.frontier.scripts import Script
from orbweb.frontier.valkey import ValkeyFrontier


def faults(
    server: Server, scratch: DirectClient, scripts: dict[str, Script], *, tasks: bool = False
) -> Iterator[str]:
    client = DirectClient(server.socket)
    recorder = Recorder(client, aof_of(server), scripts)
    if tasks:
        recorder.play_tasks()
    else:
        recorder.play()
    client.close()
    assert recorder.frontier.run
    epoch = recorder.frontier.run.base.rpartition(":")[2]
    seeds = () if tasks else SEEDS
    yield from torn_faults(recorder.written, scratch, scripts, epoch, seeds)


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_after_any_torn_transition_the_repair_leaves_nothing_lost(
    server: Server, scratch: DirectClient
) -> None:
    assert list(faults(server, scratch, build_scripts())) == []


@pytest.mark.parametrize("mutant", TORN_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_order_of_writes_is_noticed(
    mutant: Mutant, server: Server, scratch: DirectClient
) -> None:
    assert next(faults(server, scratch, build_scripts(mutant.build())), None) is not None


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_after_any_torn_transition_of_tasks_each_is_told_to_have_ended(
    server: Server, scratch: DirectClient
) -> None:
    assert list(faults(server, scratch, build_scripts(), tasks=True)) == []


@pytest.mark.parametrize("mutant", TORN_TASK_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_order_of_writes_of_tasks_is_noticed(
    mutant: Mutant, server: Server, scratch: DirectClient
) -> None:
    scripts = build_scripts(mutant.build())
    assert next(faults(server, scratch, scripts, tasks=True), None) is not None


class TreeCrawl:
    """Crawls a tree of pages on a server that loses the end of its file again and again."""

    PAGES = 120

    def __init__(self, server: Server) -> None:
        self.server = server
        self.wall = 1_000
        self.seq = 0
        self.done: set[str] = set()
        self.epoch = ""
        self.connect()

    def connect(self) -> None:
        self.client = DirectClient(self.server.socket)
        self.frontier = ValkeyFrontier(self.client, prefix="p", job="j")  # type: ignore[arg-type]
        self.frontier.caller.time = self.wall
        if self.epoch:
            self.frontier.attach(self.epoch)

    def begin(self) -> None:
        config = RunConfig(lease_ms=6_000, host_concurrency=0, max_deliveries=10**6)
        self.epoch = run_now(self.frontier.open(config)).epoch
        token = run_now(self.frontier.seed_claim("A", 1, LEASE_MS)).token
        run_now(self.frontier.seed_push(token, 1, True, [page("p0")]))

    def pages_of(self, number: int) -> list[str]:
        children = range(3 * number + 1, 3 * number + 4)
        return [f"p{child}" for child in children if child < self.PAGES]

    def round(self, luck: random.Random) -> RunState:
        """A node claims, gives back or finishes a part of what it got, and forgets the rest."""
        self.wall += 1_000
        self.frontier.caller.time = self.wall
        self.seq += 1
        claim = run_now(self.frontier.claim("A", self.seq, 6, LEASE_MS))
        for lease in claim.leases:
            dice = luck.random()
            if dice < 0.1:
                continue
            if dice < 0.2:
                run_now(self.frontier.nack([Nack(*lease.held, 100, counted=False)]))
            else:
                links = [page(link) for link in self.pages_of(int(lease.id[1:]))]
                if run_now(self.frontier.ack([Ack(*lease.held, "done", 0, links)])) == [True]:
                    self.done.add(lease.id)
        return claim.state

    def tear(self, luck: random.Random) -> None:
        """Power fails within the last transaction; then the server starts a second time as well."""
        self.server.kill()
        self.client.close()
        aof = aof_of(self.server)
        data = aof.read_bytes()
        begins = data.rindex(b"MULTI")
        os.truncate(aof, luck.randrange(begins - 8, len(data)))
        self.server.start()
        self.connect()
        self.round(luck)
        self.round(luck)
        self.server.kill()
        self.client.close()
        self.server.start()
        self.connect()


TIMES = [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 30))]


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_a_file_torn_at_any_byte_loses_nothing_in_two_restarts(server: Server, time: int) -> None:
    seed = random.randrange(10**6)
    luck = random.Random(seed)
    crawl = TreeCrawl(server)
    crawl.begin()
    repairs = 0
    for _ in range(6):
        for _ in range(luck.randrange(1, 4)):
            crawl.round(luck)
        crawl.tear(luck)
        repairs += run_now(crawl.frontier.recover())
        assert run_now(crawl.frontier.fsck()) == 0, f"the second repair finds more (seed {seed})"
    for _ in range(300):
        if crawl.round(luck) is RunState.DONE:
            break
    else:
        raise AssertionError(f"the run does not end (seed {seed}, {repairs} repairs)")
    everything = {f"p{n}" for n in range(TreeCrawl.PAGES)}
    assert everything - crawl.done == set(), f"lost (seed {seed}, {repairs} repairs)"
    crawl.client.close()
