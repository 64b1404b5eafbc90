"""Walks in search of a mutant: `python -m tests.lua.hunt` finds those that soon come to it.

`python -m tests.lua.hunt NAME...` tells of each mutant whether it is noticed, one JSON line each.

Some faults show in one walk of several hundred. `seeds.json` has for each of them a seed whose
first walks meet it. A seed is only a hint: any change of the machine may spoil it, and so may what
else the process has loaded: Hypothesis draws constants that it finds in there, which is why the
test hunts in a process of its own. Then the whole budget is walked as for the others, and at last
by the steered machine.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.lua import mutants
from tests.lua.book_mutants import BOOK_MUTANTS
from tests.lua.books import BookMachine
from tests.lua.direct import DirectClient
from tests.lua.mutants import Mutant
from tests.lua.steered import SteeredMachine
from tests.lua.task_mutants import TASK_MUTANTS
from tests.lua.tasks import TaskMachine
from tests.lua.tuned import TunedMachine
from tests.lua.tuned_mutants import TUNED_MUTANTS
from tests.lua.twins import Backend, build_scripts
from tests.servers import Server

Machines = type[TaskMachine] | type[BookMachine]
MACHINES: tuple[tuple[tuple[Mutant, ...], tuple[Machines, ...]], ...] = (
    ((*mutants.MUTANTS, *TASK_MUTANTS), (TaskMachine, SteeredMachine)),
    (TUNED_MUTANTS, (TunedMachine, TunedMachine)),
    (BOOK_MUTANTS, (BookMachine, BookMachine)),
)
"""For each mutant the machine that walks first, and the one that walks when that met nothing."""

MUTANTS = tuple(mutant for some, _ in MACHINES for mutant in some)
SEEDS = Path(__file__).with_name("seeds.json")
FEW = 20
"""Walks of a seed in `seeds.json`; a mutant that is noticed in twice as many needs none."""

BUDGET = settings(
    max_examples=1_200,
    stateful_step_count=24,
    deadline=None,
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@dataclass(frozen=True, slots=True)
class Hunt:
    noticed: bool
    walks: int


def seeds() -> dict[str, int]:
    """By the name of a mutant, a seed that soon meets it."""
    found: dict[str, int] = json.loads(SEEDS.read_text())
    return found


def hunt(mutant: Mutant, server: Server, hint: int | None = None) -> Hunt:
    """Walk until the mutant is noticed: a few times, where the hint says, then the whole budget."""
    first = walk(mutant, server, 2 * FEW if hint is None else FEW, hint)
    if first.noticed:
        return first
    walks = first.walks
    at_first, at_last = machines(mutant)
    for machine, of_seed in ((at_first, None), (at_last, None), (at_last, 1)):
        whole = walk(mutant, server, BUDGET.max_examples, of_seed, machine)
        walks += whole.walks
        if whole.noticed:
            break
    return Hunt(whole.noticed, walks)


def machines(mutant: Mutant) -> tuple[Machines, ...]:
    """See `MACHINES`."""
    return next(found for some, found in MACHINES if mutant in some)


def walk(
    mutant: Mutant,
    server: Server,
    most: int,
    of_seed: int | None = None,
    machine: Machines | None = None,
) -> Hunt:
    """Up to so many walks; the same ones where the same modules are loaded."""
    client = DirectClient(server.socket)
    of_mutant, _ = machines(mutant)

    class Machine(machine or of_mutant):  # type: ignore[misc]
        pass

    if of_seed is not None:
        seed(of_seed)(Machine)
    Machine.counts = Counter()
    Machine.backends = [Backend(client, build_scripts(mutant.build()))]
    noticed = False
    try:
        run_state_machine_as_test(Machine, settings=settings(BUDGET, max_examples=most))
    except AssertionError:
        noticed = True
    finally:
        client.close()
    return Hunt(noticed, Machine.counts["sequences"])


def tell(names: Sequence[str]) -> None:
    """Hunt these mutants; a line of JSON each."""
    server, hints = Server("valkey"), seeds()
    try:
        for mutant in MUTANTS:
            if mutant.name in names:
                found = hunt(mutant, server, hints.get(mutant.name))
                print(json.dumps([mutant.name, found.noticed, found.walks]), flush=True)
    finally:
        server.stop()


def main() -> None:
    """Keep the seeds that are still good, and look for those that are wanted."""
    server = Server("valkey")
    known, found = seeds(), dict[str, int]()
    try:
        for mutant in MUTANTS:
            if mutant.name in known or not walk(mutant, server, 2 * FEW).noticed:
                first = known.get(mutant.name, 0)
                good = (n for n in count(first) if walk(mutant, server, FEW, n).noticed)
                found[mutant.name] = next(good)
                SEEDS.write_text(json.dumps(known | found, indent=1, sort_keys=True) + "\n")
                print(f"{mutant.name}: {found[mutant.name]}", flush=True)
    finally:
        server.stop()
    SEEDS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        tell(sys.argv[1:])
    else:
        main()
