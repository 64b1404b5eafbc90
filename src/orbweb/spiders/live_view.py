"""What a spider sees of live values: `self.live["price_v2"]`, `@orbweb.on_config("price_v2")`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from orbweb.config.check import KINDS, SWITCH_PREFIX
from orbweb.errors import ConfigError
from orbweb.settings.load import USER_PREFIX

Hook = TypeVar("Hook", bound=Callable[..., Any])

MARK = "_orbweb_on_config"


def on_config(*keys: str) -> Callable[[Hook], Hook]:
    """Call the method with the new value whenever one of these live values has changed.

    For methods of spiders and of downloader middlewares: `def changed(self, value)`, or
    `(self, value, key)` where one stands for several keys. A plain `def` runs in a thread. It is
    not called for the value with which the node begins. When it raises, the old value goes on to
    hold in this node, and its acknowledgement says so.
    """
    if not keys or not all(isinstance(key, str) for key in keys):
        raise TypeError('on_config names its keys: @orbweb.on_config("price_v2")')

    def mark(method: Hook) -> Hook:
        setattr(method, MARK, tuple(keys))
        return method

    return mark


def hooks_of(owner: Any) -> list[tuple[tuple[str, ...], Callable[..., Any]]]:
    """The methods of an object that `on_config` has marked, with their keys."""
    found = []
    for name in dir(type(owner)):
        keys = getattr(getattr(type(owner), name, None), MARK, None)
        if keys is not None:
            found.append((keys, getattr(owner, name)))
    return found


class LiveView(Mapping[str, Any]):
    """Live values of a spider by their names: its own, `X_` keys and settings, as they are now.

    `live["price_v2"]`, `live.price_v2`, `live.get("DOWNLOAD_DELAY")`. May be read by any thread; a
    change swaps all values in one step. Before the start its own have what `live` declares.
    """

    def __init__(self, declared: Mapping[str, Any]) -> None:
        self._declared = dict(declared)
        self._values: Mapping[str, Any] = {}

    @property
    def declared(self) -> Mapping[str, Any]:
        """The spider's own, with their defaults."""
        return self._declared

    def set_all(self, values: Mapping[str, Any]) -> None:
        """Let these hold, by their full names; called by the assembly."""
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        values = self._values
        if key in self._declared:
            return values.get(f"{SWITCH_PREFIX}{key}", self._declared[key])
        if key.startswith(SWITCH_PREFIX):
            return self[key.removeprefix(SWITCH_PREFIX)]
        if key in values:
            return values[key]
        raise KeyError(f"{key}: no live value of this spider; declare it: live = {{{key!r}: …}}")

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        yield from self._declared
        yield from (key for key in self._values if not key.startswith(SWITCH_PREFIX))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def declared_of(spider: type) -> dict[str, Any]:
    """What `live` of a class and those above it declares. Raises `ConfigError`."""
    found: dict[str, Any] = {}
    for each in reversed(spider.__mro__):
        declared = each.__dict__.get("live", {})
        if not isinstance(declared, Mapping):
            raise ConfigError(f'{each.__name__}.live must be a dict such as {{"price_v2": False}}')
        for key, value in declared.items():
            if not isinstance(key, str) or not key or "/" in key or type(value) not in KINDS:
                raise ConfigError(
                    f"{each.__name__}.live: {key!r}: {value!r} cannot be a live value: it has a "
                    "name without / and a default that is a truth value, number, text or list of "
                    "texts"
                )
            if key.startswith((SWITCH_PREFIX, USER_PREFIX)):
                raise ConfigError(f"{each.__name__}.live: {key!r}: leave {SWITCH_PREFIX} out")
        found.update(declared)
    return found
