"""Downloader middlewares: the hooks before and after a fetch, and how they are loaded."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from orbweb.errors import ConfigError, contained
from orbweb.model.request import Request
from orbweb.model.response import Response

RunBlocking = Callable[..., Awaitable[Any]]
"""`await run_blocking(function, *arguments)` calls a function that may block."""


class DownloaderMiddleware:
    """Base of a middleware; any object with one of the two hooks does.

    A hook may be `def` or `async def`. A plain `def` runs in a thread, so it may block.
    """

    def process_request(self, request: Request) -> Any:
        """Called before the fetch, in the order of the list.

        None goes on with this request, a `Request` takes its place, a `Response` is used instead
        of a fetch.
        """
        return None

    def process_response(self, request: Request, response: Response) -> Any:
        """Called after the fetch, last middleware first.

        A `Response` takes the place of this one, a `Request` asks for another try with it (which
        costs a retry), None keeps the response.
        """
        return response


class Hook:
    """One hook of one middleware, ready to be awaited."""

    __slots__ = ("_function", "_run", "name")

    def __init__(self, name: str, function: Callable[..., Any], run: RunBlocking | None) -> None:
        self.name = name
        self._function = function
        self._run = None if inspect.iscoroutinefunction(function) else run

    async def __call__(self, *arguments: Any) -> Any:
        """Call the hook; a plain function goes through `run_blocking` where there is one."""
        with contained():
            if self._run is None:
                result = self._function(*arguments)
            else:
                result = await self._run(self._function, *arguments)
            return await result if inspect.isawaitable(result) else result


def hooks_of(middlewares: Iterable[Any], method: str, run: RunBlocking | None) -> tuple[Hook, ...]:
    """The hooks named `method` of those middlewares that define it themselves."""
    base = getattr(DownloaderMiddleware, method, None)
    hooks = []
    for middleware in middlewares:
        function = getattr(middleware, method, None)
        if function is None or getattr(type(middleware), method, None) is base is not None:
            continue
        hooks.append(Hook(f"{type(middleware).__name__}.{method}", function, run))
    return tuple(hooks)


def load_middlewares(
    paths: Iterable[Any], settings: Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    """Build the middlewares of `DOWNLOADER_MIDDLEWARES`: dotted paths, classes or objects.

    A class with `from_settings(settings)` is built by it, any other without arguments.
    Raises `ConfigError` that names the entry and what is wrong with it.
    """
    return tuple(_build(entry, settings or {}) for entry in paths)


def _build(entry: Any, settings: Mapping[str, Any]) -> Any:
    found = _import(entry) if isinstance(entry, str) else entry
    if isinstance(found, type):
        try:
            found = found.from_settings(settings) if hasattr(found, "from_settings") else found()
        except ConfigError:
            raise
        except Exception as error:
            raise _wrong(entry, f"cannot be built: {type(error).__name__}: {error}") from error
    if not (hasattr(found, "process_request") or hasattr(found, "process_response")):
        raise _wrong(entry, "has neither process_request nor process_response")
    return found


def _import(path: str) -> Any:
    module, _, name = path.rpartition(".")
    if not module:
        raise _wrong(path, "is not a dotted path such as 'project.middlewares.MyMiddleware'")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise _wrong(path, f"{module} has no {name!r}") from error
    except Exception as error:
        raise _wrong(path, f"cannot be imported: {type(error).__name__}: {error}") from error


def _wrong(entry: Any, text: str) -> ConfigError:
    return ConfigError(f"DOWNLOADER_MIDDLEWARES: {entry!r}: {text}")
