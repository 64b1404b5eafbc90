"""From settings to a pool of proxies, at the start and while a node works."""

from __future__ import annotations

from pathlib import Path

from orbweb.download.proxies import PoolOptions, ProxyPool
from orbweb.errors import ConfigError
from orbweb.settings import Settings
from orbweb.settings.declarations import PROXIES
from orbweb.spiders.live_now import Now, Part


def build_proxies(settings: Settings, directory: Path) -> ProxyPool:
    """The pool that the settings describe; it is on when a list or a file is given.

    `directory` is where PROXY_FILE is looked for. Raises `ConfigError`.
    """
    is_given = _names_proxies(settings)
    origin = settings.origin("PROXY_ENABLE")
    if settings["PROXY_ENABLE"] and not is_given and origin != "default":
        raise ConfigError(
            f"PROXY_ENABLE is on ({origin}), but there is no proxy: set PROXY_LIST or PROXY_FILE"
        )
    pool = ProxyPool()
    _fill(pool, settings, directory)
    pool.switch(is_given and settings["PROXY_ENABLE"])
    return pool


def unfit_proxies(settings: Settings, directory: Path) -> dict[str, str]:
    """By name of each setting of the pool why no pool can be made; empty when one can."""
    try:
        build_proxies(settings, directory)
    except ConfigError as error:
        return dict.fromkeys((setting.name for setting in PROXIES), str(error))
    return {}


def proxies_part(pool: ProxyPool, at_start: Settings, directory: Path) -> Part:
    """The pool as live values change it.

    A live PROXY_LIST without an entry empties the pool and does not switch it off: requests wait.
    """

    async def apply(now: Now) -> None:
        settings = now.settings
        _fill(pool, settings, directory)
        is_live = settings.origin("PROXY_LIST") != at_start.origin("PROXY_LIST")
        is_given = is_live or _names_proxies(settings) or _names_proxies(at_start)
        pool.switch(is_given and settings["PROXY_ENABLE"])

    return Part("the proxy pool", frozenset(setting.name for setting in PROXIES), apply)


def _names_proxies(settings: Settings) -> bool:
    return bool(settings["PROXY_LIST"] or settings["PROXY_FILE"])


def _fill(pool: ProxyPool, settings: Settings, directory: Path) -> None:
    """Raises `ConfigError` for what is no proxy, or a file that cannot be read."""
    pool.tune(
        PoolOptions(
            cooldown_seconds=settings["PROXY_COOLDOWN"],
            longest_seconds=settings["PROXY_COOLDOWN_MAX"],
            statuses=frozenset(settings["PROXY_COOLDOWN_STATUS_CODES"]),
            suspect_after=settings["PROXY_SUSPECT_BAN_AFTER"],
        )
    )
    pool.replace(settings["PROXY_LIST"], f"PROXY_LIST ({settings.origin('PROXY_LIST')})")
    path = settings["PROXY_FILE"]
    pool.use_file(directory / path if path else None)
