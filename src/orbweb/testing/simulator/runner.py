"""Runs many seeds, on one process or several, and adds up what came of them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from orbweb.testing.simulator.checker import Violation
from orbweb.testing.simulator.history import Record
from orbweb.testing.simulator.mutants import MUTANTS, NO_MUTANT, Mutant
from orbweb.testing.simulator.plan import Weather
from orbweb.testing.simulator.shard_mutants import SHARD_MUTANTS
from orbweb.testing.simulator.task_mutants import TASK_MUTANTS
from orbweb.testing.simulator.world import prepared, simulate

CHUNK = 50
"""Seeds of one task of a worker process; garbage is collected between tasks."""

ALL_MUTANTS = {**MUTANTS, **SHARD_MUTANTS, **TASK_MUTANTS}
"""All mutants of the design by name."""

FACTS = ("crash", "pause", "wedge", "partition", "terminate", "outage", "rollback")


@dataclass(slots=True)
class Tally:
    """Sums over runs, and the violations of each seed that had some."""

    runs: int = 0
    seconds: float = 0.0
    virtual_seconds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, list[Violation]] = field(default_factory=dict)

    def add(self, record: Record, violations: list[Violation]) -> None:
        """Count one run."""
        self.runs += 1
        self.virtual_seconds += record.end_ms // 1000 - 1000
        self.counts.update(
            pages=len(record.site.pages),
            fetches=record.count("start"),
            items=record.count("stored"),
            dead=len(record.dead),
            told=record.count("told"),
        )
        kinds = Counter(event.kind for event in record.events)
        self.counts.update({kind: kinds[kind] for kind in FACTS})
        if violations:
            self.failures[record.plan.seed] = violations

    def merge(self, other: Tally) -> None:
        """Add the sums of another tally."""
        self.runs += other.runs
        self.seconds += other.seconds
        self.virtual_seconds += other.virtual_seconds
        self.counts.update(other.counts)
        self.failures.update(other.failures)

    def caught(self, mutant: Mutant) -> bool:
        """Whether a violation that the mutant is known by was found."""
        return any(each.name in mutant.by for found in self.failures.values() for each in found)

    def line(self) -> str:
        """One line: how much was run and what was found."""
        found = Counter(each.name for found in self.failures.values() for each in found)
        counts = " ".join(f"{name}={count}" for name, count in self.counts.items() if count)
        return (
            f"runs={self.runs} violations={dict(found) or 0} {counts} "
            f"virtual_hours={self.virtual_seconds / 3600:.1f} seconds={self.seconds:.1f}"
        )


def run_seeds(
    seeds: Sequence[int],
    weather: Weather | None = None,
    mutant: str = "",
    *,
    shards: int = 1,
    tasks: bool = False,
    until_caught: bool = False,
) -> Tally:
    """Run the seeds in this process; `until_caught` stops when the mutant has given itself away."""
    chosen = mutant_of(mutant)
    shards = max(shards, chosen.shards)
    tally, began = Tally(), time.perf_counter()
    with prepared(chosen):
        for seed in seeds:
            record, violations = simulate(seed, weather, chosen, shards, tasks=tasks)
            tally.add(record, violations)
            if until_caught and any(each.name in chosen.by for each in violations):
                break
            if tally.runs % CHUNK == 0:
                gc.collect()
    tally.seconds = time.perf_counter() - began
    return tally


def run_on_processes(
    seeds: Sequence[int],
    weather: Weather | None = None,
    *,
    shards: int = 1,
    tasks: bool = False,
    processes: int = 2,
) -> Tally:
    """Run the seeds on several processes."""
    run = partial(run_seeds, shards=shards, tasks=tasks)
    tally = Tally()
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for part in pool.map(run, chunks, [weather] * len(chunks)):
            tally.merge(part)
    return tally


def hunt(name: str) -> Tally:
    """Run a mutant until it is caught or its number of seeds is used up."""
    return run_seeds(range(mutant_of(name).seeds), mutant=name, until_caught=True)


def mutant_of(name: str) -> Mutant:
    """The mutant of that name; the empty name is the design as it is."""
    return ALL_MUTANTS[name] if name else NO_MUTANT


def history_in_new_process(seed: int, hash_seed: str) -> str:
    """The history of a seed, made by a fresh interpreter (to see that nothing else decides it)."""
    code = (
        "from orbweb.testing.simulator.world import prepared, simulate\n"
        "with prepared():\n"
        f"    record, _ = simulate({seed})\n"
        "print(*record.events, sep='\\n')\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout
