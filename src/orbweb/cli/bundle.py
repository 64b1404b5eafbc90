"""What `orbweb bundle` does: an archive for whoever is asked for help, without secrets."""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from orbweb.cli import show
from orbweb.cli.about import View, setting_record
from orbweb.cli.doctor import findings
from orbweb.cli.failed import record as letter_record
from orbweb.cli.failed import request_of
from orbweb.cli.hosts import host_record
from orbweb.cli.packages import package_versions
from orbweb.cli.scrub import (
    Scrubber,
    secrets_of,
    secrets_of_environment,
    secrets_of_request,
)
from orbweb.cli.store import ask
from orbweb.cli.watch import node_record, run_record
from orbweb.config.place import Place
from orbweb.config.values import LiveValues
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.hosttable import Sort
from orbweb.monitor.crawl_line import encode_line
from orbweb.monitor.log_reader import LineFilter, LogReader
from orbweb.monitor.run_record import RunMade, read_as
from orbweb.settings import DECLARATIONS, Settings
from orbweb.settings.version import own_version
from orbweb.spiders.live_admin import LiveAdmin
from orbweb.spiders.log_place import log_folder

MOST_RUNS = 20
MOST_LINES = 500
MOST_HOSTS = 50
SAMPLES = 3
"""Failed requests of each reason in a run."""
MOST_LETTERS = 50_000
"""Failed requests of a run that are looked at."""
LONGEST_LINE = 2000

README = """What `orbweb bundle` has put together. Passwords, tokens, cookies and the like are
taken out: by their names, by their looks and, as far as they are known, by their values. Bodies of
pages and items are not in it. Look through it before you send it: URLs and log lines are as they
were.
"""


def make_bundle(settings: Settings, changes: dict[str, str], output: Path | None) -> Path:
    """Write the archive, and say what is in it. Raises `ConfigError` when the file is there."""
    path = output or Path(time.strftime("orbweb-bundle-%Y%m%d-%H%M%S.zip"))
    if path.exists():
        raise ConfigError(f"{path} is there already: name another file with -o")
    scrub = Scrubber(_known_secrets(settings))
    parts = dict(_parts(settings, changes, scrub))
    try:
        with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
            for name, text in parts.items():
                archive.writestr(name, text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _parts(
    settings: Settings, changes: dict[str, str], scrub: Scrubber
) -> Iterator[tuple[str, str]]:
    """Names and texts, of what can be had now; of the rest the reason."""
    wanted: dict[str, Callable[[], Any]] = {
        "versions.json": lambda: {"orbweb": own_version(), **package_versions()},
        "doctor.json": lambda: [asdict(finding) for finding in findings(changes)],
        "settings.json": lambda: _settings(settings),
        "crawl.json": lambda: _crawl_lines(settings),
        "log.txt": lambda: _log_lines(settings),
        "store.json": lambda: ask(settings, lambda admin: _store(admin, scrub)),
    }
    yield "README.txt", README
    found = {name: _made(make) for name, make in wanted.items()}
    for name, value in found.items():  # only now: the store has told secrets that all may repeat
        yield name, scrub(value) if isinstance(value, str) else _json(scrub.value(value))


def _made(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:  # whatever is broken: the rest helps to find it
        return f"not to be had: {type(error).__name__}: {error}\n"


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def _settings(settings: Settings) -> list[dict[str, Any]]:
    """Those that are not the defaults."""
    view = View(settings)
    own = [
        {"name": name, "value": settings.shown(name), "place": view.place(name)}
        for name in settings
        if name not in DECLARATIONS
    ]
    chosen = [
        setting for setting in DECLARATIONS.values() if settings.origin(setting.name) != "default"
    ]
    return [*(setting_record(view, setting) for setting in chosen), *own]


def _crawl_lines(settings: Settings) -> list[Any]:
    reader = LogReader(log_folder(settings, Path.cwd()))
    latest = list(islice(reader.backwards(LineFilter()), MOST_LINES))
    return [json.loads(encode_line(line)) for line in reversed(latest)]


def _log_lines(settings: Settings) -> str:
    name = settings["LOG_FILE"]
    if not name:
        return "LOG_FILE is not set: log lines went to stderr only\n"
    try:
        with Path(name).open(encoding="utf-8", errors="replace") as file:
            return "".join(line[:LONGEST_LINE] for line in deque(file, MOST_LINES))
    except OSError as error:
        return f"not to be had: {name}: {error.strerror}\n"


async def _store(admin: Admin, scrub: Scrubber) -> dict[str, Any]:
    runs = (await admin.runs())[:MOST_RUNS]
    _, hosts = await admin.hosts.hosts(Sort.BACKLOG, MOST_HOSTS)
    live, _ = await LiveAdmin(admin.config).read()
    return {
        "servers": await admin.server_info(),
        "hosts": [host_record(row) for row in hosts],
        "live": _live(live),
        "runs": [{**run_record(info), **await _of_run(admin, info, scrub)} for info in runs],
        "kept": {job: await _kept(admin, job) for job in sorted({info.job for info in runs})},
    }


def _live(values: LiveValues) -> list[dict[str, Any]]:
    """The live values by the name of their setting, so that those of secrets are known as such."""
    return [
        {
            **{name: getattr(each, name) for name in ("place", "by", "why", "at_ms", "until_ms")},
            Place.read(each.place).key: each.value,
        }
        for each in values.entries
    ]


async def _of_run(admin: Admin, info: Any, scrub: Scrubber) -> dict[str, Any]:
    found: Counter[str] = Counter()
    samples = []
    looked = 0
    async for letter in admin.dead_letters(info):
        looked += 1
        if looked > MOST_LETTERS:
            break
        found[letter.reason] += 1
        if (request := request_of(letter)) is not None:
            scrub.learn(secrets_of_request(request))
        if found[letter.reason] <= SAMPLES:
            samples.append(_sample(letter_record(letter)))
    return {
        "nodes": [node_record(node) for node in await admin.nodes(info)],
        "failed_by_reason": dict(found.most_common()),
        "failed_samples": samples,
    }


def _sample(letter: dict[str, Any]) -> dict[str, Any]:
    """A failed request without what a spider or site has put into it: headers, body, meta."""
    request = letter["request"] or {}
    kept = ("url", "method", "callback", "depth", "parent")
    return {**letter, "request": {name: request.get(name) for name in kept}}


async def _kept(admin: Admin, job: str) -> list[dict[str, Any]]:
    found = []
    for one in (await admin.kept(job).runs())[:MOST_RUNS]:
        made = read_as(RunMade, one.made)
        if made is not None:
            found.append(
                {
                    "epoch": one.epoch,
                    "run": made.run,
                    "version": made.version,
                    "settings": made.settings,
                    "digest": made.code.digest,
                    "commit": made.code.commit,
                }
            )
    return found


def _known_secrets(settings: Settings) -> Iterator[str]:
    declared = [name for name, setting in DECLARATIONS.items() if setting.secret]
    given = {name: [value for _, value in settings.sources(name)] for name in settings}
    yield from secrets_of(given, declared)
    yield from secrets_of_environment(os.environ)


def tell_bundle(settings: Settings, changes: dict[str, str], output: Path | None) -> None:
    """Write the archive and print its name; what is in it goes to stderr."""
    path = make_bundle(settings, changes, output)
    print(path)
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            show.note(f"  {entry.filename:<16}{show.size(entry.file_size)}")
    show.note("secrets are taken out; look through it all the same before you send it")
