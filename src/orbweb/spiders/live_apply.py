"""Lets live values hold in the parts of a node, and tells the methods that wait for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from orbweb.config.check import SWITCH_PREFIX
from orbweb.errors import RunLost, StoreUnavailable
from orbweb.log import event, get_logger
from orbweb.settings.load import masked
from orbweb.spiders.live_now import Now, Part, differences, value_of

Hook = tuple[tuple[str, ...], Callable[..., Any]]
"""Names of live values, and the method to call when one of them has changed."""

Call = Callable[..., Awaitable[Any]]

log = get_logger("orbweb.config")


async def apply_parts(
    parts: Sequence[Part], before: Now, wanted: Now
) -> tuple[dict[str, str], list[Part]]:
    """Returns by name why a part could not take it, and the parts that wait for the store.

    A part that cannot take it goes by what was before. One that waits holds up no other. Raises
    `RunLost`.
    """
    refused: dict[str, str] = {}
    late = []
    for part in parts:
        try:
            await part.apply(wanted)
        except StoreUnavailable as error:
            log.debug("%s takes the live values later: %s", part.name, error)
            late.append(part)
        except RunLost:
            raise
        except Exception as error:
            names = part.names & (differences(before, wanted) or part.names)
            refused |= dict.fromkeys(names, f"{type(error).__name__}: {error}")
            log.error("%s cannot go by the new live values: %s", part.name, error)
            await _go_back(part, before)
    return refused, late


async def repeat_parts(parts: Iterable[Part], now: Now) -> None:
    """Say again what counts for a while only. A store that is away hears it the next time."""
    for part in parts:
        if part.repeat is not None:
            try:
                await part.repeat(now)
            except StoreUnavailable as error:
                log.debug("%s is not told again: %s", part.name, error)


async def _go_back(part: Part, before: Now) -> None:
    """A part that cannot go by the old values either must not keep the others from theirs."""
    try:
        await part.apply(before)
    except RunLost:
        raise
    except Exception as error:
        log.error("%s cannot go by the old live values either: %s", part.name, error)


async def call_hooks(
    hooks: Sequence[Hook], call: Call, before: Now, after: Now, changed: set[str]
) -> dict[str, str]:
    """Tell methods what has changed; returns by name which of them failed, and why."""
    failed: dict[str, str] = {}
    for keys, method in hooks:
        for key in keys:
            switch = f"{SWITCH_PREFIX}{key}"
            name = switch if switch in after.own else key
            if name not in changed or value_of(before, name) == value_of(after, name):
                continue
            try:
                value = value_of(after, name)
                await call(method, *((value,) if len(keys) == 1 else (value, key)))
            except Exception as error:
                log.exception("%s failed for live value %s", method.__qualname__, name)
                failed[name] = f"{method.__qualname__}: {type(error).__name__}: {error}"
    return failed


def tell_changes(before: Now, after: Now, names: Iterable[str]) -> None:
    """A line of the log for each of these that differs, and for each host for which it does."""
    for name in sorted(names):
        old, new = value_of(before, name), value_of(after, name)
        if old != new:
            origin = after.settings.origin(name) if name in after.settings else "live"
            _tell(name, old, new, origin=origin)
        for host in sorted({*before.hosts, *after.hosts}):
            was, now = (each.hosts.get(host, {}).get(name) for each in (before, after))
            if was != now:
                _tell(name, was, now, host=host)


def _tell(name: str, before: Any, after: Any, **where: Any) -> None:
    shown = (masked(name, before), masked(name, after))
    event(log, "live_value", key=name, before=shown[0], after=shown[1], **where)
