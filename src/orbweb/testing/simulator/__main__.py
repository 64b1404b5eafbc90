"""`python -m orbweb.testing.simulator`: run seeds and say which ones fail."""

from __future__ import annotations

import argparse
import os
import sys

from orbweb.testing.simulator.mutants import MUTANTS
from orbweb.testing.simulator.plan import Weather
from orbweb.testing.simulator.runner import Tally, mutant_of, run_on_processes, run_seeds


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when nothing was violated, or when the mutant was caught; else 1."""
    options = _parser().parse_args(arguments)
    weather = Weather.ROLLBACK if options.rollback else options.weather
    seeds = range(options.seed0, options.seed0 + options.runs)
    if options.processes > 1 and not options.mutant:
        tally = run_on_processes(seeds, weather, processes=options.processes)
    else:
        tally = run_seeds(seeds, weather, options.mutant, until_caught=bool(options.mutant))
    _show(tally)
    if options.mutant:
        return int(not tally.caught(mutant_of(options.mutant)))
    return int(bool(tally.failures))


def _show(tally: Tally) -> None:
    for seed, violations in sorted(tally.failures.items()):
        texts = "; ".join(f"{each.name} ({each.text})" for each in violations)
        print(f"seed {seed}: {texts}")
    print(tally.line())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m orbweb.testing.simulator", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many seeds (default 100)")
    parser.add_argument("--seed0", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--weather", type=Weather, choices=list(Weather), help="only this weather")
    parser.add_argument("--rollback", action="store_true", help="the server loses writes, too")
    parser.add_argument("--mutant", default="", choices=["", *MUTANTS], help="change the design")
    parser.add_argument("--processes", type=int, default=1, help="worker processes (default 1)")
    return parser


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a part of the history
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "orbweb.testing.simulator", *sys.argv[1:]])
    sys.exit(main())
