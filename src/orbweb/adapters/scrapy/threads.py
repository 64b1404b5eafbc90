"""Waiting without blocking the crawl, with whichever reactor Scrapy runs, or with none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

try:
    from scrapy.utils.asyncio import is_asyncio_available
except ImportError:  # Scrapy 2.13
    from scrapy.utils.reactor import is_asyncio_reactor_installed as is_asyncio_available

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call a function in a thread of the pool, and return or raise what it does."""
    if is_asyncio_available():
        return await asyncio.to_thread(function, *args)
    from twisted.internet.threads import deferToThread

    return await maybe_deferred_to_future(deferToThread(function, *args))


async def pause(seconds: float) -> None:
    """Wait for some time."""
    if is_asyncio_available():
        await asyncio.sleep(seconds)
        return
    from twisted.internet import reactor
    from twisted.internet.task import deferLater

    await deferLater(reactor, seconds)


async def answer(promise: Deferred[T]) -> T:
    """Wait for a Deferred."""
    return await maybe_deferred_to_future(promise)
