"""The origin log: what a web site says it was asked. The only judge of loss, repeats, politeness.

The site writes one JSON line for each request before it answers: `t` and `end` (seconds since
1970: arrival, and the moment before the answer), `host`, `method`, `path` (with query), `status`,
and where the site knows it `peer`, the address from which the request came.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit


class Hit(NamedTuple):
    """One request that the site received."""

    t: float
    end: float
    host: str
    method: str
    path: str
    status: int
    peer: str = ""


@dataclass(frozen=True)
class OriginLog:
    """The hits of a log, in the order of their arrival."""

    hits: tuple[Hit, ...]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read what was written so far. A missing file is an empty log, half a line is left out."""
        try:
            text = Path(path).read_text()
        except FileNotFoundError:
            return cls(())
        complete = text[: text.rfind("\n") + 1]
        hits = [Hit(**json.loads(line)) for line in complete.splitlines()]
        return cls(tuple(sorted(hits)))

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def where(self, keep: Callable[[Hit], bool]) -> OriginLog:
        return OriginLog(tuple(hit for hit in self.hits if keep(hit)))

    def under(self, folder: str) -> OriginLog:
        """The hits whose path, without the query, is `folder` or lies below it."""
        folder = folder.rstrip("/")

        def keep(hit: Hit) -> bool:
            path = urlsplit(hit.path).path
            return path == folder or path.startswith(f"{folder}/")

        return self.where(keep)

    def counts(self) -> Counter[str]:
        """How often each path (with its query) was asked for."""
        return Counter(hit.path for hit in self.hits)

    def repeats(self) -> int:
        """Requests beyond the first of each path."""
        return len(self.hits) - len(self.counts())

    def most_at_once(self) -> dict[str, int]:
        """For each host, the largest number of requests that were open at the same time."""
        return {host: _most_open(hits) for host, hits in self._by_host().items()}

    def shortest_gap_seconds(self) -> dict[str, float]:
        """For each host with two or more hits, the least time between two arrivals."""
        return {
            host: min(later.t - earlier.t for earlier, later in pairwise(hits))
            for host, hits in self._by_host().items()
            if len(hits) > 1
        }

    def _by_host(self) -> dict[str, list[Hit]]:
        hosts: dict[str, list[Hit]] = {}
        for hit in self.hits:
            hosts.setdefault(hit.host, []).append(hit)
        return hosts


class OriginWriter:
    """Appends hits to a log file. Each line is with the operating system when `write` returns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)

    def write(self, hit: Hit) -> None:
        line: dict[str, Any] = hit._asdict()
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def _most_open(hits: Iterable[Hit]) -> int:
    changes = sorted([(hit.t, 1) for hit in hits] + [(hit.end, -1) for hit in hits])
    most = open_now = 0
    for _, change in changes:
        open_now += change
        most = max(most, open_now)
    return most
