"""A file of log lines that begins anew when it is large or old; processes may share it."""

from __future__ import annotations

import calendar
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orbweb.errors import ConfigError

if sys.platform != "win32":
    import fcntl

_SIZE_UNITS = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_SIZE_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_AGE_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a file ends and how long ended ones live. 0 = never, and for ever."""

    size_bytes: int = 0
    age_seconds: float = 0.0
    keep_seconds: float = 0.0
    keep_files: int = 0

    @classmethod
    def read(cls, rotation: str, retention: str) -> Rotation:
        """From `50 MB` or `1 day`, and `10 days` or a number of files; '' and 0 mean never.

        Raises `ConfigError` that names LOG_ROTATION or LOG_RETENTION.
        """
        size = _size(rotation)
        age = 0.0 if size or rotation.strip() in ("", "0") else _age(rotation)
        if size is None and age is None:
            raise ConfigError(
                f"LOG_ROTATION is {rotation!r}: a size such as 50 MB or an age such as 1 day is "
                "wanted; empty = one file for ever"
            )
        if retention.strip().isdigit():
            return cls(size or 0, age or 0.0, 0.0, int(retention))
        keep = _age(retention) if retention.strip() else 0.0
        if keep is None:
            raise ConfigError(
                f"LOG_RETENTION is {retention!r}: an age such as 10 days or a number of files is "
                "wanted; empty = all are kept"
            )
        return cls(size or 0, age or 0.0, keep, 0)


class RotatingFile(logging.FileHandler):
    """Appends lines to `path`; the file that ends is renamed to `NAME.TIME.log` beside it.

    Processes that write to one path rotate it once: the one that holds the lock renames, the others
    see that the file at the path is another one, and go on there. Lines are appended whole.
    """

    def __init__(
        self, path: Path, rotation: Rotation, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(path, encoding="utf-8", errors="backslashreplace")
        self._path = path
        self._rotation = rotation
        self._clock = clock
        self._begun = self._first_time()
        self._tidy()

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        try:
            self._care()
        except OSError:
            self.handleError(record)
        super().emit(record)

    def _care(self) -> None:
        if self._is_moved():
            self._reopen()
        if not self._is_due():
            return
        with _locked(self._path):
            if not self._is_moved():
                moment = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(self._clock()))
                self._path.rename(self._free_name(moment))
        self._reopen()
        self._tidy()

    def _is_moved(self) -> bool:
        """Another process has begun a new file, or somebody has moved this one."""
        if self.stream is None:
            return False
        mine = os.fstat(self.stream.fileno())
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return True
        return (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino)

    def _is_due(self) -> bool:
        if self.stream is None:
            return False
        size = os.fstat(self.stream.fileno()).st_size
        if 0 < self._rotation.size_bytes <= size:
            return True
        return size > 0 and 0 < self._rotation.age_seconds <= self._clock() - self._begun

    def _first_time(self) -> float:
        """When the file began: its first line is the only record of that."""
        with self._path.open("rb") as file:
            line = file.readline(200).decode(errors="replace")
        found = re.search(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+\+00:00)?", line)
        if found is None:
            return self._clock()
        moment = time.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H:%M:%S")
        return calendar.timegm(moment) if found[3] else time.mktime(moment)

    def _reopen(self) -> None:
        self.close()
        self.stream = self._open()
        self._begun = self._first_time()

    def _free_name(self, moment: str) -> Path:
        path = self._path.with_name(f"{self._path.stem}.{moment}{self._path.suffix}")
        number = 1
        while path.exists():
            number += 1
            path = self._path.with_name(f"{self._path.stem}.{moment}_{number}{self._path.suffix}")
        return path

    def _tidy(self) -> None:
        ended = sorted(
            self._path.parent.glob(f"{self._path.stem}.*-*-*_*-*-*{self._path.suffix}"),
            key=lambda path: path.name,
        )
        keep = self._rotation.keep_files
        doomed = ended[:-keep] if keep else []
        if self._rotation.keep_seconds:
            oldest = self._clock() - self._rotation.keep_seconds
            doomed += [path for path in ended if _written(path) < oldest]
        for path in doomed:
            with suppress(FileNotFoundError):
                path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among the processes that rotate this path."""
    if sys.platform == "win32":
        yield
        return
    with path.with_name(f".{path.name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _written(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _size(text: str) -> int | None:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None or found[2].upper() not in _SIZE_UNITS:
        return None
    return int(float(found[1]) * _SIZE_UNITS[found[2].upper()])


def _age(text: str) -> float | None:
    found = _AMOUNT.fullmatch(text.strip())
    unit = found[2].lower().removesuffix("s") if found else ""
    return float(found[1]) * _AGE_UNITS[unit] if found and unit in _AGE_UNITS else None
