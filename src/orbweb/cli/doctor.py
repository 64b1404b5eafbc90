"""What `doctor` looks at: Python, packages, settings, the store, the disk."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from orbweb.cli import USAGE, show
from orbweb.cli.store import existing_store, has_data
from orbweb.errors import ConfigError, OrbwebError, StoreUnavailable, StoreUnsafe
from orbweb.frontier.embedded import EmbeddedStore
from orbweb.frontier.embedded_server import server_program
from orbweb.frontier.server import ServerFacts
from orbweb.frontier.servers import judge_all, reach
from orbweb.log import mask_address
from orbweb.settings import Settings, load_settings
from orbweb.settings.version import own_version

OLDEST_PYTHON = (3, 11)
PACKAGES = ("aiohttp", "brotli", "hiredis", "msgspec", "parsel", "protego", "uvloop")
LEAST_FREE_BYTES = 1 << 30
LEAST_OPEN_FILES = 1024
MOST_SKEW_SECONDS = 2.0
MEMORY_SHARE = 0.8
"""A server that is fuller than this is worth a warning: it will refuse writes."""


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    verdict: Verdict
    text: str


def examine(changes: Mapping[str, str], *, as_json: bool) -> int:
    """Print what was found; returns 2 when something is wrong, else 0."""
    found = list(findings(changes))
    if as_json:
        show.as_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            print(f"{finding.verdict:<8} {finding.check:<12} {finding.text}")
    return USAGE if any(finding.verdict is Verdict.WRONG for finding in found) else 0


def findings(changes: Mapping[str, str]) -> Iterator[Finding]:
    """All that was looked at. `changes` are settings of the command line."""
    yield _python()
    yield from _packages()
    try:
        settings = load_settings(overrides=changes, directory=Path.cwd(), environ=os.environ)
    except ConfigError as error:
        yield Finding("settings", Verdict.WRONG, str(error))
        return
    yield from _settings(settings)
    yield from _store(settings)
    yield _disk(Path(settings["OUTPUT_DIR"] or "."))
    yield from _open_files()


def _python() -> Finding:
    text = f"orbweb {own_version()} on Python {platform.python_version()}, {platform.platform()}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", Verdict.WRONG, f"{text}: Python 3.11 or later is needed")
    return Finding("python", Verdict.OK, text)


def _packages() -> Iterator[Finding]:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        yield Finding("packages", Verdict.WRONG, f"pip install {' '.join(missing)}")
    else:
        yield Finding("packages", Verdict.OK, ", ".join(PACKAGES))


def _settings(settings: Settings) -> Iterator[Finding]:
    chosen = [name for name in settings if settings.origin(name) != "default"]
    for name in chosen:
        yield Finding(
            "setting", Verdict.OK, f"{name} = {settings.shown(name)}  ({settings.origin(name)})"
        )
    if not chosen:
        yield Finding("settings", Verdict.OK, "all have their defaults")
    for note in settings.notes:
        yield Finding("settings", Verdict.WARNING, note)
    if "+http" not in settings["USER_AGENT"] and "@" not in settings["USER_AGENT"]:
        yield Finding(
            "identity",
            Verdict.WARNING,
            f"USER_AGENT {settings['USER_AGENT']!r} does not say how to reach you; "
            'better: "mybot/1.0 (+https://example.com/bot)"',
        )


def _store(settings: Settings) -> Iterator[Finding]:
    directory = Path.cwd()
    if not settings["REDIS_URL"]:
        embedded = EmbeddedStore(directory)
        try:
            program = server_program()
        except ConfigError as error:
            yield Finding("store", Verdict.WRONG, str(error))
            return
        yield Finding("store", Verdict.OK, f"embedded: {program}, socket {embedded.url}")
        if not has_data(directory):
            yield Finding("store", Verdict.OK, "nothing was crawled in this directory yet")
            return
    try:
        with existing_store(settings, directory) as url:
            yield from asyncio.run(_look_at_servers(url, settings))
    except OrbwebError as error:
        yield Finding("store", Verdict.WRONG, str(error))


async def _look_at_servers(url: str, settings: Settings) -> list[Finding]:
    servers = await reach(url, settings["REDIS_KEY_PREFIX"], settings["STORE_TIMEOUT"])
    try:
        asked = time.monotonic()
        facts = await servers.facts()
        took_ms = (time.monotonic() - asked) * 1000 / len(facts)
        found: list[Finding] = []
        for address, each in facts.items():
            found += _look_at_server(address, each, took_ms)
        try:
            found += [Finding("store", Verdict.WARNING, text) for text in judge_all(facts)]
        except StoreUnsafe as error:
            found.append(Finding("store", Verdict.WRONG, str(error)))
        before = time.time()
        seconds, micros = await servers.of_shard(0).time()
        found.append(_clock(seconds + micros / 1e6 - (before + time.time()) / 2))
        return found
    except OSError as error:
        raise StoreUnavailable(f"{mask_address(url)}: {error}") from error
    finally:
        await servers.aclose()


def _look_at_server(address: str, facts: ServerFacts, took_ms: float) -> Iterator[Finding]:
    role = f", master of a cluster with {facts.replicas} replicas," if facts.clustered else ""
    text = f"{facts.product} {facts.version}{role} answers at {address} in {took_ms:.1f} ms"
    yield Finding("store", Verdict.OK, text)
    yield _durability(facts.append_only, facts.append_fsync)
    yield _memory(facts.used_memory, facts.max_memory)


def _durability(append_only: bool, append_fsync: str) -> Finding:
    fsync = f", appendfsync {append_fsync}" if append_only and append_fsync else ""
    verdict = Verdict.OK if append_only else Verdict.WARNING
    return Finding("durability", verdict, f"appendonly {'yes' if append_only else 'no'}{fsync}")


def _memory(used: int, limit: int) -> Finding:
    text = f"{used / 2**20:.1f} MiB used"
    if not limit:
        return Finding("memory", Verdict.OK, f"{text}, no limit")
    text = f"{text} of {limit / 2**20:.0f} MiB"
    full = used > limit * MEMORY_SHARE
    return Finding("memory", Verdict.WARNING if full else Verdict.OK, text)


def _clock(ahead_seconds: float) -> Finding:
    text = f"the store's clock is {abs(ahead_seconds):.2f} s from ours; only the store's counts"
    wrong = abs(ahead_seconds) > MOST_SKEW_SECONDS
    return Finding("clock", Verdict.WARNING if wrong else Verdict.OK, text)


def _disk(folder: Path) -> Finding:
    try:
        free = shutil.disk_usage(folder if folder.exists() else Path.cwd()).free
    except OSError as error:
        return Finding("disk", Verdict.WRONG, f"{folder}: {error}")
    text = f"{free / 2**30:.1f} GiB free in {folder.absolute()}"
    return Finding("disk", Verdict.OK if free >= LEAST_FREE_BYTES else Verdict.WARNING, text)


def _open_files() -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < LEAST_OPEN_FILES:
        text = f"{limit} open files are allowed; `ulimit -n 4096` allows more connections"
        yield Finding("open files", Verdict.WARNING, text)
    else:
        yield Finding("open files", Verdict.OK, f"{limit} are allowed")
