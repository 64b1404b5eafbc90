"""What every spider has: its hooks, its settings, and how it is started and stopped."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from orbweb.errors import ConfigError, StoreUnavailable, StoreUnsafe
from orbweb.log import get_logger, mask_secrets
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.spiders.live_view import LiveView, declared_of

if TYPE_CHECKING:
    from orbweb.engine.engine import Engine
    from orbweb.engine.report import RunReport
    from orbweb.engine.stats import Stats
    from orbweb.spiders.start import Start

ItemHandler = Callable[[list[Any]], Any]

USAGE = 2
INTERRUPTED = 130


class BaseParser:
    """The hooks of a spider. All but the callbacks are optional.

    A hook or callback may be `async def` (it runs on the event loop and must not block) or a plain
    `def` (it runs in a thread, so it may block).
    """

    name: str = ""
    """The spider's name in logs and in the store; the class name when empty."""
    start_urls: Sequence[str] = ()
    custom_settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of this class; `__custom_setting__` is its other name."""
    live: Mapping[str, Any] = {}
    """Values that may change while it runs, with their defaults: `live = {"price_v2": False}`.

    Read them as `self.live["price_v2"]`; `orbweb config set PARSE.price_v2 on` changes one in all
    nodes. See `on_config`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__dict__.get("name"):
            cls.name = cls.__name__

    @property
    def logger(self) -> logging.Logger:
        """The spider's own logger."""
        return get_logger(f"spider.{self.name}")

    def start_requests(self) -> Any:
        """Yield the requests with which the crawl begins: `start_urls`, unless overridden.

        May be a generator, an async generator, or return a list. It runs while pages are fetched,
        once for the whole run; when its node dies another node runs it again from the start, and
        what is in already is not taken twice.
        """
        urls = (self.start_urls,) if isinstance(self.start_urls, str) else self.start_urls
        for url in urls:
            try:
                request = Request(url)
            except TypeError as error:
                self.logger.error("start URL left out: %s", error)
                continue
            yield request

    def parse(self, *args: Any, **kwargs: Any) -> Any:
        """Callback of requests that name none: `parse(request, response)` or `parse(response)`.

        Yields requests, items, functions without arguments (called at once) and None.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method parse(request, response)")

    def download_midware(self, request: Request) -> Any:
        """Called after the global middlewares; a request that it returns is fetched instead."""
        return None

    def validate(self, request: Request, response: Response) -> Any:
        """Called before the callback. False drops the page, `ValidationError` tries it again."""
        return None

    def exception_request(self, request: Request, response: Response | None, exc: Exception) -> Any:
        """Called before each retry. What it returns is ignored."""
        return None

    def failed_request(self, request: Request, response: Response | None) -> Any:
        """Called when a request is given up. May yield requests and items."""
        return None

    def start_callback(self) -> Any:
        """Called once before the work begins."""
        return None

    def end_callback(self) -> Any:
        """Called once when the run has come to its end, not when this node stopped early."""
        return None


class Scheduler:
    """What NetSpy's users read of a running spider: `spider.scheduler.stats`."""

    def __init__(self, stats: Stats) -> None:
        self.stats = stats


class BaseSpider(BaseParser):
    """A spider that can be started. Its settings belong to the instance, never to the process."""

    def __init__(
        self,
        *,
        thread_count: int | None = None,
        item_handler: ItemHandler | None = None,
        pipelines: Iterable[Any] | None = None,
    ) -> None:
        """`thread_count`: how many requests this node works on at once (`CONCURRENT_REQUESTS`).

        `item_handler(items)` is called with each batch of items instead of the pipelines.
        `pipelines` take the place of `ITEM_PIPELINES`: dotted paths, classes or objects.
        """
        if item_handler is not None and pipelines is not None:
            raise ConfigError("item_handler takes the place of pipelines: give one of them")
        if not self.name:
            self.name = type(self).__name__
        self.item_handler = item_handler
        self.pipelines = None if pipelines is None else tuple(pipelines)
        self.live = LiveView(declared_of(type(self)))
        self._arguments: dict[str, Any] = {}
        if thread_count is not None:
            self._arguments["CONCURRENT_REQUESTS"] = thread_count
        self._engine: Engine | None = None
        self._stop_asked = False

    @property
    def setting_arguments(self) -> Mapping[str, Any]:
        """Settings that the constructor's arguments stand for."""
        try:
            return self._arguments
        except AttributeError:
            text = f"{type(self).__name__}.__init__ must call super().__init__()"
            raise ConfigError(text) from None

    @property
    def live_view(self) -> LiveView:
        """`live` as the assembly changes it. Raises `ConfigError`."""
        if not isinstance(self.live, LiveView):
            text = f"{type(self).__name__}.__init__ must call super().__init__()"
            raise ConfigError(text)
        return self.live

    @classmethod
    def class_settings(cls) -> dict[str, Any]:
        """`custom_settings` and `__custom_setting__` of the class and those above it, merged."""
        merged: dict[str, Any] = {}
        for each in reversed(cls.__mro__):
            for attribute in ("__custom_setting__", "custom_settings"):
                found = each.__dict__.get(attribute)
                if not isinstance(found, Mapping | None):
                    raise ConfigError(f"{each.__name__}.{attribute} must be a dict, not {found!r}")
                merged.update(found or {})
        return merged

    @property
    def scheduler(self) -> Scheduler:
        """The counts of the running, or last, crawl: `spider.scheduler.stats`."""
        return Scheduler(self._started("scheduler").stats)

    async def sitemaps(self, url: str) -> tuple[str, ...]:
        """The sitemaps that robots.txt of this URL's site names, for `async def` callbacks.

        The file is the one that pages are judged by: fetched once for all nodes, and politely.
        Raises `RequestError` when it cannot be had now, and `BadUrlError` for no URL of a page.
        """
        return await self._started("sitemaps").sitemaps(url)

    def wait_sitemaps(self, url: str) -> tuple[str, ...]:
        """`sitemaps` for plain `def` callbacks, which may block.

        Raises `SpiderError` when it is called in an `async def`.
        """
        return self._started("sitemaps").wait_sitemaps(url)

    def _started(self, what: str) -> Engine:
        if self._engine is None:
            raise ConfigError(f"{self.name} has not been started, so it has no {what}")
        return self._engine

    def start(self) -> None:
        """Crawl to the end; blocks. Prints the summary line on stdout.

        Raises `SystemExit` with the run's exit code unless it is 0, and with 2 when a setting or
        the store is wrong (the text is on stderr).
        """
        from orbweb.spiders.ending import tell_end
        from orbweb.spiders.progress import on_terminal

        try:
            report = self.run()
        except (ConfigError, StoreUnsafe, StoreUnavailable) as error:
            print(f"orbweb: {mask_secrets(str(error))}", file=sys.stderr)
            raise SystemExit(USAGE) from error
        except KeyboardInterrupt:  # before the engine listens to signals
            raise SystemExit(INTERRUPTED) from None
        tell_end(report.as_dict(), live=on_terminal(), wanted=report.show_summary)
        if report.exit_code:
            raise SystemExit(report.exit_code)

    def run(self, start: Start | None = None) -> RunReport:
        """Crawl to the end and give the report; blocks. Must not be called in an event loop.

        `start` says how the command line starts it. Raises `ConfigError`, `StoreUnsafe` and
        `StoreUnavailable` when the crawl cannot begin.
        """
        from orbweb.spiders.build import run_spider

        return run_spider(self, start)

    def stop(self) -> None:
        """Stop gracefully; may be called from a callback or another thread, at any time."""
        self._stop_asked = True
        if self._engine is not None:
            self._engine.stop_soon("stop() was called")

    @property
    def stop_asked(self) -> bool:
        """`stop` was called, or a signal has told the process to end."""
        return self._stop_asked or (self._engine is not None and self._engine.shutdown.signalled)

    @property
    def is_bound(self) -> bool:
        """An engine has been made for it."""
        return self._engine is not None

    def bind(self, engine: Engine) -> None:
        """Called by the assembly when the engine of this spider is ready."""
        self._engine = engine
        if self._stop_asked:
            engine.stop("stop() was called")
