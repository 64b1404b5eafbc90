"""Items to a Valkey or Redis server: a stream for `orbweb consume`, or a list as scrapy-redis."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from orbweb.errors import ConfigError, ItemError, PipelineError
from orbweb.kafka.envelope import Envelope, encode
from orbweb.log import event, mask_address
from orbweb.pipelines.base import BasePipeline, Page, PagePipeline, Refusal, Row
from orbweb.pipelines.jsonl import encode_row

FIELD = b"item"
"""The field of a stream entry that holds the item."""

SYNC_SECONDS = 3.0
"""How long a batch waits for the disk of a server that does not hold the frontier."""


def connect(url: str, timeout_seconds: float) -> Redis:
    """A client that never repeats a call by itself. Does not connect yet. Raises `ConfigError`."""
    if not url:
        raise ConfigError(
            "there is no server for the items: an AirSpider has no store, so set ITEM_REDIS_URL"
        )
    try:
        return Redis.from_url(
            url,
            socket_timeout=timeout_seconds + SYNC_SECONDS,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise ConfigError(f"{mask_address(url)!r} is no Redis URL: {error}") from error


class StreamPipeline(PagePipeline):
    """Adds each item as one entry to a stream; `orbweb consume --stream` stores each once.

    On the store of the run an entry is as safe as the queue: both are in one log, the entry before
    the end of its page, so what is lost of it is lost of both and is fetched again. On a server of
    its own a batch also waits until it is in that server's append-only file. A batch that is tried
    again, and a page that is fetched twice, add entries with the same keys.
    """

    def __init__(
        self, url: str, *, stream: str = "orbweb:items", sync: bool = True, timeout: float = 5.0
    ) -> None:
        """`timeout` in seconds. `sync`: wait for the disk, where the server is not the store."""
        self._redis = connect(url, timeout)
        self._stream = stream
        self._sync = sync

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The store of the run, or the server in ITEM_REDIS_URL."""
        own = settings["ITEM_REDIS_URL"]
        return cls(
            own or settings["REDIS_URL"],
            stream=settings["ITEM_STREAM"],
            sync=bool(own) and own != settings["REDIS_URL"],
            timeout=settings["STORE_TIMEOUT"],
        )

    @property
    def targets(self) -> tuple[str, ...]:
        return (f"stream:{self._stream}",)

    def save_pages(self, pages: Sequence[Page]) -> list[Refusal]:
        """See `PagePipeline`. Raises `PipelineError` when the server does not take the batch."""
        refused: list[Refusal] = []
        batch = self._redis.pipeline(transaction=True)
        for page in pages:
            for record in page.records:
                envelope = Envelope.of(record, page.origin)
                try:
                    batch.xadd(self._stream, {FIELD: encode(envelope)})
                except ItemError as error:
                    refused.append(Refusal(record, error))
        try:
            batch.execute()
            if self._sync:
                self._wait_for_disk()
        except (RedisError, OSError) as error:
            raise PipelineError(f"stream {self._stream!r}: {error}") from error
        return refused

    def close(self) -> None:
        self._redis.close()

    def _wait_for_disk(self) -> None:
        try:
            synced: Any = self._redis.waitaof(1, 0, int(SYNC_SECONDS * 1000))
        except ResponseError as error:  # Redis before 7.2, or no append-only file
            event(self.logger, "items_not_synced", level=logging.WARNING, error=error)
            self._sync = False
            return
        if not synced[0]:
            raise PipelineError(f"not on disk after {SYNC_SECONDS:g} s")


class ListPipeline(BasePipeline):
    """Pushes each item as JSON to the end of a list, which any program can read with LPOP.

    A batch that is tried again is in the list twice: `_key` tells the second copy of a row.
    """

    def __init__(self, url: str, *, list_key: str = "{table}:items", timeout: float = 5.0) -> None:
        """`list_key`: `{table}` in it stands for the item's table. `timeout` in seconds."""
        self._redis = connect(url, timeout)
        self._list_key = list_key
        self._lists: dict[str, None] = {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The store of the run, or the server in ITEM_REDIS_URL."""
        return cls(
            settings["ITEM_REDIS_URL"] or settings["REDIS_URL"],
            list_key=settings["REDIS_ITEMS_KEY"],
            timeout=settings["STORE_TIMEOUT"],
        )

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(f"list:{name}" for name in self._lists)

    def save_items(self, table: str, items: list[Row]) -> bool:
        """See `BasePipeline`. Raises `ItemError` for a value that JSON cannot hold."""
        name = self._list_key.replace("{table}", table)
        rows = [encode_row(row).rstrip(b"\n") for row in items]
        try:
            self._redis.rpush(name, *rows)
        except (RedisError, OSError) as error:
            raise PipelineError(f"list {name!r}: {error}") from error
        self._lists[name] = None
        return True

    def close(self) -> None:
        self._redis.close()
