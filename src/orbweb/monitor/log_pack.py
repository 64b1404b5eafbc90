"""Packed segments of the crawl log: zstd that any tool reads, with an index of its own at the end.

A file is some frames of whole lines, then one skippable frame (RFC 8878, 3.1.2), which decoders
pass over: entries of 12 bytes (id, frame) in order, the frames' offsets of 8 bytes, and a footer.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from backports import zstd

from orbweb.monitor.crawl_line import decode_line

FRAME_BYTES = 256 * 1024
"""Of lines, before compression: what one look-up has to unpack."""

_SKIPPABLE = 0x184D2A50
_MAGIC = b"OWLOG1\0\0"
_FOOTER = struct.Struct(">II8s")
_ENTRY_BYTES, _OFFSET_BYTES = 12, 8
_FRAME_BITS = 32
_ID = re.compile("[0-9a-f]{16}").fullmatch


def pack(source: Path, target: Path) -> None:
    """Write `target` from the lines of `source`, whole or not at all. Raises `OSError`."""
    part = target.with_name(f".{target.name}.part")
    try:
        with source.open("rb") as lines, part.open("wb") as out:
            _write(lines, out)
            out.flush()
            os.fsync(out.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _write(lines: BinaryIO, out: BinaryIO) -> None:
    offsets: list[int] = []
    entries: list[int] = []
    while chunk := lines.read(FRAME_BYTES) + lines.readline():
        entries += (key << _FRAME_BITS | len(offsets) for key in _keys(chunk))
        offsets.append(out.tell())
        out.write(zstd.compress(chunk, level=6))
    offsets.append(out.tell())
    entries.sort()
    body = b"".join(entry.to_bytes(_ENTRY_BYTES, "big") for entry in entries)
    body += b"".join(offset.to_bytes(_OFFSET_BYTES, "big") for offset in offsets)
    body += _FOOTER.pack(len(entries), len(offsets), _MAGIC)
    out.write(struct.pack("<II", _SKIPPABLE, len(body)) + body)


def _keys(chunk: bytes) -> set[int]:
    keys: set[int] = set()
    for text in chunk.splitlines():
        if (line := decode_line(text)) is not None:
            keys.update(map(_number, line.keys))
    return keys


def _number(key: str) -> int:
    """The 64 bits of an id; those of a task's requests, which are longer, by their hash."""
    if _ID(key):
        return int(key, 16)
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")


class PackedLog:
    """A packed segment, open for reading. Use it as a context. Raises `OSError`, `ValueError`."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        end = len(self._map) - _FOOTER.size
        if end < 0:
            raise ValueError(f"{path} is no packed crawl log")
        entries, offsets, magic = _FOOTER.unpack_from(self._map, end)
        if magic != _MAGIC:
            raise ValueError(f"{path} is no packed crawl log")
        first = end - offsets * _OFFSET_BYTES
        self._entries = _Entries(self._map, first - entries * _ENTRY_BYTES, entries)
        self._offsets = [
            int.from_bytes(self._map[at : at + _OFFSET_BYTES], "big")
            for at in range(first, end, _OFFSET_BYTES)
        ]

    def __enter__(self) -> PackedLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def frames_of(self, key: str) -> list[int]:
        """Numbers of the frames that have lines under an id: a binary search on the disk."""
        number = _number(key)
        at = bisect_left(self._entries, number << _FRAME_BITS)
        found: list[int] = []
        while at < len(self._entries) and self._entries[at] >> _FRAME_BITS == number:
            found.append(self._entries[at] & (1 << _FRAME_BITS) - 1)
            at += 1
        return found

    def frame(self, number: int) -> list[bytes]:
        """The lines of a frame."""
        start, end = self._offsets[number : number + 2]
        return zstd.decompress(self._map[start:end]).splitlines()

    def backwards(self) -> Iterator[bytes]:
        """All lines, the last first."""
        for number in reversed(range(len(self._offsets) - 1)):
            yield from reversed(self.frame(number))


class _Entries:
    """The sorted entries as a sequence of numbers; none is read before it is asked for."""

    def __init__(self, source: mmap.mmap, start: int, count: int) -> None:
        self._source = source
        self._start = start
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        at = self._start + index * _ENTRY_BYTES
        return int.from_bytes(self._source[at : at + _ENTRY_BYTES], "big")
