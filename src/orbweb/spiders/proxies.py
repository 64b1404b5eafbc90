"""From settings to a pool of proxies."""

from __future__ import annotations

from pathlib import Path

from orbweb.download.proxies import PoolOptions, ProxyPool
from orbweb.errors import ConfigError
from orbweb.settings import Settings


def build_proxies(settings: Settings, directory: Path) -> ProxyPool:
    """The pool that the settings describe; it is on when a list or a file is given.

    `directory` is where PROXY_FILE is looked for. Raises `ConfigError`.
    """
    pool = ProxyPool(pool_options(settings))
    pool.replace(settings["PROXY_LIST"], f"PROXY_LIST ({settings.origin('PROXY_LIST')})")
    if settings["PROXY_FILE"]:
        pool.use_file(directory / settings["PROXY_FILE"])
    is_given = bool(settings["PROXY_LIST"] or settings["PROXY_FILE"])
    origin = settings.origin("PROXY_ENABLE")
    if settings["PROXY_ENABLE"] and not is_given and origin != "default":
        raise ConfigError(
            f"PROXY_ENABLE is on ({origin}), but there is no proxy: set PROXY_LIST or PROXY_FILE"
        )
    pool.switch(is_given and settings["PROXY_ENABLE"])
    return pool


def pool_options(settings: Settings) -> PoolOptions:
    """How long proxies rest."""
    return PoolOptions(
        cooldown_seconds=settings["PROXY_COOLDOWN"],
        longest_seconds=settings["PROXY_COOLDOWN_MAX"],
        statuses=frozenset(settings["PROXY_COOLDOWN_STATUS_CODES"]),
        suspect_after=settings["PROXY_SUSPECT_BAN_AFTER"],
    )
