"""A Valkey or Redis stream as the source of a consumer."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from orbweb.consume.base import Message
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.log import mask_address
from orbweb.pipelines.valkey import FIELD

ORPHANED_SECONDS = 10.0
"""Entries that a consumer has held this long without an answer are taken over."""

TRIM_EVERY = 20
"""Settled batches between two trims of the stream."""


class StreamSource:
    """Reads a stream as a member of a consumer group; any number of members share the entries.

    Entries that every group of the stream has settled are removed, so its memory stays bounded.
    The entries of a member that died are taken over after `ORPHANED_SECONDS`.
    """

    def __init__(
        self, url: str, stream: str, group: str, *, from_beginning: bool = False,
        timeout_seconds: float = 5.0,
        revive: Callable[[], object] = str,
    ) -> None:  # fmt: skip
        """`from_beginning`: the group reads again all that is still in the stream.

        `revive`: called when the server does not answer, to start it again where that is ours.
        Raises `ConfigError` for a URL that is none.
        """
        try:
            self._client = Redis.from_url(
                url, socket_timeout=timeout_seconds, retry=Retry(NoBackoff(), 0)
            )
        except ValueError as error:
            raise ConfigError(f"{mask_address(url)!r} is no Redis URL: {error}") from error
        self._stream = stream
        self._group = group
        self._member = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._from_beginning = from_beginning
        self._revive = revive
        self._joined = False
        self._cursor: bytes | str = "0-0"
        self._look_at = 0.0
        self._settled = 0

    def take(self, most: int, seconds: float) -> Sequence[Message]:
        """See `Source`."""
        with self._answers():
            self._join()
            if time.monotonic() >= self._look_at and (orphans := self._orphans(most)):
                return orphans
            return self._fresh(most, seconds)

    def positions(self, messages: Sequence[Message]) -> Mapping[str, int]:
        """See `Source`: the stream knows itself what was settled."""
        return {}

    def settle(self, messages: Sequence[Message]) -> None:
        """See `Source`."""
        with self._answers():
            ids = [message.position for message in messages]
            self._client.xack(self._stream, self._group, *ids)
            self._settled += 1
            if self._settled % TRIM_EVERY == 0:
                self._trim()

    def lag(self) -> int | None:
        """Entries that the group has not settled, those that dead members hold included."""
        with self._answers():
            for group in self._groups():
                if group["name"] == self._group.encode():
                    unread = self._unread(group)
                    return None if unread is None else unread + int(group["pending"])
        return None

    def close(self) -> None:
        """Leave. Entries that are held are left to others."""
        try:
            if self._joined:
                self._trim()
                held = self._client.xpending_range(
                    self._stream, self._group, "-", "+", 1, consumername=self._member
                )
                if not held:
                    self._client.xgroup_delconsumer(self._stream, self._group, self._member)
        except (RedisError, OSError):
            pass  # a member that is away is forgotten by and by
        finally:
            self._client.close()

    def _join(self) -> None:
        if self._joined:
            return
        try:
            self._client.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
            if self._from_beginning:
                self._client.xgroup_setid(self._stream, self._group, id="0")
        self._joined = True

    def _orphans(self, most: int) -> list[Message]:
        """Entries of members that died or hang. One look in a while, unless there are many."""
        idle_ms = int(ORPHANED_SECONDS * 1000)
        self._cursor, entries, *_ = self._client.xautoclaim(
            self._stream, self._group, self._member, idle_ms, start_id=self._cursor, count=most
        )
        if self._cursor == b"0-0":
            self._look_at = time.monotonic() + ORPHANED_SECONDS / 4
        return [self._message(entry) for entry in entries]

    def _fresh(self, most: int, seconds: float) -> list[Message]:
        answer: Any = self._client.xreadgroup(
            self._group, self._member, {self._stream: ">"}, count=most, block=int(seconds * 1000)
        )
        entries = answer[0][1] if isinstance(answer, list) and answer else ()
        return [self._message(entry) for entry in entries]

    def _message(self, entry: tuple[bytes, dict[bytes, bytes]]) -> Message:
        id, fields = entry
        return Message(f"stream:{self._stream}", id.decode(), fields.get(FIELD, b""))

    def _unread(self, group: Mapping[str, Any]) -> int | None:
        """Entries that no member has taken yet; None when the server cannot count them."""
        if group.get("lag") is not None:
            return int(group["lag"])
        after = b"(" + group["last-delivered-id"]
        return None if self._client.xrange(self._stream, min=after, count=1) else 0

    def _trim(self) -> None:
        """Remove the entries that come before the first one that some group still needs."""
        needed = []
        for group in self._groups():
            oldest = self._client.xpending(self._stream, group["name"])["min"]
            needed.append(_parts(oldest) if oldest else _after(group["last-delivered-id"]))
        if needed:
            first = min(needed)
            self._client.xtrim(self._stream, minid=f"{first[0]}-{first[1]}", approximate=False)

    def _groups(self) -> list[dict[str, Any]]:
        found: Any = self._client.xinfo_groups(self._stream)
        return list(found)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except ResponseError as error:
            if str(error).startswith("NOGROUP"):  # the server lost its data: begin anew
                self._joined = False
            raise StoreUnavailable(f"stream {self._stream}: {error}") from error
        except (RedisError, OSError) as error:
            self._revive()
            raise StoreUnavailable(f"stream {self._stream}: {error}") from error


def _parts(id: bytes) -> tuple[int, int]:
    moment, _, number = id.decode().partition("-")
    return int(moment), int(number)


def _after(id: bytes) -> tuple[int, int]:
    moment, number = _parts(id)
    return moment, number + 1
