"""How middlewares are loaded and their hooks called."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from orbweb.download.middlewares import DownloaderMiddleware, hooks_of, load_middlewares
from orbweb.errors import ConfigError
from orbweb.model.request import Request


class Plain:
    def process_request(self, request: Request) -> None: ...


class Configured(DownloaderMiddleware):
    def __init__(self, word: str) -> None:
        self.word = word

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Configured:
        return cls(settings["X_WORD"])


class Broken(DownloaderMiddleware):
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class Empty: ...


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    made = ModuleType("shop_middlewares")
    for kind in (Plain, Configured, Broken, Empty):
        setattr(made, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made.__name__


def test_paths_classes_and_objects_are_taken_in_order(module: str) -> None:
    own = Plain()
    loaded = load_middlewares([f"{module}.Configured", Plain, own], {"X_WORD": "hello"})
    assert [type(each) for each in loaded] == [Configured, Plain, Plain]
    assert loaded[0].word == "hello"
    assert loaded[2] is own


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("shop_middlewares.Missing", "has no 'Missing'"),
        ("no_such_module_here.X", "cannot be imported"),
        ("Plain", "is not a dotted path"),
        ("shop_middlewares.Broken", "RuntimeError: no licence"),
        ("shop_middlewares.Empty", "neither process_request nor process_response"),
    ],
)
def test_what_cannot_be_loaded_is_named(module: str, path: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        load_middlewares([path])
    assert path in str(caught.value)


def test_hooks_that_were_not_overridden_cost_nothing() -> None:
    middlewares = [Configured("x"), Plain()]
    assert [hook.name for hook in hooks_of(middlewares, "process_request", None)] == [
        "Plain.process_request"
    ]
    assert hooks_of(middlewares, "process_response", None) == ()


class Where:
    def process_request(self, request: Request) -> str:
        return threading.current_thread().name

    async def process_response(self, request: Request, response: Any) -> str:
        return threading.current_thread().name


async def test_plain_hooks_run_where_blocking_is_allowed_and_async_ones_on_the_loop() -> None:
    async def run_blocking(function: Any, *arguments: Any) -> Any:
        return f"blocking {function(*arguments)}"

    request = Request("http://shop.example/")
    (before,) = hooks_of([Where()], "process_request", run_blocking)
    (after,) = hooks_of([Where()], "process_response", run_blocking)
    assert await before(request) == "blocking MainThread"
    assert await after(request, None) == "MainThread"


async def test_a_plain_function_that_returns_an_awaitable_is_awaited() -> None:
    class Disguised:
        def process_request(self, request: Request) -> Any:
            async def later() -> Request:
                return request

            return later()

    request = Request("http://shop.example/")
    (hook,) = hooks_of([Disguised()], "process_request", None)
    assert await hook(request) is request
