"""Appending to a file that several processes share, so that a crash leaves no half row behind."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from orbweb.errors import ConfigError, ItemError
from orbweb.log import event

CHUNK_BYTES = 1 << 16


def output_directory(given: str) -> Path:
    """The folder `OUTPUT_DIR`, made when missing; `ConfigError` when it cannot be written to."""
    if "://" in given:
        raise ConfigError(
            f"OUTPUT_DIR {given!r} is a URL, where nothing can be appended: take a pipeline that "
            "writes parts, orbweb.pipelines.parts.JsonLinesParts, orbweb.pipelines.parts.CsvParts "
            "or orbweb.pipelines.parquet.ParquetPipeline"
        )
    directory = Path(given or ".").absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"OUTPUT_DIR {given!r} cannot be made: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigError(f"OUTPUT_DIR {str(directory)!r} cannot be written to")
    return directory


def table_path(directory: Path, table: str, suffix: str) -> Path:
    """The file of a table. Raises `ItemError` for a name that would not stay in `directory`."""
    check_table(table)
    return directory / f"{table}{suffix}"


def check_table(table: str) -> None:
    """Raises `ItemError` for a table name that cannot be the name of a file."""
    if not re.fullmatch(r"\w[\w .@+-]*", table) or len(table.encode()) > 200:
        raise ItemError(f"table name {table!r} cannot be a file name")


@contextmanager
def locked(path: Path, *, create: bool = True) -> Iterator[FileIO]:
    """Open `path` for reading and appending, alone among the processes that use this function.

    The file is the one that has this name now, even if another process replaced it while this one
    waited for the lock. With `create` a missing file is made, with its folder.
    """
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with FileIO(path, "a+" if create else "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_current(path, file):
                yield file
                return


def append(path: Path, file: FileIO, block: bytes) -> None:
    """Append `block` and make it durable. On an error the file is cut back to what it was."""
    start = os.fstat(file.fileno()).st_size
    try:
        rest = memoryview(block)
        while rest:
            rest = rest[file.write(rest) or 0 :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(start)
        raise
    if start == 0:
        sync_directory(path.parent)


@contextmanager
def replace(path: Path) -> Iterator[BinaryIO]:
    """Write a new content for `path`, which takes its place whole when the block ends well.

    Call it while `path` is locked. A crash leaves the old content, and a hidden file beside it
    that the next call overwrites.
    """
    draft = path.with_name(f".{path.name}.new")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)


def cut_torn(path: Path, file: FileIO, end: int, logger: logging.Logger) -> None:
    """Move what lies after `end` to `<path>.torn`: half a row of a writer that was killed."""
    tail = os.pread(file.fileno(), os.fstat(file.fileno()).st_size - end, end)
    torn = path.with_name(f"{path.name}.torn")
    with torn.open("ab") as keep:
        keep.write(tail + b"\n")
    file.truncate(end)
    event(
        logger, "torn_row_cut", level=logging.WARNING, file=path, size_bytes=len(tail), kept_in=torn
    )


def last_line_start(file: FileIO) -> int:
    """Offset after the last line feed; equal to the size when the file ends with one."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        found = os.pread(file.fileno(), end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_current(path: Path, file: FileIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
