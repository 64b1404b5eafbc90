"""What `log` does: follow, filter and query the crawl log."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from orbweb.cli import show
from orbweb.cli.ages import read_age
from orbweb.errors import ConfigError
from orbweb.log import mask_secrets
from orbweb.model.reasons import Reason
from orbweb.model.url import beside
from orbweb.monitor.crawl_line import CrawlLine, LineKind, encode_line, time_ms, time_text
from orbweb.monitor.log_reader import LineFilter, LogReader
from orbweb.settings import Settings

SHORT = 8
LONGEST_ERROR = 100


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What is asked for on the command line."""

    lines: LineFilter
    most: int
    """So many of the latest lines; 0 = all."""
    follow: bool = False
    count: bool = False
    """Only how many lines there are of each kind and reason."""
    in_store: bool = False
    as_json: bool = False


def query(settings: Settings, asked: LogQuery) -> None:
    """Print lines in the order of their time, then those that follow if that is asked for."""
    if asked.in_store:
        from orbweb.cli.log_store import stored_lines

        latest = stored_lines(settings, asked.lines, asked.most)
    else:
        latest = _reader(settings).backwards(asked.lines)
    if asked.count:
        _print_counts(latest, as_json=asked.as_json)
        return
    for line in reversed(list(islice(latest, asked.most or None))):
        _print(line, as_json=asked.as_json)
    if asked.follow:
        _follow(settings, asked)


def _follow(settings: Settings, asked: LogQuery) -> None:
    if asked.in_store:
        from orbweb.cli.log_store import following

        lines = following(settings, asked.lines)
    else:
        lines = _reader(settings).follow(asked.lines)
    try:
        for line in lines:
            _print(line, as_json=asked.as_json)
    except KeyboardInterrupt:
        return


def _reader(settings: Settings) -> LogReader:
    from orbweb.spiders.log_place import log_folder

    folder = log_folder(settings, Path.cwd())
    if not folder.path.is_dir():
        raise ConfigError(
            f"there is no crawl log in {folder.path}: go to the directory where the spider ran, "
            "name the folder with -s CRAWL_LOG_DIR=FOLDER, or read what the nodes of all machines "
            "have told the store (--in-store; CRAWL_LOG_STREAM must be set while they run)"
        )
    return LogReader(folder)


def _print(line: CrawlLine, *, as_json: bool) -> None:
    text = encode_line(line).decode().rstrip() if as_json else line_text(line)
    print(mask_secrets(text), flush=True)


def line_text(line: CrawlLine) -> str:
    """One line for a person: when, what, how long, which node, which URL, and why."""
    clock = show.moment(time_ms(line.time))
    what = line.kind if line.kind == line.reason else f"{line.kind} {line.reason}"
    parts = [clock, what.ljust(24), str(line.status or "-").rjust(3)]
    parts.append(f"{line.bytes} B".rjust(10) if line.bytes else " " * 10)
    parts.append(f"{line.ms} ms".rjust(8) if line.ms else " " * 8)
    parts.append(line.node[:SHORT])
    parts.append(line.url if line.method == "GET" else f"{line.method} {line.url}")
    return "  ".join(parts + _remarks(line))


def _remarks(line: CrawlLine) -> list[str]:
    remarks = []
    if line.items:
        remarks.append(show.counted(line.items, "item"))
    if line.to:
        remarks.append(f"→ {line.to}")
    if line.kind == LineKind.RETRY:
        remarks.append(f"attempt {line.attempt}, the next in {show.duration(line.wait_ms / 1000)}")
    if line.error:
        remarks.append(beside(line.url, line.error.splitlines()[0])[:LONGEST_ERROR])
    return remarks


def _print_counts(lines: Iterator[CrawlLine], *, as_json: bool) -> None:
    counts: dict[tuple[str, str], int] = {}
    for line in lines:
        key = line.kind, line.reason
        counts[key] = counts.get(key, 0) + 1
    rows = sorted(counts.items(), key=lambda row: -row[1])
    if as_json:
        show.as_json([{"kind": k, "reason": r, "lines": count} for (k, r), count in rows])
        return
    show.as_table(("KIND", "REASON", "LINES"), [(k, r, count) for (k, r), count in rows])


def read_moment(text: str | None, option: str) -> str:
    """`30m` ago, or a local date and time, as lines have it. Raises `ConfigError`."""
    if text is None:
        return ""
    if (age := read_age(text)) is not None:
        return time_text(int((time.time() - age) * 1000))
    try:
        return time_text(int(datetime.fromisoformat(text).timestamp() * 1000))
    except ValueError:
        raise ConfigError(
            f"{option} {text}: an age such as 30m, 2h or 1d is wanted, or a time such as "
            "2026-11-30T22:00 (of this machine's zone, or with +08:00 at its end)"
        ) from None


def read_reasons(texts: Sequence[str] | None) -> frozenset[str]:
    """Reasons or kinds of lines. Raises `ConfigError` for what is neither."""
    known = {*map(str, Reason), *map(str, LineKind)}
    wanted = frozenset(texts or ())
    if unknown := sorted(wanted - known):
        raise ConfigError(
            f"--reason {unknown[0]} is none. Kinds of lines: {', '.join(LineKind)}; reasons: "
            f"{', '.join(sorted(known - set(map(str, LineKind))))}"
        )
    return wanted


def read_status(text: str | None) -> str | None:
    """`404` or `5xx`. Raises `ConfigError`."""
    if text is not None and re.fullmatch(r"[1-9x][0-9x]{2}", text.lower()) is None:
        raise ConfigError(f"--status {text}: 404 or 5xx is wanted")
    return text
