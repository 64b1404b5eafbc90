"""Items into a Redis list. `process_item` returns when the item is there.

Items that arrive while others are on their way go together with the next call, so the pipeline
costs less the busier it is, and an item waits for nobody when it is alone.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import load_object
from scrapy.utils.serialize import ScrapyJSONEncoder
from twisted.internet.defer import Deferred

from orbweb.adapters.scrapy import connection, defaults
from orbweb.adapters.scrapy.threads import answer, in_thread, pause
from orbweb.errors import StoreUnavailable
from orbweb.frontier.valkey import TAKES_NO_WRITES, UNAVAILABLE
from orbweb.log import event, get_logger

default_serialize = ScrapyJSONEncoder().encode
BATCH_ITEMS = 500
LAST_SECONDS = 8.0
"""How long a stopping crawl still waits for a store that is away."""
LONGEST_PAUSE_SECONDS = 2.0

log = get_logger("orbweb.scrapy")


@dataclass(slots=True)
class _Parcel:
    """An item on its way."""

    key: str
    data: str | bytes
    promise: Deferred[None]
    """Who brought it waits here."""


class RedisPipeline:
    """Pushes items to the right end of the list `REDIS_ITEMS_KEY`, default `%(spider)s:items`.

    While the store is away items wait. Only a crawl that is being stopped gives up, after
    `LAST_SECONDS`: `StoreUnavailable` then keeps Orbweb's scheduler from calling the page done.
    """

    def __init__(
        self,
        server: Any,
        key: str = defaults.PIPELINE_KEY,
        serialize_func: Callable[[Any], Any] = default_serialize,
    ) -> None:
        self.server = server
        self.key = key
        self.serialize = serialize_func
        self.crawler: Crawler | None = None
        self._parcels: list[_Parcel] = []
        self._busy = False

    @classmethod
    def from_settings(cls, settings: BaseSettings) -> Self:
        params: dict[str, Any] = {"server": connection.get_impatient_redis(settings)}
        if settings.get("REDIS_ITEMS_KEY"):
            params["key"] = settings["REDIS_ITEMS_KEY"]
        if settings.get("REDIS_ITEMS_SERIALIZER"):
            params["serialize_func"] = load_object(settings["REDIS_ITEMS_SERIALIZER"])
        return cls(**params)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        made = cls.from_settings(crawler.settings)
        made.crawler = crawler
        return made

    async def process_item(self, item: Any, spider: Spider | None = None) -> Any:
        """Return the item when it is in the list.

        Raises `StoreUnavailable` as the class says, and what serialising or Redis raises when
        trying again would not help.
        """
        spider = spider or (self.crawler.spider if self.crawler else None)
        if type(self)._process_item is not RedisPipeline._process_item:
            return await in_thread(self._process_item, item, spider)
        await self._stored(self.item_key(item, spider), self.serialize(item))
        return item

    def _process_item(self, item: Any, spider: Any) -> Any:
        """Push one item, blocking. Only for classes that override it; called in a thread."""
        self.server.rpush(self.item_key(item, spider), self.serialize(item))
        return item

    def item_key(self, item: Any, spider: Any) -> str:
        """The list of an item. Projects may override it."""
        return self.key % {"spider": spider.name}

    async def _stored(self, key: str, data: Any) -> None:
        if not isinstance(data, str | bytes):
            raise TypeError(f"REDIS_ITEMS_SERIALIZER gave {data!r}, not text or bytes")
        parcel = _Parcel(key, data, Deferred())
        self._parcels.append(parcel)
        if not self._busy:
            self._busy = True
            deferred_from_coro(self._carry())  # not part of any item that could be cancelled
        await answer(parcel.promise)

    async def _carry(self) -> None:
        """Take parcels to the store, many at once, until there are none."""
        try:
            while self._parcels:
                parcels = self._parcels[:BATCH_ITEMS]
                del self._parcels[:BATCH_ITEMS]
                await self._push(parcels)
        finally:
            self._busy = False

    async def _push(self, parcels: list[_Parcel]) -> None:
        """Take parcels to the store and tell who waits for them."""
        lists: dict[str, list[str | bytes]] = {}
        for parcel in parcels:
            lists.setdefault(parcel.key, []).append(parcel.data)
        try:
            results = await self._results(lists)
        except Exception as error:
            results = dict.fromkeys(lists, error)
        for parcel in parcels:
            result = results[parcel.key]
            if parcel.promise.called:  # nobody waits any more
                continue
            if isinstance(result, Exception):
                parcel.promise.errback(result)
            else:
                parcel.promise.callback(None)

    async def _results(self, lists: dict[str, list[str | bytes]]) -> dict[str, Any]:
        """The answer or error of each list. A lost answer may put items there twice."""
        began, wait = time.monotonic(), 0.1
        while True:
            try:
                return await in_thread(self._results_now, lists)
            except (*UNAVAILABLE, *TAKES_NO_WRITES) as error:
                if self._stopping() and time.monotonic() - began > LAST_SECONDS:
                    reason = f"the items are not stored, the store is away: {error}"
                    return dict.fromkeys(lists, StoreUnavailable(reason))
                if wait == 0.1:
                    event(log, "items_wait", level=logging.WARNING, error=str(error))
            await pause(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, LONGEST_PAUSE_SECONDS)

    def _results_now(self, lists: dict[str, list[str | bytes]]) -> dict[str, Any]:
        with self.server.pipeline(transaction=False) as pipe:
            for key, data in lists.items():
                pipe.rpush(key, *data)
            results = pipe.execute(raise_on_error=False)
        for result in results:
            if isinstance(result, (*UNAVAILABLE, *TAKES_NO_WRITES)):
                raise result
        return dict(zip(lists, results, strict=True))

    def _stopping(self) -> bool:
        return self.crawler is not None and not self.crawler.crawling
