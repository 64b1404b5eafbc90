"""The plan of one simulated run: how many nodes, which faults, which settings. Values only."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from orbweb.frontier.base import RunConfig
from orbweb.frontier.seen import SeenConfig, SeenKind

LEASE_MS = 12_000
FETCH_TIMEOUT_MS = 40_000
SEEN_KINDS = (SeenKind.EXACT, SeenKind.COMPACT, SeenKind.BLOOM, SeenKind.SET)
"""Filters of the simulated runs, in turn. They are so small that a site needs several layers."""


class Weather(StrEnum):
    """Which faults a run has."""

    CALM = "calm"
    """Only what a healthy fleet meets: lost packets, outages of the store, flaky pages."""
    STORM = "storm"
    """Nodes die, stop, hang and are cut off too; the server's clock jumps."""
    ROLLBACK = "rollback"
    """A storm in which the server also loses its last writes."""


class TasksFrom(StrEnum):
    """Where the tasks of a run come from."""

    LIST = "list"
    """The list in the store."""
    ROWS = "rows"
    """A table elsewhere, whose rows are marked when they are taken."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities of a packet's fate, and the weights of what happens to nodes and server."""

    drop: float = 0.02
    duplicate: float = 0.01
    late: float = 0.005
    """Dropped for the client, executed later all the same."""
    sink_failure: float = 0.05
    crash: float = 0.0
    pause: float = 0.0
    wedge: float = 0.0
    partition: float = 0.0
    terminate: float = 0.0
    operator_stop: float = 0.0
    clock_jump: float = 0.0
    outage: float = 0.02
    rollback: float = 0.0
    latency_ms: int = 20
    """Longest way of a packet, in each direction."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about a run that is decided before it starts. Times in milliseconds."""

    seed: int
    weather: Weather
    faults: Faults
    config: RunConfig
    nodes: int = 4
    pages: int = 90
    concurrency: int = 6
    max_held: int = 12
    store_timeout_ms: int = 1000
    """Beyond a twelfth of a lease, as in production, some lost packets in a row cost a lease."""
    shards: int = 1
    tasks: TasksFrom | None = None
    """The seeds are tasks, which come from there."""
    shares_dedup: bool = False
    """What one task has crawled is seen for the others."""
    poison: bool = False
    seed_errors: int = 0
    """How often `start_requests` raises half-way, over all nodes."""
    bound_ms: int = 3_600_000
    """The run must have ended by then."""
    chaos_ms: int = 900_000
    """Faults happen until then."""

    @property
    def calm(self) -> bool:
        return self.weather is Weather.CALM

    @property
    def rolls_back(self) -> bool:
        return self.weather is Weather.ROLLBACK


def with_tasks(plan: Plan) -> Plan:
    """The plan of a fleet that works through tasks; the seed says where they come from."""
    return replace(
        plan,
        tasks=TasksFrom.ROWS if plan.seed % 2 else TasksFrom.LIST,
        shares_dedup=plan.seed % 3 == 0,
        pages=plan.pages // 2,
        seed_errors=0,
        config=replace(
            plan.config,
            keep_alive=False,
            polls=True,
            tells_done=True,
            tells_failed=True,
            circuit_threshold=0,  # what always fails is asked for by many tasks
        ),
    )


STORM = Faults(
    crash=0.14,
    pause=0.1,
    wedge=0.04,
    partition=0.1,
    terminate=0.04,
    operator_stop=0.004,
    clock_jump=0.03,
    outage=0.015,
)


def make_plan(seed: int, rng: random.Random, weather: Weather | None = None) -> Plan:
    """The plan of a seed. Without a weather of choice one seed in five is calm."""
    if weather is None:
        weather = Weather.CALM if seed % 5 == 0 else Weather.STORM
    faults = Faults() if weather is Weather.CALM else STORM
    if weather is Weather.ROLLBACK:
        faults = replace(STORM, rollback=0.15)
    config = RunConfig(
        host_concurrency=rng.choice([1, 2, 3, 3, 0]),
        host_delay_ms=rng.choice([0, 0, 0, 150]),
        fetch_timeout_ms=FETCH_TIMEOUT_MS,
        lease_ms=LEASE_MS,
        max_retries=2,
        max_deliveries=5,
        keep_alive=rng.random() < 0.1,
        dedup_scope=rng.choice(["run", "spider"]),
        seen=SeenConfig(SEEN_KINDS[seed // 2 % len(SEEN_KINDS)], capacity=16),
        run_ttl_ms=0,
    )
    return Plan(
        seed=seed,
        weather=weather,
        faults=replace(faults, latency_ms=rng.choice([3, 20, 20, 120])),
        config=config,
        nodes=rng.choice([1, 2, 3, 4, 4]),
        pages=rng.randint(30, 90),
        concurrency=rng.choice([1, 4, 6, 6, 16]),
        max_held=rng.choice([3, 12, 12, 40]),
        store_timeout_ms=rng.choice([500, 1000, 1000 if weather is Weather.CALM else 2500]),
        poison=weather is not Weather.CALM and rng.random() < 0.3,
        seed_errors=rng.choice([0, 0, 0, 1, 2]),
    )
