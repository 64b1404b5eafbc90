"""Calling the spider's own code: plain functions in threads, async ones on the event loop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Protocol

from orbweb.engine.options import RunBlocking
from orbweb.engine.outputs import Outputs, collecting
from orbweb.errors import SpiderError, contained
from orbweb.model.item import is_item
from orbweb.model.request import Request
from orbweb.model.response import Response

CHUNK = 200
"""Outputs taken from a plain generator in one trip to its thread."""

Flush = Callable[[], Awaitable[None]]
"""Called between chunks: passes on what was collected, and slows the callback down if it must."""

_BOTH = frozenset({"request", "req"})
_RESPONSE_ONLY = frozenset({"response", "resp", "res"})


class Spider(Protocol):
    """What the engine calls of a spider. `BaseParser` documents each hook."""

    @property
    def name(self) -> str: ...
    def start_requests(self) -> Any: ...
    def download_midware(self, request: Request) -> Any: ...
    def validate(self, request: Request, response: Response) -> Any: ...
    def exception_request(
        self, request: Request, response: Response | None, exc: Exception
    ) -> Any: ...
    def failed_request(self, request: Request, response: Response | None) -> Any: ...
    def start_callback(self) -> Any: ...
    def end_callback(self) -> Any: ...


class Callbacks:
    """Finds callbacks by name and runs the spider's code.

    `async def` runs on the event loop. Anything else runs in a thread, so that code that blocks
    cannot stall downloads; its generator is read there in chunks.
    """

    def __init__(self, spider: Spider, run_blocking: RunBlocking, base: type) -> None:
        """`base`: the class whose own hooks do nothing and need not be called."""
        self._spider = spider
        self._run_blocking = run_blocking
        self._base = base
        self._wants_request: dict[Any, bool] = {}

    def overrides(self, hook: str) -> bool:
        """Whether the spider has a hook of its own."""
        own = getattr(self._spider, hook)
        return getattr(own, "__func__", own) is not getattr(self._base, hook, None)

    def knows(self, request: Request) -> bool:
        """Whether the request's callback is a method of the spider or can be called as it is."""
        if callable(request.callback) and not self._is_method(request.callback):
            return True
        return callable(getattr(self._spider, request.callback_name or "parse", None))

    def names(self) -> list[str]:
        """The spider's own methods that look like callbacks: public, no hook, given a response."""
        methods = inspect.getmembers_static(type(self._spider), inspect.isfunction)
        return [
            name
            for name, function in methods
            if not name.startswith("_")
            and (not hasattr(self._base, name) or (name == "parse" and self.overrides(name)))
            and _RESPONSE_ONLY & inspect.signature(function).parameters.keys()
        ]

    def resolve(self, request: Request) -> Callable[..., Any]:
        """The function to call; raises `SpiderError` when there is none of that name."""
        callback = request.callback
        if callable(callback) and not self._is_method(callback):
            return callback
        name = request.callback_name or "parse"
        found = getattr(self._spider, name, None)
        if not callable(found):
            raise SpiderError(f"callback {name!r} is not a method of {self._spider.name}")
        function: Callable[..., Any] = found
        return function

    def midware(self, request: Request) -> Callable[[Request], Any] | None:
        """The request's own `download_midware`, else the spider's if it has one."""
        own = request.download_midware
        if own is not None:
            found = own if callable(own) else getattr(self._spider, own, None)
            if callable(found):
                return found
        if self.overrides("download_midware"):
            hook: Callable[[Request], Any] = self._spider.download_midware
            return hook
        return None

    async def accepts(self, request: Request, response: Response) -> bool:
        """Whether the spider's `validate` lets the page pass; raises what that raises."""
        if not self.overrides("validate"):
            return True
        return await self.call(self._spider.validate, request, response) is not False

    async def parse(
        self,
        function: Callable[..., Any],
        request: Request,
        response: Response | None,
        outputs: Outputs,
        flush: Flush,
    ) -> None:
        """Call the request's callback with what its signature names, and collect its outputs."""
        args = (request, response) if self._takes_request(function) else (response,)
        await self.collect(function, args, request.cb_kwargs, outputs, flush)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a hook and give its result."""
        with contained():
            if inspect.iscoroutinefunction(function):
                return await function(*args)
            result = await self._run_blocking(function, *args)
            return await result if inspect.isawaitable(result) else result

    async def collect(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Outputs,
        flush: Flush,
    ) -> None:
        """Call a function and collect all that it yields or returns."""
        with contained(), gathering(outputs):
            if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
                await self._collect_async(function(*args, **kwargs), outputs, flush)
            else:
                await self._collect_plain(_Reader(function, args, kwargs, outputs), outputs, flush)

    async def _collect_plain(self, reader: _Reader, outputs: Outputs, flush: Flush) -> None:
        while await self._run_blocking(reader.read):
            await _settle(outputs, flush)
        if reader.deferred is not None:
            await self._collect_async(reader.deferred, outputs, flush)
        else:
            await _settle(outputs, flush)

    async def _collect_async(self, result: Any, outputs: Outputs, flush: Flush) -> None:
        if inspect.isawaitable(result):
            result = await result
        own = inspect.isasyncgen(result)
        stream: AsyncGenerator[Any, None] = result if own else _as_generator(result)
        async with aclosing(stream):
            count = 0
            async for output in stream:
                outputs.accept(output)
                count += 1
                if count % CHUNK == 0:
                    await _settle(outputs, flush)
        await _settle(outputs, flush)

    def _takes_request(self, function: Callable[..., Any]) -> bool:
        key = getattr(function, "__func__", function)
        known = self._wants_request.get(key)
        if known is None:
            known = self._wants_request[key] = takes_request(function)
        return known

    def _is_method(self, callback: Any) -> bool:
        return getattr(callback, "__self__", None) is self._spider or (
            inspect.ismethod(callback) and isinstance(callback.__self__, type(self._spider))
        )


class _Reader:
    """Reads the outputs of a plain function, a chunk at a time, in a thread."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Outputs,
    ) -> None:
        self.deferred: Any = None
        """An awaitable or async iterable that the function returned, for the event loop."""
        self._call = function, args, kwargs
        self._outputs = outputs
        self._iterator: Iterator[Any] | None = None

    def read(self) -> bool:
        """Take one chunk; True when there may be more."""
        with gathering(self._outputs):  # a thread has a context of its own
            return self._read()

    def _read(self) -> bool:
        if self._iterator is None:
            function, args, kwargs = self._call
            result = function(*args, **kwargs)
            if inspect.isawaitable(result) or isinstance(result, AsyncIterable):
                self.deferred = result
                return False
            self._iterator = iter(as_outputs(result))
        for count, output in enumerate(self._iterator, 1):
            self._outputs.accept(output)
            if count == CHUNK:
                return True
        return False


@contextmanager
def gathering(outputs: Outputs) -> Iterator[None]:
    """While this is open, `collecting` says where the outputs of the running callback go."""
    before = collecting.set(outputs)
    try:
        yield
    finally:
        collecting.reset(before)


def as_outputs(result: Any) -> Iterable[Any]:
    """What a function returned, as a series of outputs."""
    if result is None:
        return ()
    if isinstance(result, (Request, str, bytes)) or is_item(result):
        return (result,)
    if isinstance(result, Iterable):
        return result
    return (result,)


def takes_request(function: Callable[..., Any]) -> bool:
    """Whether a callback is `(request, response, ...)` and not `(response, ...)`."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return True
    positional = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if not positional or positional[0].name in _RESPONSE_ONLY:
        return False
    if positional[0].name in _BOTH:
        return True
    return sum(each.default is each.empty for each in positional) >= 2


async def _settle(outputs: Outputs, flush: Flush) -> None:
    for awaitable in outputs.take_awaitables():
        await awaitable
    await flush()


async def _as_generator(result: Any) -> AsyncGenerator[Any, None]:
    if isinstance(result, AsyncIterable):
        async for each in result:
            yield each
    else:
        for each in as_outputs(result):
            yield each
